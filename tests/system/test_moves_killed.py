"""A real controller is killed at each step of a move, on a real API server with the stock
controllers: the next leader finishes or undoes the move, and no pod is lost. `make test-moves`
tries all steps, and `make test-parts` two."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from tests.kube.api import Api, ApiError
from tests.kube.controllers import kube_controller_manager
from tests.kube.moving import CONTROLLERS, NOTES, Town, town
from tests.kube.played_kubelets import played_kubelets
from tests.support.threads import beside
from tests.system.controller_pair import ControllerPair
from tests.system.daemons import eventually, leadline

pytestmark = [pytest.mark.cluster, pytest.mark.broker]

# bef places by the memory that is left, which a test can change.
SETTINGS = """
[strategy]
name = "bef"
[rescheduling]
mode = "manual"
cooldown_s = 0
timeout_s = 60
min_gain = 0.1
moves_per_hour = 200
node_moves_per_hour = 200
workload_moves_per_hour = 200
"""
EXTRA = "leadline.dev/extra-replica"
COST = "controller.kubernetes.io/pod-deletion-cost"


@dataclass
class Scene:
    """A workload of one pod that is about to move, and kubelets that a test can hold back."""

    pair: ControllerPair
    place: Town
    path: str
    ready: Event
    fewest: list[int] = field(default_factory=list)

    @property
    def api(self) -> Api:
        return self.pair.api

    def notes(self) -> list[Any]:
        with suppress(ApiError):
            data = self.api.get(NOTES).get("data") or {}
            return list(json.loads(data.get("moves", "[]")))
        return []

    def is_noted(self) -> bool:
        return any(each["outcome"] == "open" for each in self.notes())

    def is_extra(self) -> bool:
        return EXTRA in self.api.get(self.path)["metadata"].get("annotations", {})

    def is_placed(self) -> bool:
        return sum("nodeName" in each["spec"] for each in self.place.pods()) == 2

    def is_costed(self) -> bool:
        pods = self.place.pods()
        is_costed = any(COST in each["metadata"].get("annotations", {}) for each in pods)
        # It lasts for some milliseconds; a look that comes too late counts as well.
        return is_costed or self.place.where() == ["n2"]

    def is_evicted(self) -> bool:
        return self.place.where() == []


@pytest.fixture(scope="module")
def managers(running_pair: ControllerPair) -> Iterator[None]:
    with kube_controller_manager(running_pair.plane, CONTROLLERS):
        yield


@pytest.fixture
def scene(pair: ControllerPair, managers: None) -> Iterator[Scene]:
    pair.both_run()
    ready = Event()
    ready.set()
    with (
        town(pair.api, nodes=2) as place,
        played_kubelets(pair.api, "default", lambda _: ready.is_set()),
    ):
        give(pair.api, place.node(1), "6Gi")
        yield Scene(pair, place, place.deployment(), ready)
        ready.set()


def give(api: Api, node: str, memory: str) -> None:
    api.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": {"memory": memory}}})


def move_and_kill(scene: Scene, at: Callable[[], bool], what: str) -> None:
    """Begin the move, and kill the leader as soon as `at` holds."""
    leader, _ = scene.pair.both_run()
    eventually(scene.place.where, lambda where: where == ["n1"], "the pod runs")
    give(scene.api, scene.place.node(2), "32Gi")
    eventually(
        lambda: len(leader.ask("reschedule")["moves"]), lambda n: n == 1, "a move is planned"
    )
    call = ("reschedule", "--apply", "--address", leader.address)
    with beside(lambda: leadline(*call)):
        eventually(at, bool, what, every_s=0.01)
        leader.daemon.stop(signal.SIGKILL)


def check(scene: Scene, *, where: list[list[str]]) -> None:
    """All is done or undone, and the workload is whole."""

    def state() -> tuple[Any, ...]:
        found = scene.api.get(scene.path)
        pods, replicas = scene.place.pods(), found["spec"]["replicas"]
        ended = [each["outcome"] for each in scene.notes()]
        return scene.is_noted(), scene.is_extra(), replicas, len(pods), scene.place.where(), ended

    ended = eventually(
        state,
        lambda seen: seen[:4] == (False, False, 1, 1) and seen[4] in where,
        f"the move has ended on {where}",
        timeout_s=180,
    )
    print(f"\nnotes: {ended[5]}, the pod is on {ended[4]}")
    assert all(COST not in each["metadata"].get("annotations", {}) for each in scene.place.pods())
    for one in scene.pair.candidates:
        assert one.daemon.said("Traceback") == 0


STEPS: dict[str, tuple[Callable[[Scene], bool], bool]] = {
    "the move is noted": (Scene.is_noted, True),
    "there is an extra replica": (Scene.is_extra, False),
    "the replacement is bound": (Scene.is_placed, False),
    "the old pod is to go first": (Scene.is_costed, True),
}


TRIED = list(STEPS) if "MOVES_PLANS" in os.environ else ["there is an extra replica"]


@pytest.mark.parametrize("step", TRIED)
def test_killed_when(scene: Scene, step: str) -> None:
    at, is_quick = STEPS[step]
    eventually(scene.place.where, lambda where: where == ["n1"], "the pod runs")
    if not is_quick:
        scene.ready.clear()
    done, fewest = Event(), [1]

    def watch() -> None:
        while not done.wait(0.02):
            with suppress(ApiError, OSError):
                fewest.append(len(scene.place.where()))

    with beside(watch, done=done):
        move_and_kill(scene, lambda: at(scene), step)
        scene.ready.set()
        # Noted and nothing else: the next leader lets it be.
        check(scene, where=[["n1"], ["n2"]] if step == "the move is noted" else [["n2"]])
    assert min(fewest) == 1


def test_killed_after_the_eviction(scene: Scene) -> None:
    """An autoscaler sets the replicas, so the pod is evicted, and nobody else is ready."""
    scene.place.autoscaler()
    eventually(scene.place.where, lambda where: where == ["n1"], "the pod runs")
    scene.ready.clear()
    move_and_kill(scene, scene.is_evicted, "the pod is evicted")
    scene.ready.set()
    check(scene, where=[["n2"]])
