"""The programme's optimum beside every placement there is, with the delays written out again."""

from itertools import product
from math import inf, sqrt
from random import Random

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, decide_in_turn
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    HostPort,
    Link,
    Node,
    Pod,
    PodAnnotations,
)
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.dacs import Dacs
from leadline_experiments.optimum.dacs import Delays, best

from tests.controller.builders import GIB, node, view

RTT_MS = {(0, 1): 40.0, (0, 2): 90.0, (1, 2): 200.0}
CORES = (1.2, 2.1, 3.0)  # that any six pods can share in whole thousandths
DACS = Dacs(alpha=0.6, beta_cs=0.01, beta_rc=0.02)


def cluster(random: Random) -> ClusterView:
    nodes = [
        node(f"n{i}", cores=random.choice(CORES), gib=random.choice([1, 2]), bandwidth_mbps=50)
        for i in range(3)
    ]
    links = [Link(f"n{a}", f"n{b}", rtt_ms) for (a, b), rtt_ms in RTT_MS.items()]
    return view(nodes, links=links)


def some_pod(random: Random, number: int) -> Pod:
    cpu = random.choice([200, 500, 900])
    limits = {} if random.random() < 0.5 else {CPU: cpu + random.choice([0, 300])}
    return Pod(
        "default",
        f"p{number}",
        requests={CPU: cpu, MEMORY: random.choice([GIB // 4, GIB // 2]), PODS: 1},
        limits=limits,
        annotations=PodAnnotations(
            user_node=f"n{random.randrange(3)}",
            data_mb=random.choice([0.5, 2.0]),
            bandwidth_mbps=random.choice([5.0, 20.0]),
        ),
    )


def fits(nodes: tuple[Node, ...], pods: list[Pod], places: tuple[int, ...]) -> bool:
    for i, each in enumerate(nodes):
        here = [pod for pod, place in zip(pods, places, strict=True) if place == i]
        if sum(pod.annotations.bandwidth_mbps or 0 for pod in here) > (each.bandwidth_mbps or 0):
            return False
        for resource in (CPU, MEMORY, PODS):
            if sum(pod.requests[resource] for pod in here) > each.allocatable[resource]:
                return False
    return True


def delay_s(nodes: tuple[Node, ...], pods: list[Pod], places: tuple[int, ...]) -> float:
    """Eq. 3, 8-13 and 18, pod by pod."""
    total = 0.0
    for i, each in enumerate(nodes):
        here = [pod for pod, place in zip(pods, places, strict=True) if place == i]
        rtts = [ms for pair, ms in RTT_MS.items() if i in pair]
        mean = sum(rtts) / 2
        sigma = sqrt(sum(ms**2 for ms in rtts) / 2 - mean**2)
        for beside, pod in enumerate(here):
            residual = each.allocatable[CPU]
            limit = min(pod.limits.get(CPU, inf), residual / len(here))
            cores = max(pod.requests[CPU], min(DACS.phi * residual, limit)) / 1000
            data_mb = pod.annotations.data_mb or 0
            processing = data_mb / cores
            network = data_mb * 8 / (pod.annotations.bandwidth_mbps or 0)
            user = int((pod.annotations.user_node or "n")[1:])
            if user != i:
                network += (RTT_MS[min(user, i), max(user, i)] + sigma) / 2000
            total += DACS.alpha * processing + (1 - DACS.alpha) * network
            if beside:
                total += DACS.beta_cs + 2 ** (beside - 1) * DACS.beta_rc
    return total / len(pods)


@pytest.mark.parametrize("seed", range(12))
def test_no_placement_is_better_than_the_optimum(seed: int) -> None:
    random = Random(seed)
    cluster_view = cluster(random)
    pods = [some_pod(random, i) for i in range(random.choice([1, 4, 6]))]
    nodes = cluster_view.nodes
    everywhere = product(range(3), repeat=len(pods))
    worth = [delay_s(nodes, pods, at) for at in everywhere if fits(nodes, pods, at)]
    found = best(cluster_view, pods, DACS, FILTERS)
    if not worth:
        assert (found.status, found.placement) == ("infeasible", {})
        return
    places = tuple(cluster_view.table.index[found.placement[pod.key]] for pod in pods)
    assert (found.status, found.gap) == ("optimal", 0.0)
    assert fits(nodes, pods, places)
    assert found.value == pytest.approx(min(worth), rel=1e-9)
    assert delay_s(nodes, pods, places) == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_no_strategy_beats_the_optimum(seed: int) -> None:
    random = Random(seed)
    cluster_view, pods = cluster(random), [some_pod(random, i) for i in range(4)]
    found = best(cluster_view, pods, DACS, FILTERS)
    for name, strategy in STRATEGIES.items():
        placed = decide_in_turn(cluster_view, pods, Rule(strategy(), FILTERS, Random(seed)))
        placed_pods = {made.pod.key: made.node for made, _ in placed if made.node is not None}
        value_s = Delays.of(cluster_view, pods, DACS).average_s(placed_pods)
        if value_s is not None:
            assert found.value <= value_s + 1e-9, name
        else:
            assert len(placed_pods) < len(pods), name
            assert found.status in ("optimal", "infeasible")


def test_equal_pods_are_spread_over_equal_nodes() -> None:
    nodes = [node(f"n{i}", cores=2, gib=4) for i in range(3)]
    pods = [Pod("default", f"p{i}", requests={CPU: 100, PODS: 1}) for i in range(6)]
    found = best(view(nodes), pods, Dacs(), FILTERS)
    assert sorted(found.placement.values()) == ["n0", "n0", "n1", "n1", "n2", "n2"]


def test_pods_that_ran_before_this_run_count_for_gamma() -> None:
    dacs = Dacs(beta_cs=1.0, beta_rc=0.0)
    pods = [Pod("default", "p", requests={CPU: 100, PODS: 1})]
    busy = view([node("n0", cores=2), node("n1", cores=2)], placed=[1, 0])
    assert best(busy, pods, dacs, FILTERS).placement == {"default/p": "n1"}


def test_what_the_filters_refuse_is_no_option() -> None:
    nodes = [node("fast", cores=8, unschedulable=True), node("slow", cores=1)]
    found = best(view(nodes), [Pod("default", "p", requests={CPU: 100})], Dacs(), FILTERS)
    assert found.placement == {"default/p": "slow"}


def test_a_pod_that_fits_nowhere_is_named() -> None:
    found = best(view([node("n")]), [Pod("default", "p", requests={CPU: 9000})], Dacs(), FILTERS)
    assert (found.status, found.why) == ("infeasible", "pod default/p fits no node")


def test_pods_too_many_for_all_nodes_are_infeasible() -> None:
    pods = [Pod("default", f"p{i}", requests={CPU: 600}) for i in range(3)]
    found = best(view([node("n", cores=1), node("m", cores=1)]), pods, Dacs(), FILTERS)
    assert (found.status, found.why) == ("infeasible", "the nodes can't hold all pods at once")


def test_a_user_at_an_unknown_node_counts_as_none() -> None:
    there = view([node("n"), node("m", cores=1)])
    unknown, none = (
        best(there, [Pod("default", "p", annotations=annotations)], Dacs(), FILTERS)
        for annotations in (PodAnnotations(user_node="mars"), PodAnnotations())
    )
    assert unknown.status == "optimal"
    assert unknown == none


def test_a_demand_between_pods_makes_it_a_bound() -> None:
    port = (HostPort("0.0.0.0", "TCP", 80),)
    pods = [Pod("default", f"p{i}", requests={CPU: 100}, host_ports=port) for i in range(2)]
    found = best(view([node("n")]), pods, Dacs(), FILTERS)
    assert found.status == "bound"
    assert "NodePorts" in found.why


def test_without_time_it_says_so() -> None:
    random = Random(0)
    pods = [Pod("default", f"p{i}", requests={CPU: random.randrange(300, 900)}) for i in range(12)]
    nodes = [node(f"n{i}", cores=random.choice([1, 2, 3])) for i in range(6)]
    found = best(view(nodes), pods, Dacs(), FILTERS, time_limit_s=0.0)
    assert found.status == "time limit"
    assert found.gap > 0


def test_no_pods_cost_nothing() -> None:
    assert best(view([node("n")]), [], Dacs(), FILTERS).value == 0.0
