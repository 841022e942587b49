"""A batch strategy on a cluster in memory: collected by a window, planned together, and pods that
wait for moves of others."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from leadline_controller.framework.batch import (
    Allowed,
    BatchPlan,
    BatchStrategy,
    MayGo,
    Move,
    Running,
)
from leadline_controller.framework.cycle import Better, Scores
from leadline_controller.framework.model import Pod, PodAnnotations
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.scheduling.batches import MOST_IN_BATCH
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.kubedsm import KubeDsm

from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod

WINDOW_S = 0.5


@dataclass(frozen=True)
class Planned(BatchStrategy):
    """Follows the test's plan; a pod alone goes to the first node that fits."""

    name: ClassVar[str] = "planned"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "a test"
    needs: ClassVar[tuple[str, ...]] = ()

    placed: dict[str, int] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        total = -candidates.astype(np.float64)
        return Scores(candidates, total, np.array([0]), lambda _: "alone")

    def plan(
        self,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
    ) -> BatchPlan:
        self.batches.append([each.name for each in pending])
        if self.errors:
            raise self.errors.pop()
        wanted = {each.key for each in pending}
        placed = {key: at for key, at in self.placed.items() if key in wanted}
        moves = [move for move in self.moves if wanted.intersection(move.room_for)]
        return BatchPlan(placed, tuple(m for m in moves if allowed(m.pod)[m.target]))


class ByHand:
    """Moves that the test carries out."""

    def __init__(self, *, may_move: bool = True) -> None:
        self._may_move = may_move
        self.begun: list[list[str]] = []
        self.done: asyncio.Future[bool] | None = None

    def may_go(self, view: ClusterView) -> MayGo:
        return lambda _: view.table.all() if self._may_move else view.table.none()

    def have_moved(self, view: ClusterView, moves: Sequence[Move]) -> "asyncio.Future[bool]":
        self.begun.append([move.pod.name for move in moves])
        self.done = asyncio.get_running_loop().create_future()
        return self.done


def harness_of(
    cluster: CountingCluster, strategy: BatchStrategy, moves: ByHand | None = None, **options: Any
) -> SchedulerHarness:
    made = SchedulerHarness(cluster, strategy=strategy, **{"batch_window_s": WINDOW_S, **options})
    if moves is not None:
        made.scheduler = Scheduler(
            cluster, made.step, moves=moves, **{"batch_window_s": WINDOW_S, **options}
        )
    return made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made at once, not in a thread that the manual clock does not wait for."""

    async def run(plan: Callable[..., Any], *arguments: Any) -> Any:
        return plan(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", run)


async def pass_time(harness: SchedulerHarness, duration_s: float = 0.0) -> None:
    await harness.clock.advance(duration_s)
    await harness.clock.advance(0)


async def test_pods_that_come_within_the_window_are_planned_together() -> None:
    cluster = CountingCluster([node("a"), node("b")], [pod("p")])
    strategy = Planned(placed={"default/p": 1, "default/q": 1})
    harness = harness_of(cluster, strategy)
    async with harness.running():
        await pass_time(harness, 0.3)
        cluster.put_pod(pod("q"))
        await pass_time(harness, 0.1)
        assert (strategy.batches, cluster.bound) == ([], {})
        await pass_time(harness, 0.2)
        assert strategy.batches == [["p", "q"]]
        assert harness.where() == {"p": "b", "q": "b"}
        cluster.put_pod(pod("r"))
        await pass_time(harness, WINDOW_S)
        assert strategy.batches == [["p", "q"], ["r"]]
        assert harness.where()["r"] == "a", "without a plan it is decided on alone"


async def test_without_a_window_or_a_batch_strategy_pods_are_decided_one_by_one() -> None:
    for strategy, window_s in ((KubeDsm(), 0.0), (KubeDefault(), WINDOW_S)):
        cluster = CountingCluster([node("a")], [pod("p")])
        harness = SchedulerHarness(cluster, strategy=strategy, batch_window_s=window_s)
        async with harness.running():
            assert harness.where() == {"p": "a"}


async def test_a_pod_that_goes_or_changes_during_the_window_is_seen_as_it_is() -> None:
    cluster = CountingCluster([node("a", cpu=1000), node("b")], [pod("p"), pod("q")])
    strategy = Planned(placed={"default/q": 0})
    harness = harness_of(cluster, strategy)
    async with harness.running():
        await pass_time(harness, 0.1)
        cluster.remove_pod("default/p")
        cluster.put_pod(replace(pod("q", cpu=2000)))
        await pass_time(harness, WINDOW_S)
        assert strategy.batches == [["q"]]
        assert harness.where() == {"q": "b"}, "it no longer fits where it was planned"


async def test_a_batch_has_a_limit_and_the_rest_is_the_next_one() -> None:
    pods = [pod(f"p{i:03}", cpu=1) for i in range(MOST_IN_BATCH + 3)]
    strategy = Planned()
    harness = harness_of(CountingCluster([node("a", pods=1000)], pods), strategy)
    async with harness.running():
        await pass_time(harness, WINDOW_S)
        await pass_time(harness, WINDOW_S)
        assert [len(batch) for batch in strategy.batches] == [MOST_IN_BATCH, 3]
        assert set(harness.where().values()) == {"a"}


async def test_if_the_strategy_fails_its_pods_are_placed_one_by_one() -> None:
    strategy = Planned(errors=[ValueError("odd")], placed={"default/p": 1})
    harness = harness_of(CountingCluster([node("a"), node("b")], [pod("p")]), strategy)
    async with harness.running():
        await pass_time(harness, WINDOW_S)
        assert harness.where() == {"p": "a"}


def full_edge() -> tuple[CountingCluster, Planned, Pod]:
    """Node a is full with a pod that could go to b; p is planned for its place, q for c."""
    there = pod("there", cpu=1000, node_name="a", scheduler_name="another")
    nodes = [node("a", cpu=1000), node("b", cpu=1000), node("c", cpu=2000)]
    cluster = CountingCluster(nodes, [there, pod("p", cpu=1000), pod("q", cpu=500)])
    move = Move(there, 0, 1, "makes room", room_for=("default/p",))
    return cluster, Planned({"default/p": 0, "default/q": 2}, [move]), there


async def test_a_pod_waits_for_the_moves_that_make_room_and_others_do_not() -> None:
    cluster, strategy, there = full_edge()
    moves = ByHand()
    harness = harness_of(cluster, strategy, moves)
    async with harness.running():
        await pass_time(harness, WINDOW_S)
        assert moves.begun == [["there"]]
        assert harness.where() == {"there": "a", "p": None, "q": "c"}
        await pass_time(harness, 70)  # longer than an unschedulable pod waits
        assert harness.where()["p"] is None
        (waits,) = harness.events("p")
        assert (waits.type, waits.reason) == ("Normal", "WaitingForMoves")
        assert waits.message.startswith("a is planned for it, after 1 moves that make room")

        cluster.put_pod(replace(there, node_name="b"))
        await pass_time(harness)
        cluster.put_pod(pod("thief", cpu=1000))
        await pass_time(harness, WINDOW_S)
        assert harness.where()["thief"] == "c", "the room on a is kept"
        assert moves.done is not None
        moves.done.set_result(True)
        await pass_time(harness)
        assert harness.where()["p"] == "a"
        cluster.remove_pod("default/p")
        cluster.put_pod(pod("next", cpu=1000))
        await pass_time(harness, WINDOW_S)
        assert harness.where()["next"] == "a", "nothing is kept any more"


async def test_if_a_move_fails_the_pod_goes_where_it_can_alone() -> None:
    cluster, strategy, _ = full_edge()
    moves = ByHand()
    harness = harness_of(cluster, strategy, moves)
    async with harness.running():
        await pass_time(harness, WINDOW_S)
        assert moves.done is not None
        moves.done.set_result(False)
        await pass_time(harness, WINDOW_S)
        assert harness.where()["p"] in ("b", "c")
        assert len(moves.begun) == 1, "it does not wait for the same moves again"
        cluster.put_pod(pod("next", cpu=1000))
        await pass_time(harness, WINDOW_S)
        assert harness.where()["next"] in ("b", "c")


async def test_moves_that_never_end_hold_a_pod_for_a_limited_time() -> None:
    cluster, strategy, _ = full_edge()
    harness = harness_of(cluster, strategy, ByHand())
    async with harness.running():
        await pass_time(harness, WINDOW_S)
        assert harness.where()["p"] is None
        await pass_time(harness, 3600.0)
        await pass_time(harness, WINDOW_S)
        assert harness.where()["p"] in ("b", "c")


async def test_the_end_of_the_controller_waits_for_no_move() -> None:
    cluster, strategy, _ = full_edge()
    moves = ByHand()
    harness = harness_of(cluster, strategy, moves)
    async with asyncio.timeout(90):
        async with harness.running():
            await pass_time(harness, WINDOW_S)
            assert moves.done is not None
            assert not moves.done.done()
    assert harness.where()["p"] is None


async def test_a_waiting_pod_may_be_deleted() -> None:
    cluster, strategy, there = full_edge()
    moves = ByHand()
    harness = harness_of(cluster, strategy, moves)
    async with harness.running():
        await pass_time(harness, WINDOW_S)
        cluster.remove_pod("default/p")
        cluster.put_pod(replace(there, node_name="b"))
        await pass_time(harness)
        cluster.put_pod(pod("next", cpu=1000))
        assert moves.done is not None
        moves.done.set_result(True)
        await pass_time(harness, WINDOW_S)
        await pass_time(harness, 70)
        assert harness.where()["next"] in ("a", "c")
        cluster.put_pod(pod("last", cpu=1000))
        await pass_time(harness, WINDOW_S)
        assert harness.where()["last"] is not None


async def test_without_a_rescheduler_nobody_moves_and_nobody_waits() -> None:
    for moves in (None, ByHand(may_move=False)):
        cluster, strategy, _ = full_edge()
        harness = harness_of(cluster, strategy, moves)
        async with harness.running():
            await pass_time(harness, WINDOW_S)
            assert harness.where()["p"] in ("b", "c")
            assert moves is None or moves.begun == []


@pytest.mark.parametrize("window_s", [0.0, WINDOW_S])
async def test_kubedsm_packs_a_batch_better_than_pod_by_pod(window_s: float) -> None:
    """Two of two cores and two of one: pod by pod the small ones take the large one's place."""
    sizes = {"s1": 1000, "s2": 1000, "l1": 2000, "l2": 2000}
    pods = [pod(name, cpu=cpu, labels={"app": name}) for name, cpu in sizes.items()]
    nodes = [node("e1", cpu=3000), node("e2", cpu=3000), node("far", cpu=32000, tier="cloud")]
    harness = SchedulerHarness(
        CountingCluster(nodes, pods), strategy=KubeDsm(suggest=0), batch_window_s=window_s
    )
    async with harness.running():
        await pass_time(harness, WINDOW_S)
    on_edge = [name for name, where in harness.where().items() if where != "far"]
    assert len(on_edge) == (4 if window_s else 3)


async def test_kubedsm_keeps_the_share_that_a_service_asks_for() -> None:
    """Room for four of eight: the service that asks for all of its pods has them on the edge."""

    def of(service: str, share: float) -> Mapping[str, Any]:
        return {"labels": {"app": service}, "annotations": PodAnnotations(qos_edge_ratio=share)}

    pods = [
        pod(f"{service}{i}", cpu=1000, **of(service, share))
        for i in range(4)
        for service, share in (("low", 0.0), ("all", 1.0))
    ]
    nodes = [node("e1", cpu=4000), node("far", cpu=32000, tier="cloud")]
    harness = harness_of(CountingCluster(nodes, pods), KubeDsm(suggest=0))
    async with harness.running():
        await pass_time(harness, WINDOW_S)
    on_edge = sorted(name for name, where in harness.where().items() if where == "e1")
    assert on_edge == ["all0", "all1", "all2", "all3"]
