"""KubeDSM's fragmentation, match and reorderEdge: worked by hand, and against plain enumeration."""

from itertools import combinations, product
from random import Random

import numpy as np
import pytest
from leadline_controller.framework.view import Bools, Ints
from leadline_controller.strategies.kubedsm import packing
from leadline_controller.strategies.kubedsm.packing import (
    NO_NODE,
    Edge,
    MoveLimits,
    fragmentation,
    match,
    reorder_edge,
)


def edge(*nodes: tuple[int, int, int, int]) -> Edge:
    """Nodes as (cores, gib, used cores, used gib)."""
    table = np.array(nodes, dtype=np.int64).reshape(-1, 4)
    return Edge(table[:, :2], table[:, 2:])


def pods(*requests: tuple[int, int]) -> Ints:
    return np.array(requests, dtype=np.int64).reshape(-1, 2)


def anywhere(requests: Ints, nodes: int) -> Bools:
    return np.ones((len(requests), nodes), dtype=np.bool_)


def test_fragmentation_is_minus_the_sum_of_products_of_used_fractions() -> None:
    # 2/4 * 1/4 + 4/4 * 3/4 = 0.125 + 0.75
    assert fragmentation(edge((4, 4, 2, 1), (4, 4, 4, 3))) == pytest.approx(-0.875)
    assert fragmentation(edge((0, 4, 0, 2))) == 0.0


def test_match_takes_as_many_pods_as_fit() -> None:
    # A pod of 3 cores or two of 2: two it is.
    requests = pods((3, 1), (2, 1), (2, 1))
    assert match(edge((4, 4, 0, 0)), requests, anywhere(requests, 1)) == ((NO_NODE, 0, 0), True)


def test_match_leaves_the_least_fragmentation() -> None:
    # On the first node 3/4 * 3/4 - 2/4 * 2/4 = 0.3125 is gained, on the second 1/4 * 1/4.
    requests = pods((1, 1))
    assert match(edge((4, 4, 2, 2), (4, 4, 0, 0)), requests, anywhere(requests, 2)).nodes == (0,)
    # Both on the first: 4/4 * 4/4 - 1/4 = 0.75; one on each: 0.3125 + 0.0625.
    requests = pods((1, 1), (1, 1))
    assert match(edge((4, 4, 0, 0), (4, 4, 2, 2)), requests, anywhere(requests, 2)).nodes == (1, 1)


def test_match_uses_only_nodes_that_pass_the_filters() -> None:
    feasible = np.array([[False, True], [True, False]])
    found = match(edge((4, 4, 2, 2), (4, 4, 0, 0)), pods((1, 1), (1, 1)), feasible)
    assert found.nodes == (1, 0)
    unresolvable = np.zeros((1, 2), dtype=np.bool_)
    assert match(edge((4, 4, 0, 0), (4, 4, 0, 0)), pods((1, 1)), unresolvable).nodes == (NO_NODE,)


def test_match_of_no_pods_is_empty() -> None:
    assert match(edge((4, 4, 0, 0)), pods(), anywhere(pods(), 1)) == ((), True)


def test_reorder_reduces_fragmentation() -> None:
    # Two heavy on CPU, two on memory: 6/6 * 2/6 = 0.333 on each node. With one of each kind on
    # both it is 4/6 * 4/6 = 0.444 on each.
    there = edge((6, 6, 6, 2), (6, 6, 2, 6))
    requests = pods((3, 1), (3, 1), (1, 3), (1, 3))
    found = reorder_edge(there, requests, anywhere(requests, 2), np.array([0, 0, 1, 1]), 2)
    assert found.exact
    assert sorted(node for _, node in found.equal[0]) == [0, 1]
    groups = {"heavy" if pod < 2 else "wide" for pod, _ in found.equal[0]}
    assert groups == {"heavy", "wide"}, "one of each kind changes places"


def test_reorder_moves_no_more_than_it_needs_and_no_more_than_it_may() -> None:
    # One pod each on two nodes: together 2/4 * 2/4 = 0.25 beats 2 * 1/16 = 0.125.
    requests = pods((1, 1), (1, 1))
    there = edge((4, 4, 1, 1), (4, 4, 1, 1))
    assert (
        len(reorder_edge(there, requests, anywhere(requests, 2), np.array([0, 1]), 3).equal[0]) == 1
    )
    assert reorder_edge(there, requests, anywhere(requests, 2), np.array([0, 1]), 0).equal == ((),)


def test_reorder_does_not_move_packed_pods() -> None:
    requests = pods((1, 1), (1, 1))
    there = edge((4, 4, 2, 2), (4, 4, 0, 0))
    assert reorder_edge(there, requests, anywhere(requests, 2), np.array([0, 0]), 3).equal == ((),)


def test_reorder_keeps_a_pod_without_a_feasible_node_in_place() -> None:
    requests = pods((1, 1), (1, 1))
    feasible = np.zeros((2, 2), dtype=np.bool_)
    there = edge((4, 4, 1, 1), (4, 4, 1, 1))
    assert reorder_edge(there, requests, feasible, np.array([0, 1]), 3).equal == ((),)


def edge_view(seed: int, nodes: int, count: int) -> tuple[Edge, Ints, Bools]:
    random = Random(seed)
    made = edge(*((random.randint(3, 8), random.randint(3, 8), 0, 0) for _ in range(nodes)))
    requests = pods(*((random.randint(1, 3), random.randint(1, 3)) for _ in range(count)))
    feasible = np.array([[random.random() < 0.8 for _ in range(nodes)] for _ in range(count)])
    return made, requests, feasible


def after(start: Edge, requests: Ints, nodes: tuple[int, ...]) -> Edge | None:
    """The edge with these pods there; None where they do not fit."""
    for row, node in zip(requests, nodes, strict=True):
        if node != NO_NODE:
            start = start.with_pod(row, node)
    return start if (start.used <= start.capacity).all() else None


def plainly(start: Edge, requests: Ints, feasible: Bools) -> tuple[int, float]:
    """The most pods and the least fragmentation, by trying every assignment."""
    best = (0, fragmentation(start))
    for nodes in product(range(-1, len(start.used)), repeat=len(requests)):
        if all(node == NO_NODE or feasible[pod, node] for pod, node in enumerate(nodes)):
            there = after(start, requests, nodes)
            placed = sum(node != NO_NODE for node in nodes)
            if there is not None:
                best = min(best, (-placed, fragmentation(there)), key=lambda it: it)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_match_is_as_good_as_trying_everything(seed: int) -> None:
    start, requests, feasible = edge_view(seed, nodes=3, count=5)
    found = match(start, requests, feasible)
    assert found.exact
    there = after(start, requests, found.nodes)
    assert there is not None
    assert all(node == NO_NODE or feasible[pod, node] for pod, node in enumerate(found.nodes))
    placed = sum(node != NO_NODE for node in found.nodes)
    assert (-placed, fragmentation(there)) == pytest.approx(plainly(start, requests, feasible))


@pytest.mark.parametrize("seed", range(12))
def test_the_bounded_match_is_valid_and_near(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start, requests, feasible = edge_view(seed, nodes=3, count=7)
    exact = match(start, requests, feasible)
    monkeypatch.setattr("leadline_controller.strategies.kubedsm.packing.MAX_EXACT_SUBSETS", 1)
    found = match(start, requests, feasible)
    assert not found.exact
    there = after(start, requests, found.nodes)
    assert there is not None
    assert all(node == NO_NODE or feasible[pod, node] for pod, node in enumerate(found.nodes))
    assert len(found.nodes) == len(requests)
    placed = [sum(node != NO_NODE for node in each.nodes) for each in (exact, found)]
    assert placed[0] - 1 <= placed[1] <= placed[0]


def full(seed: int) -> tuple[Edge, Ints, Bools, Ints]:
    """Pods that are assigned to three nodes."""
    start, requests, feasible = edge_view(seed, nodes=3, count=6)
    found = match(start, requests, feasible)
    there = [pod for pod, node in enumerate(found.nodes) if node != NO_NODE]
    at = np.array([found.nodes[pod] for pod in there])
    random = Random(seed)
    for pod in range(len(there)):  # off the best places
        node = random.randrange(3)
        trial = after(start, requests[there], (*at[:pod].tolist(), node, *at[pod + 1 :].tolist()))
        if feasible[there[pod], node] and trial is not None:
            at[pod] = node
    used_product = after(start, requests[there], tuple(at.tolist()))
    assert used_product is not None
    return used_product, requests[there], feasible[there], at


def least(start: Edge, requests: Ints, feasible: Bools, at: Ints, most: int) -> float:
    """The least fragmentation that `most` moves reach, with match over every subset, as the
    paper writes it."""
    best = fragmentation(start)
    for size in range(1, most + 1):
        for chosen in combinations(range(len(requests)), size):
            picked = list(chosen)
            lifted = start
            for pod in picked:
                lifted = lifted.without_pod(requests[pod], int(at[pod]))
            may = feasible[picked].copy()
            may[np.arange(size), at[picked]] = True
            found = match(lifted, requests[picked], may)
            there = after(lifted, requests[picked], found.nodes)
            if NO_NODE not in found.nodes and there is not None:
                best = min(best, fragmentation(there))
    return best


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("bounded", [False, True])
def test_reorder_is_as_good_as_match_over_every_subset(
    seed: int, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, requests, feasible, at = full(seed)
    goal = least(start, requests, feasible, at, 3)
    if bounded:
        monkeypatch.setattr("leadline_controller.strategies.kubedsm.packing.MAX_EXACT_SUBSETS", 0)
    found = reorder_edge(start, requests, feasible, at, 3)
    assert found.exact is not bounded
    assert len(found.equal[0]) <= 3
    there = start
    for pod, node in found.equal[0]:
        assert feasible[pod, node]
        there = there.without_pod(requests[pod], int(at[pod])).with_pod(requests[pod], node)
    assert (there.used <= there.capacity).all()
    reached = fragmentation(there)
    if bounded:
        assert goal - 1e-9 <= reached <= fragmentation(start) + 1e-9
    else:
        assert reached == pytest.approx(goal)


@pytest.mark.parametrize("exhaustive", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_no_more_pods_of_a_service_are_reordered_than_may(
    seed: int, exhaustive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    requests = np.array([[random.randint(1, 3), random.randint(1, 3)] for _ in range(7)])
    at = np.array([random.randrange(4) for _ in requests])
    start = edge(*[(9, 9, 0, 0)] * 4)
    for pod, node in enumerate(at.tolist()):
        start = start.with_pod(requests[pod], node)
    service = np.array([random.randrange(3) for _ in requests])
    limits = MoveLimits(service, np.array([random.randrange(3) for _ in range(3)]))
    if not exhaustive:
        monkeypatch.setattr(packing, "MAX_EXACT_SUBSETS", 0)
    found = reorder_edge(start, requests, anywhere(requests, 4), at, 3, limits)
    assert found.exact is exhaustive
    for moves in found.equal:
        moved = np.bincount(service[[pod for pod, _ in moves]], minlength=3)
        assert (moved <= limits.most).all()
