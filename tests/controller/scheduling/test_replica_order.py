"""The costs of replicas: the newest one is removed first, and each is annotated once."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from random import Random

import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import BOUND, DecisionLog
from leadline_controller.framework.cycle import decide
from leadline_controller.framework.model import CPU, PODS, Node, Pod
from leadline_controller.framework.ports import (
    ClusterError,
    ForbiddenError,
    InvalidError,
    Relisted,
    UnavailableError,
)
from leadline_controller.kubeobjects.manifest import DELETION_COST, GOES_FIRST, read_pod
from leadline_controller.scheduling.replica_order import PREDICTED_MS, ReplicaOrder, due
from leadline_controller.strategies.response_time import ResponseTime, replica_to_remove

from tests.controller.api.api_harness import FakeLeadership
from tests.controller.scheduling.test_scaler_service import PING_MS, replica
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster


class AnnotatedCluster(MemoryCluster):
    """Remembers what was written, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__([Node(name, {CPU: 4000, PODS: 10}) for name in PING_MS])
        self.written: list[tuple[str, dict[str, str | None]]] = []
        self.failing = False
        self.refusals: dict[str, ClusterError] = {}  # by the pod's name

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        if self.failing:
            raise UnavailableError("503: not now")
        if pod.name in self.refusals:
            raise self.refusals[pod.name]
        await super().annotate(pod, annotations)
        self.written.append((pod.name, dict(annotations)))


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(1000.0)
        self.cluster, self.state = AnnotatedCluster(), ClusterState()
        self.decisions, self.turn = DecisionLog(), FakeLeadership()
        self.order = ReplicaOrder(self.cluster, self.state, self.decisions, self.turn, self.clock)

    async def follow(self) -> None:
        async for change in self.cluster.watch():
            self.state.apply(change)
            self.order.observe(change)

    def cost(self, name: str) -> int | None:
        return self.cluster.pod(f"default/{name}").deletion_cost


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    tasks = [asyncio.create_task(scene.follow()), asyncio.create_task(scene.order.run())]
    yield scene
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_each_new_replica_costs_less_than_those_before_it(scene: Scene) -> None:
    replicas = []
    for number, node in enumerate(("w1", "w2", "w3", "w1")):
        replicas.append(scene.cluster.put_pod(replica(f"web-{number}", node, created_s=number)))
        await scene.clock.advance(1.0)
    costs = [scene.cost(each.name) for each in replicas]
    assert costs == [1_000_000_000, 999_999_999, 999_999_998, 999_999_997]
    first_removed = min(replicas, key=lambda each: scene.cost(each.name) or 0)
    assert first_removed.name == replica_to_remove(replicas).name
    assert len(scene.cluster.written) == 4


async def test_a_replica_that_is_not_annotated_yet_is_the_first_to_be_removed(
    scene: Scene,
) -> None:
    """ReplicaSets count a missing cost as 0."""
    scene.cluster.put_pod(replica("web-0", "w1"))
    await scene.clock.advance(1.0)
    cost = scene.cost("web-0")
    assert cost is not None
    assert cost > 0


async def test_replicas_of_one_second_are_ordered_by_their_decisions(scene: Scene) -> None:
    await scene.clock.advance(0.0)
    view = scene.state.view(TelemetryBuilder().state, 1000.0)
    for number, name in enumerate(("web-b", "web-a", "web-c")):
        decision = decide(
            view,
            replace(replica(name), annotations=replica(name).annotations),
            {},
            ResponseTime(),
            Random(1),
        )
        scene.decisions.add(decision, 1000.0 + number, "", {})
    for name in ("web-c", "web-a", "web-b"):  # the bindings end in any order
        scene.decisions.set_outcome(f"default/{name}", BOUND)
    for name in ("web-a", "web-b", "web-c"):
        scene.cluster.put_pod(replica(name, "w1", created_s=5.0))
    await scene.clock.advance(1.0)
    assert [name for name, _ in scene.cluster.written] == ["web-b", "web-a", "web-c"]


async def test_a_replica_whose_binding_is_not_seen_yet_comes_before_later_ones(
    scene: Scene,
) -> None:
    older = scene.cluster.put_pod(replica("web-0", created_s=1))
    await scene.clock.advance(0.0)
    scene.state.assume(older, "w1")
    scene.cluster.put_pod(replica("web-1", "w2", created_s=2))
    await scene.clock.advance(1.0)
    assert scene.cluster.written == []
    scene.cluster.put_pod(replace(older, node_name="w1"))
    await scene.clock.advance(1.0)
    assert [scene.cost(name) for name in ("web-0", "web-1")] == [1_000_000_000, 999_999_999]


async def test_costs_that_others_gave_stay_and_services_do_not_mix(scene: Scene) -> None:
    scene.cluster.put_pod(replica("web-0", "w1", deletion_cost=7))
    scene.cluster.put_pod(replica("web-1", "w2"))
    scene.cluster.put_pod(replica("db-0", "w2", app="db"))
    await scene.clock.advance(1.0)
    costs = [scene.cost(name) for name in ("web-0", "web-1", "db-0")]
    assert costs == [7, 6, 1_000_000_000]


async def test_the_cost_of_a_pod_that_a_move_takes_away_counts_for_no_other(scene: Scene) -> None:
    scene.cluster.put_pod(replica("web-0", "w1", deletion_cost=7))
    scene.cluster.put_pod(replica("web-1", "w2", deletion_cost=GOES_FIRST))
    scene.cluster.put_pod(replica("web-2", "w3"))
    await scene.clock.advance(1.0)
    assert [scene.cost(f"web-{at}") for at in range(3)] == [7, GOES_FIRST, 6]


async def test_only_placed_replicas_of_services_with_a_response_time_are_annotated(
    scene: Scene,
) -> None:
    scene.cluster.put_pod(replica("pending"))
    scene.cluster.put_pod(replica("ending", "w1", terminating=True))
    scene.cluster.put_pod(replica("without", "w1", response_time_ms=None))
    scene.cluster.put_pod(replace(replica("alone", "w1"), labels={}))
    await scene.clock.advance(5.0)
    assert scene.cluster.written == []


async def test_only_the_leader_annotates_and_catches_up_when_it_leads(scene: Scene) -> None:
    waiting = asyncio.Event()
    scene.turn.leading = False

    async def wait() -> None:
        await waiting.wait()

    scene.turn.wait = wait  # type: ignore[method-assign]
    scene.cluster.put_pod(replica("web-0", "w1"))
    await scene.clock.advance(10.0)
    assert scene.cluster.written == []
    scene.turn.leading = True
    waiting.set()
    await scene.clock.advance(1.0)
    assert [name for name, _ in scene.cluster.written] == ["web-0"]


async def test_a_failure_is_tried_again(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.cluster.failing = True
    scene.cluster.put_pod(replica("web-0", "w1"))
    await scene.clock.advance(30.0)
    assert len(caplog.messages) == 1  # the same error is logged once
    scene.cluster.failing = False
    await scene.clock.advance(10.0)
    assert scene.cost("web-0") == 1_000_000_000


@pytest.mark.parametrize("error", [InvalidError("422: no"), ForbiddenError("403: no")])
async def test_a_pod_that_is_refused_for_ever_does_not_stop_the_others(
    scene: Scene, caplog: pytest.LogCaptureFixture, error: ClusterError
) -> None:
    scene.cluster.refusals["web-0"] = error
    for number in range(3):
        scene.cluster.put_pod(replica(f"web-{number}", "w1", created_s=number))
        await scene.clock.advance(30.0)
    assert scene.cost("web-0") is None
    first, second = (scene.cost(f"web-{number}") for number in (1, 2))
    assert first is not None
    assert second is not None
    assert first > second
    assert len(caplog.messages) == 1


async def test_a_right_that_comes_later_is_used(scene: Scene) -> None:
    scene.cluster.refusals["web-0"] = ForbiddenError("403: no")
    scene.cluster.put_pod(replica("web-0", "w1"))
    await scene.clock.advance(30.0)
    scene.cluster.refusals.clear()
    await scene.clock.advance(10.0)
    assert scene.cost("web-0") == 1_000_000_000


async def test_after_a_restart_the_order_goes_on(scene: Scene) -> None:
    state = ClusterState()
    pods = (
        replica("web-0", "w1", created_s=1.0, deletion_cost=1_000_000_000),
        replica("web-2", "w3", created_s=3.0),
        replica("web-1", "w2", created_s=2.0),
    )
    state.apply(Relisted((), pods))
    costs = [(pod.name, cost) for pod, cost in due(state, DecisionLog())]
    assert costs == [("web-1", 999_999_999), ("web-2", 999_999_998)]


async def test_the_predictions_are_written_as_the_decision_had_them(scene: Scene) -> None:
    told = TelemetryBuilder("gate", *PING_MS)
    for name, rtt_ms in PING_MS.items():
        told.rtt("gate", name, rtt_ms, 999.0)
    await scene.clock.advance(0.0)
    scene.cluster.put_node(Node("gate", {CPU: 0, PODS: 0}))
    await scene.clock.advance(0.0)
    view = scene.state.view(told.state, 1000.0)
    pod = replica("web-0")
    decision = decide(view, pod, {}, ResponseTime(), Random(1))
    scene.decisions.add(decision, 1000.0, BOUND, {})
    assert decision.node == "w1"
    scene.cluster.put_pod(replace(pod, node_name="w1"))
    await scene.clock.advance(1.0)
    ((_, annotations),) = scene.cluster.written
    predicted = json.loads(annotations[PREDICTED_MS] or "")
    assert {name: predicted[name] for name in ("w1", "w2", "w3")} == {
        "w1": 15.0,
        "w2": 30.0,
        "w3": 50.0,
    }
    assert "w4" not in predicted  # over the threshold


@pytest.mark.parametrize(
    ("text", "cost"), [("5", 5), ("-2147483648", -(2**31)), ("x", None), ("1.5", None), ("", None)]
)
def test_the_cost_is_read_from_the_pod(text: str, cost: int | None) -> None:
    metadata = {
        "name": "p",
        "annotations": {DELETION_COST: text},
        "creationTimestamp": "2026-01-31T12:00:00Z",
    }
    pod = read_pod({"metadata": metadata, "spec": {"containers": []}})
    assert (pod.deletion_cost, pod.created_s) == (cost, 1769860800.0)
