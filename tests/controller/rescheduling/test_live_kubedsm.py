"""KubeDSM's suggestions and resized pods, with the controllers that moves depend on, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import Move, decide_batch, suggested_steps
from leadline_controller.framework.cycle import Filter, Rule, Strategy
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    ContainerResources,
    PendingResize,
    Pod,
)
from leadline_controller.framework.view import ClusterView
from leadline_controller.history.times import Moment
from leadline_controller.rescheduling.journal import HourlyBudgets
from leadline_controller.rescheduling.rescheduler import Mode, ReschedulingSettings
from leadline_controller.scheduling.batches import BatchPlanner, NoMoves
from leadline_controller.settings import Settings
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.shared.capacity import is_cloud
from leadline_controller.wiring import Controller, running
from leadline_experiments.kubedsm.simulation import empty_cluster, make_pod
from leadline_experiments.optimum.kubedsm import quality

from tests.controller.scheduling.harness import node
from tests.support.leadership import Leads
from tests.support.manual_clock import ManualClock
from tests.support.workload_cluster import Faults, FaultyApi, WorkloadCluster

WINDOW_S, INTERVAL_S = 0.5, 5.0
PLENTY = HourlyBudgets(100, 100, 100)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made at once, not in a thread that the manual clock does not wait for."""

    async def run(plan: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return plan(*arguments, **options)

    monkeypatch.setattr(asyncio, "to_thread", run)


class Site:
    """A controller on a cluster of two edge nodes (one core each) and the cloud."""

    def __init__(
        self, strategy: Strategy, mode: Mode, budgets: HourlyBudgets, cooldown_s: float
    ) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        nodes = [node("e1", cpu=1000), node("e2", cpu=1000), node("far", cpu=9000, tier="cloud")]
        faults = Faults(Random(1))
        self.cluster = WorkloadCluster(nodes, faults, self.clock.now_s)
        self._leads = Leads()
        settings = ReschedulingSettings(
            mode, cooldown_s=cooldown_s, timeout_s=12.0, budgets=budgets
        )
        api = FaultyApi(self.cluster, self._leads)
        whole = Settings(
            warm_up_s=0.0,
            rescheduling=settings,
            batch_window_s=WINDOW_S,
            suggest_interval_s=INTERVAL_S,
        )
        self.controller = Controller(
            whole,
            api,
            Rule(strategy, FILTERS, Random(1)),
            clock=self.clock,
            now=lambda: Moment("boot", self.clock.now_s(), 0.0),
        )

    async def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.cluster.tick()
            await self.clock.advance(1.0)

    def where(self, name: str) -> list[str | None]:
        return sorted(
            (pod.node_name for pod in self.cluster.pods_of(name)), key=lambda each: each or ""
        )

    def scale(self, name: str, replicas: int) -> None:
        key = f"default/{name}"
        self.cluster._workloads[key] = replace(self.cluster._workloads[key], replicas=replicas)

    def steps(self, step: str) -> int:
        return self.cluster.witness.steps[step]


Placed = dict[str, tuple[Pod, int]]


def at_random(
    view: ClusterView, random: Random, filters: Mapping[str, Filter]
) -> tuple[ClusterView, Placed]:
    """The paper's cluster with pods of its four services wherever they fit."""
    counts = dict(zip("ABCD", (random.randint(1, 5) for _ in range(4)), strict=True))
    pods = [make_pod(service, at) for service in counts for at in range(counts[service])]
    placed: Placed = {}
    for pod in random.sample(pods, len(pods)):
        passes = np.logical_and.reduce([run(view, pod).passes for run in filters.values()])
        placed[pod.key] = pod, random.choice(np.flatnonzero(passes).tolist())
        view = view.with_placement(*placed[pod.key])
    return view, placed


def after(view: ClusterView, placed: Placed, steps: Sequence[Move]) -> ClusterView:
    for step in steps:
        view = view.without_placement(step.pod, step.source)
        view = view.with_placement(step.pod, step.target)
        placed[step.pod.key] = step.pod, step.target
    return view


@asynccontextmanager
async def site(
    strategy: Strategy | None = None,
    mode: Mode = "automatic",
    budgets: HourlyBudgets = PLENTY,
    cooldown_s: float = 0.0,
) -> AsyncIterator[Site]:
    made = Site(strategy or KubeDsm(), mode, budgets, cooldown_s)

    async def run() -> None:
        async with running(*made.controller.placing()) as placing:
            await placing

    task = asyncio.create_task(run())
    try:
        yield made
    finally:
        task.cancel()
        await made.clock.advance(5)
        await asyncio.gather(task, return_exceptions=True)


async def with_two_in_the_cloud(made: Site) -> None:
    """d0 fills the edge and then shrinks, while two pods of d1 are in the cloud."""
    made.cluster.add_workload("d0", 4, None, scaled=True)
    await made.pass_s(4)
    assert made.where("d0") == ["e1", "e1", "e2", "e2"]
    made.cluster.add_workload("d1", 2, None, scaled=True)
    await made.pass_s(4)
    assert made.where("d1") == ["far", "far"]
    made.scale("d0", 2)


async def test_pods_come_back_from_the_cloud_when_there_is_room() -> None:
    async with site() as made:
        await with_two_in_the_cloud(made)
        await made.pass_s(40)
        assert "far" not in made.where("d0") + made.where("d1")
        assert made.steps("evict") == len(made.cluster.witness.begun) - 2 == 2


async def test_all_moves_of_a_suggestion_are_made_although_a_workload_rests_after_one() -> None:
    async with site(cooldown_s=60.0) as made:
        await with_two_in_the_cloud(made)
        await made.pass_s(50)
        assert made.where("d1") == ["far", "far"], "it rests"
        await made.pass_s(40)
        assert "far" not in made.where("d1")
        assert {ending for ending, n in made.controller.rescheduler.endings.items() if n} == {
            "moved"
        }


async def test_a_workload_whose_move_failed_rests() -> None:
    async with site(cooldown_s=20.0) as made:
        await with_two_in_the_cloud(made)
        made.cluster.never_ready = {"e1", "e2"}
        await made.pass_s(200)
        assert made.steps("evict") == 1


async def test_a_move_ends_when_the_old_pod_has() -> None:
    """Until then it has the room that the next move, or a pending pod, may need."""
    async with site() as made:
        await with_two_in_the_cloud(made)
        await made.pass_s(2)  # so that the pods of d0 are gone
        made.cluster.lingers = True
        while not made.steps("evict"):
            await made.pass_s(1)
        await made.pass_s(10)
        assert made.steps("evict") == 1
        assert made.controller.rescheduler.is_busy
        made.cluster.lingers = False
        await made.pass_s(40)
        assert "far" not in made.where("d1")


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("seed", [0, 5, 8, 12, 24, 38])
def test_a_batch_moves_nothing_that_gains_nothing(seed: int, *, is_awaited: bool) -> None:
    random, view, strategy = Random(seed), empty_cluster(), KubeDsm()
    rule = Rule(strategy, FILTERS, random)
    planner: Any = BatchPlanner(ClusterState(), rule, NoMoves())
    view, running = at_random(view, random, rule.filters)
    waits = replace(make_pod("A", 99), node_selector={"nowhere": "true"} if is_awaited else {})
    plans, anywhere = 0, view.table.all()
    while True:
        _, steps = planner._plan(view, [waits], list(running.values()), lambda _: anywhere)
        if not steps:
            return
        plans += 1
        assert plans < 10
        view = after(view, running, steps)


@pytest.mark.parametrize("room", ["free", "capacity"])
@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 40))]
)
def test_suggestions_come_to_an_end(seed: int, room: str) -> None:
    """Where pods can only change places by way of the cloud, or where match leaves out the pod for
    which another has left, a suggestion may gain nothing."""
    random, view, strategy = Random(seed), empty_cluster(), KubeDsm(room=room)
    rule = Rule(strategy, FILTERS, random)
    view, running = at_random(view, random, rule.filters)
    suggestions = 0
    while steps := suggested_steps(view, list(running.values()), rule):
        suggestions += 1
        assert suggestions < 10, [step.pod.key for step in steps]
        view = after(view, running, steps)


@pytest.mark.slow
def test_in_a_shortage_pods_leave_the_edge_if_told_so_and_only_where_quality_gains() -> None:
    """Suggestions for 40 drawn clusters, with the free room of the edge and with its capacity."""
    sent = 0
    for seed in range(40):
        found = {}
        for room in ("free", "capacity"):
            random, strategy = Random(seed), KubeDsm(room=room)
            rule = Rule(strategy, {"NodeResourcesFit": FILTERS["NodeResourcesFit"]}, random)
            view, running = at_random(empty_cluster(), random, rule.filters)
            pods, names = [pod for pod, _ in running.values()], view.table.names
            _, plan, _ = decide_batch(view, [], list(running.values()), rule)
            nodes = {key: names[node] for key, (_, node) in running.items()}
            nodes |= {move.pod.key: names[move.target] for move in plan.moves}
            left = [move for move in plan.moves if is_cloud(view)[move.target]]
            found[room] = quality(view, pods, strategy, nodes), left
            came = {move.pod.key for move in plan.moves if is_cloud(view)[move.source]}
            assert all(set(move.room_for) == came for move in left), seed
        (free, none), (capacity, left) = found.values()
        sent += bool(left)
        assert none == [], seed
        assert capacity > free + 1e-9 if left else capacity >= free - 1e-9, seed
    assert sent == 21


@pytest.mark.parametrize("seed", range(10))
def test_pods_that_never_wait_are_placed_without_migration(seed: int) -> None:
    random = Random(seed)
    view, running = at_random(empty_cluster(), random, FILTERS)
    new = [make_pod(random.choice("ABCD"), 90 + number) for number in range(3)]

    def plan(pods: Sequence[Pod], **options: Any) -> tuple[Mapping[str, int], list[object]]:
        rule = Rule(KubeDsm(room="capacity", **options), FILTERS, Random(seed))
        _, made, _ = decide_batch(view, pods, list(running.values()), rule)
        return made.placed, [(move.pod.key, move.target) for move in made.moves]

    assert plan(new, new_pods="never-wait") == plan(new, suggest=0)
    assert plan([], new_pods="never-wait") == plan([])
    assert plan([replace(pod, gated=True) for pod in new]) == ({}, []), (
        "without a pod to place it is no suggestion either"
    )


@pytest.mark.parametrize("mode", ["off", "manual"])
async def test_nothing_moves_by_itself_unless_it_is_automatic(mode: Mode) -> None:
    async with site(mode=mode) as made:
        await with_two_in_the_cloud(made)
        await made.pass_s(40)
        assert made.where("d1") == ["far", "far"]
        assert made.steps("evict") == 0


async def test_a_pause_holds_suggestions_back() -> None:
    async with site() as made:
        await with_two_in_the_cloud(made)
        await made.controller.rescheduler.pause(None, "not now")
        await made.pass_s(30)
        assert made.where("d1") == ["far", "far"]
        await made.controller.rescheduler.resume()
        await made.pass_s(40)
        assert "far" not in made.where("d1")


async def test_a_suggestion_that_exceeds_a_budget_is_not_begun_in_part() -> None:
    async with site(budgets=HourlyBudgets(workload=1, node=9, cluster=9)) as made:
        await with_two_in_the_cloud(made)
        await made.pass_s(40)
        assert made.where("d1") == ["far", "far"]
        assert made.steps("evict") == 0


async def test_a_step_that_fails_cancels_those_after_it_and_no_pod_is_lost() -> None:
    async with site() as made:
        await with_two_in_the_cloud(made)
        made.cluster.never_ready = {"e1", "e2"}  # no replacement becomes ready there
        await made.pass_s(12)
        assert made.steps("evict") == 1
        await made.pass_s(30)
        assert made.controller.suggestions is not None
        made.cluster.never_ready = set()
        await made.pass_s(60)
        assert [len(made.cluster.pods_of(name)) for name in ("d0", "d1")] == [2, 2]
        assert made.cluster.healthy("d0") + made.cluster.healthy("d1") == 4
        assert "far" not in made.where("d1")


@pytest.mark.parametrize("new_pods", ["may-wait", "never-wait"])
async def test_a_batch_waits_for_the_pods_that_make_room_for_it_unless_it_never_waits(
    new_pods: str,
) -> None:
    """d0 fills the edge and asks for nothing of it; d1 asks for all of its pods there."""
    async with site(KubeDsm(room="capacity", qos_target=0.0, new_pods=new_pods)) as made:
        made.cluster.add_workload("d0", 4, None, scaled=True)
        await made.pass_s(6)
        waits = []

        def put(pod: Pod) -> Pod:
            wanted = replace(
                pod.annotations, qos_edge_ratio=1.0 if pod.labels.get("app") == "d1" else None
            )
            return original(replace(pod, annotations=wanted))

        original = made.cluster.put_pod
        made.cluster.put_pod = put  # type: ignore[method-assign]
        made.cluster.add_workload("d1", 1, None, scaled=True)
        for _ in range(30):
            await made.pass_s(1)
            waits.append((made.where("d1"), made.where("d0").count("far")))
        assert waits[-1] == ([waits[-1][0][0]], 1)
        assert waits[-1][0][0] in ("e1", "e2")
        placed = next(at for at, (d1, _) in enumerate(waits) if d1 and d1[0])
        was_in_cloud = waits[placed][0] == ["far"]
        assert was_in_cloud == (new_pods == "never-wait")
        assert not was_in_cloud or placed <= 1, "the suggester brings it later"
        assert made.cluster.healthy("d0") == 4


async def test_a_resized_pod_moves_to_where_it_fits_and_is_resized_there() -> None:
    async with site(Dacs()) as made:
        far = made.cluster.nodes[2]
        made.cluster.put_node(replace(far, unschedulable=True))
        made.cluster.add_workload("d0", 1, None, scaled=True)
        await made.pass_s(5)
        made.cluster.put_node(far)
        (pod,) = made.cluster.pods_of("d0")
        held = {CPU: 500, MEMORY: 2**20, PODS: 1}
        wanted = {**held, CPU: 3000}
        asks = (ContainerResources("main", {"cpu": "3"}),)
        resized = PendingResize("Deferred", held, wanted, asks)
        made.cluster.put_pod(replace(pod, requests=wanted, resize=resized))
        await made.pass_s(20)
        (moved,) = made.cluster.pods_of("d0")
        assert (moved.node_name, moved.requests[CPU]) == ("far", 3000)
        assert moved.uid != pod.uid
        assert (made.steps("evict"), made.steps("resize")) == (1, 1)
        await made.pass_s(120)
        assert made.steps("evict") == 1, "it stays there"
