"""Within one run, a live controller decides as `leadline score` does."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, assume, decide
from leadline_controller.framework.model import CPU, MEMORY, PODS, Pod, PodAnnotations
from leadline_controller.framework.options import build
from leadline_controller.framework.ports import UnavailableError
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.chance import Chance
from leadline_controller.strategies.dacs import Dacs

from tests.controller.extender.harness import (
    ExtenderHarness,
    binding,
    extender_args,
    nodes_with_mbps,
    pod_manifest,
)
from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod
from tests.controller.scheduling.paper_cluster import OPTIONS, SCENARIOS, offline, online
from tests.support.manual_clock import ManualClock

WORKERS = ("n1", "n2", "n3")
PAPER = {
    (2, "dacs 0.25"): [3, 1, 2],
    (2, "dacs 0.5"): [3, 2, 1],
    (2, "tsra"): [4, 1, 1],
    (2, "elasticfog"): [2, 2, 2],
    (2, "kcss"): [0, 3, 3],
    (1, "dacs 0.25"): [3, 4, 3],
}


async def placed_live(harness: SchedulerHarness) -> dict[str, str | None]:
    async with harness.running():
        await harness.clock.advance(0.5)
    return harness.where()


def harness_of(number: int, strategy: str) -> SchedulerHarness:
    nodes, pods, telemetry = online(SCENARIOS[number])
    name = strategy.partition(" ")[0]
    return SchedulerHarness(
        CountingCluster(nodes, pods),
        strategy=build(STRATEGIES[name], OPTIONS[strategy]),
        telemetry=telemetry,
    )


@pytest.mark.parametrize("number", SCENARIOS)
@pytest.mark.parametrize("strategy", OPTIONS)
async def test_live_placements_are_those_of_leadline_score(number: int, strategy: str) -> None:
    harness = harness_of(number, strategy)
    live = await placed_live(harness)
    view, pods = offline(SCENARIOS[number])
    rule = Rule(harness.step.rule.strategy, FILTERS, Random(7))
    uids = {each.name: each.uid for each in online(SCENARIOS[number])[1]}
    for each in pods:
        rule.draw_for(replace(each, uid=uids[each.name]), harness.step.seed)
        decision = decide(view, each, rule)
        assert decision.node == live[each.name], each.name
        view = assume(view, decision, rule.strategy)
    if (expected := PAPER.get((number, strategy))) is not None:
        counts = Counter(live[pod.name] for pod in pods)
        assert [counts[name] for name in WORKERS] == expected


def free_cpu(harness: SchedulerHarness) -> tuple[int, int]:
    """Thousandths of a core of the only node: unrequested, and free for a strategy."""
    view = harness.state.view(harness.telemetry, harness.clock.now_s())
    return int(view.unrequested(CPU)[0]), int(view.free(CPU)[0])


async def test_a_run_charges_what_dacs_grants_until_a_second_without_a_decision() -> None:
    cluster = CountingCluster([node("n1", cpu=4000)], [pod("a", cpu=500)])
    harness = SchedulerHarness(cluster, strategy=Dacs())
    async with harness.running():
        assert free_cpu(harness) == (3500, 2000)  # phi times the residual
        await harness.clock.advance(0.9)
        cluster.put_pod(pod("b", cpu=500))
        await harness.clock.advance(0)
        assert free_cpu(harness) == (3000, 1000)
        await harness.clock.advance(1.1)
        assert free_cpu(harness) == (3000, 1000)  # nobody decides, so nothing changes
        cluster.put_pod(pod("c", cpu=500))
        await harness.clock.advance(0)
        assert free_cpu(harness) == (2500, 1500)  # phi times 3000, of which requests are 500


async def test_a_filter_never_counts_a_charge() -> None:
    """Ten pods that each get half of what is left fit as long as their requests do."""
    cluster = CountingCluster([node("n1", cpu=1000)], [pod(f"p{i}", cpu=100) for i in range(11)])
    harness = SchedulerHarness(cluster, strategy=Dacs())
    live = await placed_live(harness)
    assert Counter(live.values()) == {"n1": 10, None: 1}


@pytest.mark.parametrize("how", ["deleted", "finished", "binding failed"])
async def test_a_charge_goes_with_its_pod(how: str) -> None:
    cluster = CountingCluster([node("n1", cpu=4000)], [pod("a", cpu=500)])
    if how == "binding failed":
        cluster.fail_next_bind(UnavailableError("away"))
    harness = SchedulerHarness(cluster, strategy=Dacs())
    async with harness.running():
        await harness.clock.advance(0.1)
        if how == "deleted":
            cluster.remove_pod("default/a")
        elif how == "finished":
            cluster.put_pod(replace(cluster.pod("default/a"), finished=True))
        await harness.clock.advance(0)
        assert free_cpu(harness) == (4000, 4000)


async def test_after_a_restart_a_run_begins_anew_with_requests_only() -> None:
    cluster = CountingCluster([node("n1", cpu=4000)], [pod("a", cpu=500)])
    first = SchedulerHarness(cluster, strategy=Dacs())
    async with first.running():
        assert free_cpu(first) == (3500, 2000)
    again = SchedulerHarness(cluster, strategy=Dacs(), clock=ManualClock())
    async with again.running():
        assert free_cpu(again) == (3500, 3500)
        view = again.state.view(again.telemetry, 0.0)
        assert view.placed_in_run.tolist() == [0]


async def test_a_pod_bound_elsewhere_counts_there_with_its_requests() -> None:
    cluster = CountingCluster([node("n1"), node("n2")], [one := pod("a", cpu=500)])
    harness = SchedulerHarness(cluster, strategy=Dacs(), filters={})
    cluster.gate.clear()
    async with harness.running():
        await harness.clock.advance(0)
        view = harness.state.view(harness.telemetry, 0.0)
        (chosen,) = view.placed_in_run.nonzero()[0]
        assert view.free(CPU)[chosen] == 2000
        other = view.table.names[1 - chosen]
        cluster.put_pod(replace(one, node_name=other))
        await harness.clock.advance(0)
        view = harness.state.view(harness.telemetry, 0.0)
        assert view.placed_in_run[chosen] == 0
        assert view.free(CPU)[chosen] == 4000
        assert view.free(CPU)[1 - chosen] == view.unrequested(CPU)[1 - chosen] == 3500


@pytest.mark.parametrize("strategy", list(STRATEGIES))
async def test_a_user_at_an_unknown_node_counts_as_none_with_a_warning(strategy: str) -> None:
    lost = Pod(
        "default",
        "lost",
        "uid-lost",
        {CPU: 100, MEMORY: 2**20, PODS: 1},
        annotations=PodAnnotations(user_node="mars", data_mb=1.0, deadline_s=10.0),
    )
    harness = SchedulerHarness(
        CountingCluster([node("n1"), node("n2")], [lost]), strategy=STRATEGIES[strategy]()
    )
    async with harness.running():
        await harness.clock.advance(6)
    assert harness.where()["lost"] is not None
    warning, scheduled = sorted(harness.events("lost"), key=lambda event: event.type != "Warning")
    assert (warning.type, warning.reason) == ("Warning", "UnknownUserNode")
    assert "the cluster has no node 'mars'" in warning.message
    assert warning.message in scheduled.message


async def test_an_annotation_that_means_nothing_gets_a_warning() -> None:
    requests, warnings = {CPU: 100, MEMORY: 2**20, PODS: 1}, ("annotation x means nothing: did",)
    typo = Pod("default", "typo", "uid-typo", requests, warnings=warnings)
    harness = SchedulerHarness(CountingCluster([node("n1")], [typo]))
    async with harness.running():
        await harness.clock.advance(6)
    warning, scheduled = sorted(harness.events("typo"), key=lambda event: event.type != "Warning")
    assert (warning.type, warning.reason) == ("Warning", "UnknownAnnotation")
    assert warning.message in scheduled.message


async def test_a_pod_that_is_tried_again_is_warned_once() -> None:
    requests, warnings = {CPU: 9000, PODS: 1}, ("annotation x means nothing", "label y, too")
    typo = Pod("default", "typo", "uid-typo", requests, warnings=warnings)
    harness = SchedulerHarness(CountingCluster([node("n1")], [typo]))
    async with harness.running():
        await harness.clock.advance(2)
        harness.cluster.put_node(node("n2"))
        await harness.clock.advance(60)
    counts = {seen.event.message: seen.count for seen in harness.cluster.events}
    assert [counts.pop(each) for each in warnings] == [1, 1]
    assert len(counts) == 2, "FailedScheduling of two tries"


@pytest.mark.parametrize("is_bound", [False, True])
async def test_the_extender_charges_a_pod_where_it_is_expected_or_bound(is_bound: bool) -> None:
    """kube-scheduler may take another node than Leadline's choice."""
    harness = ExtenderHarness(nodes_with_mbps(100, 10))
    harness.list()
    there = harness.put("web")
    asked = extender_args(pod_manifest("web"), ["n1", "n2"])
    priorities = harness.extender_service.prioritize(asked)
    best, other = sorted(priorities, key=lambda name: -priorities[name])
    if is_bound:
        await harness.extender_service.bind(binding(there, other))
    view = harness.state.view(harness.telemetry, 0.0)
    at, elsewhere = (view.table.index[each] for each in (other, best)[:: 1 if is_bound else -1])
    assert (view.free(CPU)[at], view.unrequested(CPU)[at]) == (2000, 3900)
    assert view.free(CPU)[elsewhere] == 4000


@pytest.mark.parametrize("before", [0, 3])
async def test_chance_decides_on_a_pod_whatever_was_drawn_for_others(before: int) -> None:
    """So that a recorded decision can be made again."""
    nodes = [node(f"n{at:02}") for at in range(40)]
    harness = SchedulerHarness(CountingCluster(nodes, [pod("late")]), strategy=Chance())
    for _ in range(before):
        harness.step.rule.random.random()
    async with harness.running():
        await harness.clock.advance(0.5)
    rule = Rule(Chance(), FILTERS)
    rule.draw_for(pod("late"), harness.step.seed)
    assert harness.where()["late"] == nodes[rule.random.randrange(len(nodes))].name
    assert rule.random.getstate() == harness.step.rule.random.getstate()
