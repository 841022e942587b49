"""How many replicas KEDA is told, by rate and by response time: never more than can be placed."""

import math
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from leadline_controller.cluster.reservations import Reservation
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.model import CPU, PODS, Node, Owner, Pod, PodAnnotations
from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.scheduling.decision_step import DecisionProfile
from leadline_controller.scheduling.scaler_service import (
    MOST_REPLICAS,
    NotReadyError,
    ScalerService,
    TriggerError,
    read_trigger,
)
from leadline_controller.strategies.netsched import NetSched
from leadline_controller.strategies.response_time import ResponseTime, replicas_needed

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder
from tests.support.manual_clock import ManualClock

PING_MS = {"w1": 5.0, "w2": 20.0, "w3": 40.0, "w4": 120.0}
PROFILE_MS = dict.fromkeys(PING_MS, 10.0)
RATE = {"pods": "app=web", "requests": "requests_total", "target": "50"}
TIME = {**RATE, "metric": "response-time"}


def replica(name: str, node: str | None = None, app: str = "web", **changed: Any) -> Pod:
    annotations = PodAnnotations(
        user_node="gate",
        response_time_ms=changed.pop("response_time_ms", 100.0),
        profile_ms=PROFILE_MS,
    )
    requests = {CPU: changed.pop("cpu_milli", 1000), PODS: 1}
    return Pod(
        "default",
        name,
        uid=name,
        requests=requests,
        labels={"app": app},
        annotations=annotations,
        node_name=node,
        **changed,
    )


class Scene:
    """Five nodes of one core, of which w4 is over the threshold and gate is cordoned."""

    def __init__(self, *pods: Pod, strategy: Any = None) -> None:
        self.clock = ManualClock(1000.0)
        self.rate_per_s = 0.0
        self.state = ClusterState()
        telemetry = TelemetryBuilder("gate", *PING_MS)
        for name, rtt_ms in PING_MS.items():
            telemetry.rtt("gate", name, rtt_ms, 999.0)
        nodes = [Node(name, {CPU: 1000, PODS: 10}) for name in PING_MS]
        nodes.append(Node("gate", {CPU: 1000, PODS: 10}, unschedulable=True))
        self.state.apply(Relisted(tuple(nodes), pods))
        profile = DecisionProfile(strategy or ResponseTime(), FILTERS, Random(1))
        self.service = ScalerService(
            self.state,
            telemetry.state,
            profile,
            self.clock,
            lambda _counter, _client: self.rate_per_s,
        )

    async def value(self, metadata: Mapping[str, str], rate_per_s: float) -> float:
        self.rate_per_s = rate_per_s
        return await self.service.value(read_trigger("default", metadata))


@pytest.mark.parametrize(("rate_per_s", "value"), [(0, 0), (49, 49), (120, 120), (900, 150)])
async def test_the_rate_is_capped_at_the_target_of_all_replicas_that_can_be_placed(
    rate_per_s: float, value: float
) -> None:
    assert await Scene(replica("web-1", "w1")).value(RATE, rate_per_s) == value


async def test_replicas_that_run_do_not_take_the_room_of_those_that_are_counted() -> None:
    pods = (replica("web-1", "w1"), replica("web-2", "w2"), replica("web-3"))
    assert await Scene(*pods).value(RATE, 900) == 150


async def test_other_pods_take_their_room() -> None:
    scene = Scene(replica("web-1", "w1"), replica("db", "w2", app="db"))
    assert await scene.value(RATE, 900) == 100


async def test_room_that_is_kept_for_a_replica_counts_as_the_services_own() -> None:
    owner = Owner("ReplicaSet", "web", "uid-set")
    moved, newest = (replica(f"web-{n}", f"w{n}", owner=owner, created_s=n) for n in (1, 3))
    scene = Scene(moved, newest)
    scene.state.reserve(Reservation(moved, "w2", "w1"))
    assert await scene.value(RATE, 900) == 150


async def test_a_terminating_replica_keeps_its_room_until_it_is_gone() -> None:
    scene = Scene(replica("web-1", "w1", terminating=True), replica("web-2", "w2"))
    assert await scene.value(RATE, 900) == 100


async def test_pods_of_another_namespace_or_label_are_another_service() -> None:
    scene = Scene(replica("db", "w2", app="db"))
    assert await scene.value(RATE, 900) == 900


async def test_the_newest_pod_says_what_the_service_demands() -> None:
    scene = Scene(replica("web-1", "w1", created_s=10.0))
    scene.state.apply(PodChanged(replica("web-2", created_s=20.0, response_time_ms=35.0)))
    assert await scene.value(RATE, 900) == 100  # w1 and w2


async def test_a_node_that_comes_back_counts_a_second_later() -> None:
    scene = Scene(replica("web-1", "w1"), blocker := replica("db", "w2", app="db"))
    assert await scene.value(RATE, 900) == 100
    scene.state.apply(PodChanged(replica("db", "w2", app="db", finished=True)))
    assert blocker.name == "db"
    await scene.clock.advance(1.5)
    assert await scene.value(RATE, 900) == 150


@pytest.mark.parametrize(
    ("rate_per_s", "replicas"), [(0, 1), (80, 1), (89, 1), (120, 2), (150, 2), (260, 3), (5000, 3)]
)
async def test_the_response_time_asks_for_the_least_replicas_within_it(
    rate_per_s: float, replicas: int
) -> None:
    """Up to 89 requests a second, w1 answers within 5 + 10/(1 - 0.89) = 95.9 ms."""
    assert await Scene(replica("web-1", "w1")).value(TIME, rate_per_s) == replicas


async def test_the_response_time_needs_its_strategy_and_its_annotations() -> None:
    with pytest.raises(TriggerError, match="set strategy"):
        await Scene(replica("web-1"), strategy=NetSched()).value(TIME, 10)
    with pytest.raises(NotReadyError, match="no pod"):
        await Scene().value(TIME, 10)
    with pytest.raises(NotReadyError, match="response-time-ms"):
        await Scene(replica("web-1", response_time_ms=None)).value(TIME, 10)


async def test_before_the_cluster_is_known_there_is_no_answer() -> None:
    scene = Scene(replica("web-1"))
    scene.state.listed = False
    with pytest.raises(NotReadyError):
        await scene.value(RATE, 10)


async def test_the_number_of_decisions_is_bounded() -> None:
    scene = Scene(replica("web-1", cpu_milli=0, response_time_ms=None))
    for name in PING_MS:
        scene.state.apply(Relisted((Node(name, {CPU: 1000, PODS: 9999}),), (replica("web-1"),)))
    assert await scene.value({**RATE, "target": "0.001"}, 1e9) <= MOST_REPLICAS * 0.001


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"pods": ""}, "pods"),
        ({"pods": "app"}, "pods"),
        ({"pods": "app=web,,"}, "pods"),
        ({"pods": "app=<script>"}, "pods"),
        ({"metric": "cpu"}, "metric"),
        ({"requests": ""}, "requests"),
        ({"target": "0"}, "target"),
        ({"target": "-1"}, "target"),
        ({"target": "nan"}, "target"),
        ({"target": "inf"}, "target"),
        ({"target": "many"}, "target"),
    ],
)
def test_a_wrong_trigger_is_refused_by_its_field(changed: dict[str, str], field: str) -> None:
    with pytest.raises(TriggerError, match=f"^{field}: expected"):
        read_trigger("default", {**RATE, **changed})


def test_fields_that_keda_adds_are_no_error() -> None:
    trigger = read_trigger("shop", {**RATE, "scalerAddress": "x:1", "pods": "app=web, tier=a-b"})
    assert (trigger.namespace, trigger.labels) == ("shop", {"app": "web", "tier": "a-b"})


def test_replicas_needed_is_none_if_all_are_not_enough() -> None:
    assert replicas_needed([5.0], [10.0], 99.9, 100.0) is None
    assert replicas_needed([5.0], [10.0], 200.0, math.inf) is None
    assert replicas_needed([], [], 1.0, 100.0) is None
    assert replicas_needed([5.0, 5.0], [10.0, 1000.0], 0.0, 100.0) == 1
