"""How many replicas KEDA is told, by rate and by response time: never more than can be placed."""

import math

import pytest
from leadline_controller.cluster.reservations import Reservation
from leadline_controller.framework.model import CPU, PODS, Node, Owner, Pod
from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.keda.scaler import MOST_REPLICAS, NotReadyError, TriggerError, read_trigger
from leadline_controller.strategies.netsched import NetSched
from leadline_controller.strategies.response_time import replicas_needed

from tests.controller.keda.scene import PING_MS, RATE, TIME, Scene, replica


@pytest.mark.parametrize(("rate_per_s", "value"), [(0, 0), (49, 49), (120, 120), (900, 150)])
async def test_the_rate_is_capped_at_the_target_of_all_replicas_that_can_be_placed(
    rate_per_s: float, value: float
) -> None:
    assert await Scene(replica("web-1", "w1")).value(RATE, rate_per_s) == value


@pytest.mark.parametrize(
    ("pods", "value"),
    [
        # Replicas that run do not take the room of those that are counted; other pods do.
        ((replica("web-1", "w1"), replica("web-2", "w2"), replica("web-3")), 150),
        ((replica("web-1", "w1"), replica("db", "w2", app="db")), 100),
        # A terminating replica keeps its room until it is gone.
        ((replica("web-1", "w1", terminating=True), replica("web-2", "w2")), 100),
        # Pods of another namespace or label are another service.
        ((replica("db", "w2", app="db"),), 900),
    ],
)
async def test_pods_take_room_from_the_replicas_that_can_be_placed(
    pods: tuple[Pod, ...], value: float
) -> None:
    assert await Scene(*pods).value(RATE, 900) == value


async def test_room_that_is_kept_for_a_replica_counts_as_the_services_own() -> None:
    owner = Owner("ReplicaSet", "web", "uid-set")
    moved, newest = (replica(f"web-{n}", f"w{n}", owner=owner, created_s=n) for n in (1, 3))
    scene = Scene(moved, newest)
    scene.state.reserve(Reservation(moved, "w2", "w1"))
    assert await scene.value(RATE, 900) == 150


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
    one = ("n1", 5.0, 10.0, 0.0)
    assert replicas_needed([one], 99.9, 100.0) is None
    assert replicas_needed([one], 200.0, math.inf) is None
    assert replicas_needed([], 1.0, 100.0) is None
    assert replicas_needed([one, ("n2", 5.0, 1000.0, 0.0)], 0.0, 100.0) == 1


def test_replicas_on_one_board_serve_no_more_than_its_cores() -> None:
    # 10 ms on one core are 100 requests a second, however many replicas share it.
    sharing = [("n1", 5.0, 10.0, 10.0 * others) for others in range(5)]
    assert replicas_needed(sharing, 99.0, 100.0) is None
    assert replicas_needed([*sharing[:2], ("n2", 5.0, 10.0, 0.0)], 99.0, 100.0) == 3
    # Processor sharing: 10 / (1 - 0.5) ms at half its load, with two replicas as with one.
    assert replicas_needed(sharing[:1], 50.0, 25.0) == replicas_needed(sharing, 50.0, 25.0) == 1
