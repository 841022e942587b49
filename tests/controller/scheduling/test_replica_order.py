"""The costs of replicas: the newest one is removed first, and each is annotated once."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random

import pytest
from leadline_controller.cluster.reservations import Reservation
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.framework.model import CPU, PODS, Node, Owner
from leadline_controller.framework.ports import ClusterError, ForbiddenError, InvalidError
from leadline_controller.history.log import BOUND
from leadline_controller.kubeobjects.manifest import DELETION_COST, GOES_FIRST, read_pod
from leadline_controller.scheduling.replica_order import PREDICTED_MS
from leadline_controller.strategies.response_time import ResponseTime, replica_to_remove

from tests.controller.keda.scene import PING_MS, replica
from tests.controller.scheduling.replica_scene import Scene
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with Scene().running() as scene:
        yield scene


async def test_each_new_replica_costs_less_than_those_before_it(scene: Scene) -> None:
    replicas = []
    for number, node in enumerate(("w1", "w2", "w3", "w1")):
        replicas.append(scene.cluster.put_pod(replica(f"web-{number}", node, created_s=number)))
        await scene.clock.advance(1.0)
    costs = [scene.cost(each.name) for each in replicas]
    assert costs == sorted(costs, key=lambda cost: -(cost or 0))
    first_removed = min(replicas, key=lambda each: scene.cost(each.name) or 0)
    assert first_removed.name == replica_to_remove(replicas).name
    assert len(scene.cluster.written) == 4


async def test_a_replica_that_is_not_annotated_yet_is_the_first_to_be_removed(scene: Scene) -> None:
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
            Rule(ResponseTime(), {}, Random(1)),
        )
        scene.decisions.add(decision, 1000.0 + number, "", {})
    for name in ("web-c", "web-a", "web-b"):  # the bindings end in any order
        scene.decisions.set_outcome(f"default/{name}", BOUND)
    for name in ("web-a", "web-b", "web-c"):
        scene.cluster.put_pod(replica(name, "w1", created_s=5.0))
    await scene.clock.advance(1.0)
    assert [name for name, _ in scene.cluster.written] == ["web-b", "web-a", "web-c"]


async def test_a_replica_whose_binding_is_seen_late_comes_before_later_ones(scene: Scene) -> None:
    older = scene.cluster.put_pod(replica("web-0", created_s=1))
    await scene.clock.advance(0.0)
    scene.state.assume(older, "w1")
    scene.cluster.put_pod(replica("web-1", "w2", created_s=2))
    await scene.clock.advance(1.0)
    scene.cluster.put_pod(replace(older, node_name="w1"))
    await scene.clock.advance(1.0)
    assert scene.ranked() == ["web-0", "web-1"]
    assert len(scene.cluster.written) == 2


async def test_a_workload_with_costs_of_others_is_left_alone_and_services_do_not_mix(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.cluster.put_pod(replica("web-0", "w1", deletion_cost=7))
    scene.cluster.put_pod(replica("web-1", "w2"))
    scene.cluster.put_pod(replica("db-0", "w2", app="db"))
    await scene.clock.advance(130.0)
    costs = [scene.cost(name) for name in ("web-0", "web-1", "db-0")]
    assert costs == [7, None, 1_000_000_000]
    assert [each for each in caplog.messages if "7: its workload is left alone" in each] == (
        caplog.messages[:1]
    )


async def test_a_pod_that_a_move_takes_away_takes_no_part(scene: Scene) -> None:
    scene.cluster.put_pod(replica("web-0", "w1", deletion_cost=GOES_FIRST))
    scene.cluster.put_pod(replica("web-1", "w2"))
    await scene.clock.advance(130.0)
    assert [scene.cost(f"web-{at}") for at in range(2)] == [GOES_FIRST, 1_000_000_000]


@pytest.mark.parametrize("failover", [False, True])
async def test_a_replacement_keeps_the_age_of_the_moved_pod(
    scene: Scene, *, failover: bool
) -> None:
    """By what the API server shows: a controller that takes over reserves the room from the note
    about the move, which has the cost."""
    owner = Owner("ReplicaSet", "web", "set")
    for number in range(3):
        pod = replica(f"web-{number}", "w1", created_s=number, owner=owner, ready=True)
        scene.cluster.put_pod(pod)
    await scene.clock.advance(1.0)
    moved = scene.cluster.pod("default/web-0")
    scene.state.reserve(Reservation(moved, "w2", "w1"))
    scene.cluster.remove_pod(moved.key)
    if failover:
        scene.state.unreserve(moved.uid)
        scene.turn.leading = False
    pod = scene.cluster.put_pod(replica("web-9", "w2", created_s=9, owner=owner))
    await scene.clock.advance(0.0)
    if failover:
        scene.state.reserve(Reservation(moved, "w2", "w1"), pod)
        scene.turn.leading = True
    await scene.clock.advance(1.0)
    assert scene.cost("web-9") == moved.deletion_cost
    scene.state.unreserve(moved.uid)
    written = len(scene.cluster.written)
    await scene.clock.advance(200.0)
    assert scene.ranked() == ["web-9", "web-1", "web-2"]
    assert len(scene.cluster.written) == written


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
    scene.cluster.put_pod(replica("web-0", "w1", created_s=1.0, deletion_cost=1_000_000_000))
    scene.cluster.put_pod(replica("web-2", "w3", created_s=3.0))
    scene.cluster.put_pod(replica("web-1", "w2", created_s=2.0))
    await scene.clock.advance(1.0)
    assert [name for name, _ in scene.cluster.written] == ["web-1", "web-2"]
    assert scene.ranked() == ["web-0", "web-1", "web-2"]


async def test_the_predictions_are_written_as_the_decision_had_them(scene: Scene) -> None:
    told = TelemetryBuilder("gate", *PING_MS)
    for name, rtt_ms in PING_MS.items():
        told.rtt("gate", name, rtt_ms, 999.0)
    await scene.clock.advance(0.0)
    scene.cluster.put_node(Node("gate", {CPU: 0, PODS: 0}))
    await scene.clock.advance(0.0)
    view = scene.state.view(told.state, 1000.0)
    pod = replica("web-0")
    decision = decide(view, pod, Rule(ResponseTime(), {}, Random(1)))
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
