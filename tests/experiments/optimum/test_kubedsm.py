"""The programmes' optimum beside every placement there is, with Eq. 1-6 written out again."""

from itertools import product
from random import Random

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchStrategy, Running, decide_batch
from leadline_controller.framework.cycle import Rule, decide_in_turn
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    HostPort,
    Node,
    Pod,
    PodAnnotations,
    Taint,
)
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_experiments.optimum.kubedsm import best, quality

from tests.controller.builders import GIB, node, view

CLOUD = 2
SIZES = {"a": (500, GIB // 2), "b": (1000, GIB // 2), "c": (700, GIB)}
TARGETS = {"a": 1.0, "b": 0.5, "c": None}
OPTIONS = KubeDsm(a=1.0, b=0.1, gamma=10.0, qos_target=0.75)


def replica(service: str, number: int) -> Pod:
    cpu, memory = SIZES[service]
    return Pod(
        "default",
        f"{service}{number}",
        requests={CPU: cpu, MEMORY: memory, PODS: 1},
        labels={"app": service},
        annotations=PodAnnotations(qos_edge_ratio=TARGETS[service]),
    )


def edge_and_cloud(random: Random) -> tuple[Node, ...]:
    edge = [
        node(f"e{i}", cores=random.choice([1, 1.5, 2]), gib=random.choice([1, 2]), tier="edge")
        for i in range(2)
    ]
    return (*edge, node("cloud", cores=64, gib=64, tier="cloud"))


def random_cluster(seed: int) -> tuple[ClusterView, list[Pod], list[Running]]:
    """Pods that run at random places where they fit, and pods that are new."""
    random = Random(seed)
    cluster = view(edge_and_cloud(random))
    pods = [replica(random.choice("abc"), i) for i in range(6)]
    running: list[Running] = []
    for pod in pods[: random.randrange(5)]:
        passes = [all(f(cluster, pod).passes[i] for f in FILTERS.values()) for i in range(3)]
        place = random.choice([i for i in range(3) if passes[i]])
        cluster = cluster.with_placement(pod, place)
        running.append((pod, place))
    return cluster, pods[len(running) :], running


def satisfaction(pods: list[Pod], places: tuple[int, ...]) -> float:
    total = 0.0
    for service in {pod.labels["app"] for pod in pods}:
        at = [p for pod, p in zip(pods, places, strict=True) if pod.labels["app"] == service]
        target = TARGETS[service]
        delta = sum(p != CLOUD for p in at) / len(at) - (0.75 if target is None else target)
        total += delta if delta < -1e-9 else 0.1 * delta + 10.0
    return total


def fits(nodes: tuple[Node, ...], pods: list[Pod], places: tuple[int, ...]) -> bool:
    return all(
        sum(pod.requests[resource] for pod, p in zip(pods, places, strict=True) if p == i)
        <= nodes[i].allocatable[resource]
        for i in range(CLOUD)
        for resource in (CPU, MEMORY)
    )


@pytest.mark.parametrize("seed", range(16))
def test_no_placement_is_better_than_the_optimum(seed: int) -> None:
    cluster, pending, running = random_cluster(seed)
    pods = [*pending, *(pod for pod, _ in running)]
    homes = [place for _, place in running]
    best_of_all = max(
        (round(satisfaction(pods, at), 9), -moves(homes, at))
        for at in product(range(3), repeat=len(pods))
        if fits(cluster.nodes, pods, at)
    )
    found = best(cluster, pending, running, OPTIONS, FILTERS)
    index = {"e0": 0, "e1": 1}
    places = tuple(index.get(found.placement.get(pod.key, ""), CLOUD) for pod in pods)
    assert (found.status, found.gap, found.why) == ("optimal", 0.0, "")
    assert (round(found.value, 9), -found.migrations) == best_of_all
    assert (round(satisfaction(pods, places), 9), -moves(homes, places)) == best_of_all
    assert fits(cluster.nodes, pods, places)


def moves(homes: list[int], places: tuple[int, ...]) -> int:
    """Eq. 6 of the pods that run, which come last."""
    now = places[len(places) - len(homes) :]
    return sum(was != at for was, at in zip(homes, now, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_no_strategy_beats_the_optimum(seed: int) -> None:
    cluster, pending, running = random_cluster(seed)
    pods = [*pending, *(pod for pod, _ in running)]
    found = best(cluster, pending, running, OPTIONS, FILTERS)
    for name in STRATEGIES:
        rule = Rule(STRATEGIES[name](), FILTERS, Random(seed))
        at = {pod.key: cluster.table.names[place] for pod, place in running}
        if isinstance(rule.strategy, BatchStrategy):
            made, plan, _ = decide_batch(cluster, pending, running, rule)
            at |= {move.pod.key: cluster.table.names[move.target] for move in plan.moves}
        else:
            made = [decision for decision, _ in decide_in_turn(cluster, pending, rule)]
        at |= {decision.pod.key: decision.node for decision in made if decision.node is not None}
        assert quality(cluster, pods, OPTIONS, at) <= found.value + 1e-9, name


def test_a_pod_that_no_cloud_takes_stays_on_the_edge() -> None:
    tainted = Taint("cloud", "", "NoSchedule")
    nodes = [node("e", cores=1, tier="edge"), node("c", tier="cloud", taints=(tainted,))]
    pods = [replica("b", 0), replica("b", 1)]
    found = best(view(nodes), pods, [], OPTIONS, FILTERS)
    assert (found.status, found.why) == ("infeasible", "the edge can't hold all that must be there")
    alone = best(view(nodes), pods[:1], [], OPTIONS, FILTERS)
    assert alone.placement == {"default/b0": "e"}


def test_a_pod_that_fits_neither_is_named() -> None:
    pod = Pod("default", "p", node_selector={"zone": "moon"})
    found = best(view([node("e", tier="edge")]), [pod], [], OPTIONS, FILTERS)
    assert (found.status, found.why) == (
        "infeasible",
        "pod default/p fits no node of edge or cloud",
    )


def test_what_the_filters_refuse_is_no_option() -> None:
    nodes = [
        node("shut", cores=8, tier="edge", unschedulable=True),
        node("open", cores=1, tier="edge"),
        node("cloud", tier="cloud"),
    ]
    found = best(view(nodes), [replica("b", 0), replica("b", 1)], [], OPTIONS, FILTERS)
    assert list(found.placement.values()) == ["open"]


def test_a_terminating_pod_stays_and_counts() -> None:
    nodes = [node("e", cores=1, tier="edge"), node("cloud", tier="cloud")]
    cpu, memory = SIZES["b"]
    leaving = Pod(
        "default",
        "old",
        requests={CPU: cpu, MEMORY: memory, PODS: 1},
        labels={"app": "b"},
        terminating=True,
    )
    cluster = view(nodes).with_placement(leaving, 0)
    found = best(cluster, [replica("b", 1)], [(leaving, 0)], OPTIONS, FILTERS)
    assert found.placement == {"default/old": "e"}
    assert (found.migrations, found.value) == (0, 10.0)  # half of the service, as it wants


def test_a_demand_between_pods_makes_it_a_bound() -> None:
    nodes = [node("e", tier="edge"), node("cloud", tier="cloud")]
    port = (HostPort("0.0.0.0", "TCP", 80),)
    pods = [
        Pod("default", f"p{i}", requests={CPU: 100}, labels={"app": "p"}, host_ports=port)
        for i in range(2)
    ]
    found = best(view(nodes), pods, [], OPTIONS, FILTERS)
    assert found.status == "bound"
    assert "NodePorts" in found.why


def test_no_pods_at_all() -> None:
    found = best(view([node("e", tier="edge")]), [], [], OPTIONS, FILTERS)
    assert (found.status, found.value, found.migrations) == ("optimal", 0.0, 0)
