"""A real controller is killed at each step of a preemption, on a real API server: the next leader
carries on, no victim is deleted twice, and nobody goes whom the pod does not need."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.kube.preempting import Hunt, hunt
from tests.system.controller_pair import ControllerPair
from tests.system.daemons import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.broker]

SETTINGS = '[strategy]\nname = "bef"\n'
# Many, so that there is time between the first and the last of them.
VICTIMS = 12


@pytest.fixture
def scene(pair: ControllerPair) -> Iterator[Hunt]:
    pair.both_run()
    with hunt(pair.api) as made:
        made.node(1, "12")
        made.node(2, "1")
        for number in range(VICTIMS):
            made.pod(f"prey-{number:02}", "1", "prey", on=1)
        made.pod("keeper", "1", "keeper", on=2)
        eventually(made.where, lambda where: all(where.values()), "all pods are bound")
        yield made


STEPS: dict[str, Callable[[Hunt], bool]] = {
    "the node is nominated": lambda scene: scene.nominated("hunter") == "n1",
    "the first victim ends": lambda scene: len(scene.ending()) > 0,
    "half of the victims end": lambda scene: len(scene.ending()) > VICTIMS // 2,
    "all victims end": lambda scene: len(scene.ending()) == VICTIMS,
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_when(pair: ControllerPair, scene: Hunt, step: str) -> None:
    leader, _ = pair.both_run()
    scene.pod("hunter", "12", "hunter")
    eventually(lambda: STEPS[step](scene), bool, step, every_s=0.001)
    leader.daemon.stop(signal.SIGKILL)
    print(f"\n{step}: {len(scene.ending())} of {VICTIMS} victims end, {scene.nominated('hunter')}")
    pair.wait_leader(other_than=leader)
    check(pair, scene)


def test_killed_when_the_victims_are_gone(pair: ControllerPair, scene: Hunt) -> None:
    leader, _ = pair.both_run()
    scene.pod("hunter", "12", "hunter")
    eventually(scene.ending, lambda ending: len(ending) == VICTIMS, "all victims end")
    scene.ends.set()
    eventually(scene.ending, lambda ending: not ending, "they are gone", every_s=0.001)
    leader.daemon.stop(signal.SIGKILL)
    check(pair, scene)


@pytest.mark.parametrize("killed", [False, True])
def test_several_pods_preempt_at_a_time(pair: ControllerPair, scene: Hunt, killed: bool) -> None:
    """Together they take as few as they need, and none twice."""
    leader, _ = pair.both_run()
    scene.pod("lord", "2", "lord")
    for number in range(3):
        scene.pod(f"hunter-{number}", "3", "hunter")
    if killed:
        eventually(scene.ending, bool, "the first victim ends", every_s=0.001)
        leader.daemon.stop(signal.SIGKILL)
    scene.ends.set()
    bound = {f"hunter-{number}": "n1" for number in range(3)} | {"lord": "n1"}
    eventually(
        scene.where, lambda seen: bound.items() <= seen.items(), "all are bound", timeout_s=90
    )
    # 11 of the 12 cores are theirs.
    deleted = deletions(pair, scene)
    assert len(deleted) == VICTIMS - 1
    assert set(deleted.values()) == {1}
    assert len(scene.where()) == len({*bound, "keeper", "the last of the prey"})


def check(pair: ControllerPair, scene: Hunt) -> None:
    """The pod runs at last, on the room of its victims alone, and each of them went once."""
    # The next leader waits for those that are ending, and only then has the others end.
    scene.ends.set()
    where = eventually(
        scene.where, lambda seen: seen.get("hunter"), "the pod is bound", timeout_s=90
    )
    assert where == {"hunter": "n1", "keeper": "n2"}
    assert deletions(pair, scene) == {f"prey-{number:02}": 1 for number in range(VICTIMS)}


def deletions(pair: ControllerPair, scene: Hunt) -> Counter[str]:
    """How many times the controllers deleted each pod, by suffix."""
    for one in pair.candidates:
        assert one.daemon.said("Traceback") == 0
    ours = {one.credential for one in pair.candidates}
    return Counter(
        each.name.removeprefix(f"{scene.name}-")
        for each in pair.audit.deletions(scene.name)
        if each.by in ours and each.worked
    )
