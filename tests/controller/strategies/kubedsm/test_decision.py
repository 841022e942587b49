"""KubeDSM's QoS and decisions, worked by hand; the bounded search beside plain enumeration."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest
from leadline_controller.strategies.kubedsm import decision
from leadline_controller.strategies.kubedsm.decision import (
    EdgeDecision,
    EdgePod,
    EdgeState,
    Quality,
    apply_decision,
    best_fit,
    free_edge_as_needed,
    immediate_schedule,
    make_decision,
    pod_size,
    suggest,
)
from leadline_controller.strategies.kubedsm.packing import NO_NODE, Edge, fits_in

A, B = 0, 1


def quality(
    *services: tuple[int, float], a: float = 1, b: float = 0.1, gamma: float = 10
) -> Quality:
    """Services as (pods, target)."""
    total = np.array([count for count, _ in services])
    return Quality(total, np.array([target for _, target in services]), a, b, gamma)


def edge_pod(
    key: str,
    service: int,
    cores: int,
    gib: int,
    node: int = NO_NODE,
    nodes: int = 1,
    **fields: bool,
) -> EdgePod:
    requests = np.array([cores, gib])
    size = pod_size(requests, np.array([4, 4]))
    return EdgePod(
        key, service, requests, np.ones(nodes, dtype=np.bool_), size, node=node, **fields
    )


def edge_state(
    nodes: Sequence[tuple[int, int]], services: Quality, pods: Sequence[EdgePod] = ()
) -> EdgeState:
    capacity = np.array(nodes)
    edge = Edge(capacity, np.zeros_like(capacity))
    on_edge = np.zeros_like(services.total)
    for pod in pods:
        edge = edge.with_pod(pod.requests, pod.node)
        on_edge[pod.service] += 1
    return EdgeState(edge, services, on_edge, tuple(pods))


def keys(pods: Sequence[EdgePod]) -> list[str]:
    return [pod.key for pod in pods]


@pytest.mark.parametrize(
    ("on_edge", "expected"),
    [
        (0, -0.5),  # F(0 - 0.5) = 1 * -0.5
        (1, -0.25),
        (2, 10.0),  # F(0) = 0.1 * 0 + 10
        (4, 10.05),  # F(0.5) = 0.1 * 0.5 + 10
    ],
)
def test_qos_of_a_service_of_four_with_a_target_of_one_half(on_edge: int, expected: float) -> None:
    assert quality((4, 0.5)).of(np.array([on_edge])) == pytest.approx(expected)


def test_qos_is_the_sum_over_services_and_a_target_is_met_whatever_the_rounding() -> None:
    # 7/10 - 0.7 is a hair below 0 in floating point: met even so. 1/2 - 1 = -0.5.
    assert quality((10, 0.7), (2, 1.0)).of(np.array([7, 1])) == pytest.approx(10 - 0.5)


def test_the_size_of_a_pod() -> None:
    assert pod_size(np.array([1, 4]), np.array([4, 4])) == pytest.approx(0.5)  # sqrt(1/4 * 1)
    assert pod_size(np.array([0, 4]), np.array([4, 4])) > 0, "so that a gain per size is finite"


def test_immediate_schedule_takes_the_subset_with_the_highest_qos() -> None:
    # Room for 4 GiB: B's two pods of 2, or A's pod of 3. Both targets are 1: B whole is 10, A -1;
    # A whole is 10, B -1; alike, and the smaller is A: sqrt(1/4 * 3/4) = 0.433 beside
    # 2 * sqrt(1/4 * 2/4) = 0.707.
    new = [edge_pod("b1", B, 1, 2), edge_pod("b2", B, 1, 2), edge_pod("a1", A, 1, 3)]
    outcome = immediate_schedule(edge_state([(4, 4)], quality((1, 1.0), (2, 1.0))), new)
    assert [(pod.key, node) for pod, node in outcome.placed] == [("a1", 0)]
    assert keys(outcome.to_cloud) == ["b1", "b2"]
    # With a target of one half for B, A alone is 10 - 0.5 and B whole 10.05 - 1.
    outcome = immediate_schedule(edge_state([(4, 4)], quality((1, 1.0), (2, 0.5))), new)
    assert keys([pod for pod, _ in outcome.placed]) == ["a1"]
    # With none for A, A alone is 10.1 - 1 and B whole 10 + 10.
    outcome = immediate_schedule(edge_state([(4, 4)], quality((1, 0.0), (2, 1.0))), new)
    assert keys([pod for pod, _ in outcome.placed]) == ["b1", "b2"]


def test_a_pod_that_fits_the_sum_but_no_node_goes_to_the_cloud() -> None:
    # 2 and 2 GiB are free on two nodes: 3 GiB in all, yet on neither.
    new = [edge_pod("p", A, 1, 3, nodes=2)]
    state = edge_state([(4, 2), (4, 2)], quality((1, 1.0)))
    assert keys(make_decision(state, new).onto_edge) == ["p"]
    outcome = immediate_schedule(state, new)
    assert (outcome.placed, keys(outcome.to_cloud)) == ((), ["p"])


def test_a_pod_without_a_feasible_edge_node_goes_to_the_cloud() -> None:
    barred = EdgePod("p", A, np.array([1, 1]), np.array([False]), 0.25)
    outcome = immediate_schedule(edge_state([(4, 4)], quality((1, 1.0))), [barred])
    assert keys(outcome.to_cloud) == ["p"]


def test_freeing_takes_the_least_loss_per_size_and_scores_again_each_time() -> None:
    # A has two pods of 1 GiB, B two of 2, all on the edge, targets 1. The first of a service to
    # leave costs 10 + 0.5, the second 0.5. Sizes 0.25 and 0.354: -42 and -29.7, so b1 leaves.
    # Then A's still -42, B's -0.5 / 0.354 = -1.4: b2 leaves.
    there = [
        *(edge_pod(f"a{i}", A, 1, 1, node=0) for i in (1, 2)),
        *(edge_pod(f"b{i}", B, 1, 2, node=0) for i in (1, 2)),
    ]
    state = edge_state([(4, 6)], quality((2, 1.0), (2, 1.0)), there)
    assert free_edge_as_needed(state, [edge_pod("n", A, 0, 0)]) == ()
    freed = free_edge_as_needed(state, [edge_pod("n", A, 1, 3)])
    assert freed is not None
    assert keys(freed) == ["b1", "b2"]


def test_freeing_fails_if_no_pod_may_leave() -> None:
    there = [edge_pod("a", A, 1, 1, node=0, cloud_feasible=False)]
    state = edge_state([(1, 1)], quality((1, 1.0)), there)
    assert free_edge_as_needed(state, [edge_pod("n", A, 1, 1)]) is None


def test_by_node_room_in_which_none_of_the_pods_fits_is_no_room() -> None:
    # 2 GiB free on two nodes each are 4 in all, but no node takes a pod of 3.
    there = [edge_pod(f"b{i}", B, 1, 2, node=i, nodes=2) for i in (0, 1)]
    state = edge_state([(4, 4), (4, 4)], quality((1, 1.0), (2, 0.0)), there)
    new = [edge_pod("n", A, 1, 3, nodes=2)]
    assert free_edge_as_needed(state, new) == ()
    freed = free_edge_as_needed(replace(state, by_node=True), new)
    assert freed is not None
    assert keys(freed) == ["b0"]
    assert (
        free_edge_as_needed(replace(state, by_node=True), [edge_pod("n", A, 1, 2, nodes=2)]) == ()
    )


def test_best_fit_frees_and_then_reorders() -> None:
    # d leaves for the 4 GiB that are needed; then a and b, alone on two nodes, come together.
    there = [
        edge_pod("a", A, 1, 1, node=0, nodes=3),
        edge_pod("b", A, 1, 1, node=1, nodes=3),
        edge_pod("d", B, 2, 4, node=2, nodes=3),
    ]
    state = edge_state([(4, 2), (4, 2), (4, 4)], quality((2, 1.0), (1, 0.0)), there)
    new = (edge_pod("n", A, 1, 4, nodes=3),)
    choice, *_ = best_fit(state, new, edge_reorder=3)
    assert keys(choice.freed) == ["d"]
    assert len(choice.reordered) == 1
    assert choice.migrations == 2
    assert best_fit(state, (edge_pod("n", A, 9, 9, nodes=3),), edge_reorder=3) == ()


def test_a_suggestion_brings_a_pod_back_when_there_is_room() -> None:
    cloud = [edge_pod("a2", A, 1, 1)]
    state = edge_state([(4, 4)], quality((2, 1.0)), [edge_pod("a1", A, 1, 1, node=0)])
    outcome = suggest(state, cloud, 5, 3)
    assert [(pod.key, node) for pod, node in outcome.placed] == [("a2", 0)]
    assert (outcome.freed, outcome.reordered, outcome.exact) == ((), (), True)
    assert outcome.state.on_edge.tolist() == [2]


def test_where_pods_may_leave_a_suggestion_pushes_a_pod_out_for_one_that_gains_more() -> None:
    # b meets its target without its pod here (target 0): it loses 0.1, a gains 1 + 10. Algorithm 2
    # itself takes only what fits the free room.
    there = [edge_pod("b1", B, 1, 4, node=0)]
    state = edge_state([(4, 4)], quality((1, 1.0), (1, 0.0)), there)
    outcome = suggest(state, [edge_pod("a1", A, 1, 2)], 5, 3)
    assert (outcome.freed, outcome.placed) == ((), ())
    outcome = suggest(replace(state, may_leave=True), [edge_pod("a1", A, 1, 2)], 5, 3)
    assert keys(outcome.freed) == ["b1"]
    assert keys([pod for pod, _ in outcome.placed]) == ["a1"]


def test_a_suggestion_without_gain_changes_nothing() -> None:
    # An exchange of like for like: the QoS is the same, and no migration is fewer.
    state = edge_state([(4, 4)], quality((2, 1.0)), [edge_pod("a1", A, 1, 4, node=0)])
    outcome = suggest(replace(state, may_leave=True), [edge_pod("a2", A, 1, 4)], 5, 3)
    assert (outcome.placed, outcome.freed, keys(outcome.to_cloud)) == ((), (), ["a2"])


def test_a_suggestion_takes_the_most_qos_per_size_and_no_more_than_its_limit() -> None:
    # Three pods of A are missing, each worth 1/4 until the last, which is worth 10 more; B's
    # one is worth 11 at twice the size: 11 / 0.5 = 22 comes before 0.25 / 0.25 = 1.
    cloud = [*(edge_pod(f"a{i}", A, 1, 1) for i in (2, 3, 4)), edge_pod("b1", B, 2, 2)]
    state = edge_state([(4, 4)], quality((4, 1.0), (1, 1.0)), [edge_pod("a1", A, 1, 1, node=0)])
    outcome = suggest(state, cloud, 2, 3)
    assert sorted(keys([pod for pod, _ in outcome.placed])) == ["a2", "b1"]
    assert suggest(state, cloud, 0, 3).placed == ()


def test_the_pods_of_a_suggestion_fit_the_free_room_together() -> None:
    # 4 GiB are free: one pod of 3 GiB, and then one of 1 GiB, which comes after two that are too
    # large together.
    cloud = [edge_pod(key, A, 1, gib) for key, gib in (("a1", 3), ("a2", 3), ("a3", 1))]
    state = edge_state([(4, 4)], quality((3, 1.0)))
    assert sorted(keys([pod for pod, _ in suggest(state, cloud, 5, 3).placed])) == ["a1", "a3"]


@pytest.mark.parametrize(
    ("on_edge", "expected"),
    [
        (0, 0.0),
        (1, 0.8 * (0.25 / 0.5) ** 0.5),
        (2, 0.99),  # the target
        (3, 0.99 + 0.01 * 0.25 / 0.5),
        (4, 1.0),
    ],
)
def test_the_programs_qos_of_a_service_of_four_with_a_target_of_one_half(
    on_edge: int, expected: float
) -> None:
    programs = replace(quality((4, 0.5)), is_programs=True)
    assert programs.of(np.array([on_edge])) == pytest.approx(expected)


@pytest.mark.parametrize(("target", "expected"), [(1.0, 0.99), (0.0, 1.0)])
def test_the_programs_qos_with_all_pods_on_the_edge(target: float, expected: float) -> None:
    assert replace(quality((4, target)), is_programs=True).of(np.array([4])) == expected


def test_no_more_running_pods_of_a_service_move_than_may() -> None:
    # A has three running pods in the cloud, of which two may move; B's only one may not.
    cloud = [replace(edge_pod(f"a{i}", A, 1, 1), is_running=True) for i in range(3)]
    cloud += [replace(edge_pod("b", B, 1, 1), is_running=True)]
    state = edge_state([(4, 8)], quality((3, 1.0), (1, 1.0)))
    assert len(suggest(state, cloud, 5, 3).placed) == 4
    outcome = suggest(replace(state, may_move=np.array([2, 0])), cloud, 5, 3)
    assert [pod.service for pod, _ in outcome.placed] == [A, A]


def test_pods_that_come_to_the_edge_count_before_others_make_room_for_them() -> None:
    # One pod of A may move. It comes from the cloud, so none of A's leaves or is reordered.
    there = [
        replace(edge_pod("a1", A, 1, 1, node=0, nodes=2), is_running=True),
        replace(edge_pod("a2", A, 1, 1, node=1, nodes=2), is_running=True),
    ]
    new = replace(edge_pod("a3", A, 1, 4, nodes=2), is_running=True)
    state = edge_state([(4, 4), (4, 4)], quality((3, 1.0)), there)
    free, *_ = best_fit(state, (new,), 3)
    assert len(free.reordered) == 1
    (choice,) = best_fit(replace(state, may_move=np.array([1])), (new,), 3)
    assert (choice.freed, choice.reordered) == ((), ())
    assert best_fit(replace(state, may_move=np.array([1])), (new, new), 3) == ()


def test_of_equal_decisions_the_one_of_which_match_places_most() -> None:
    # One pod of each service is worth the same, and the smaller one comes first on a tie. It asks
    # for 3 cores, which are free in sum but on no node.
    flat, tall = edge_pod("flat", A, 3, 1, nodes=2), edge_pod("tall", B, 2, 3, nodes=2)
    state = edge_state([(2, 3), (2, 3)], quality((2, 1.0), (2, 1.0)))
    assert flat.size < tall.size
    for new in ([flat, tall], [tall, flat]):
        assert keys(make_decision(state, new).onto_edge) == ["tall"]
    assert keys([pod for pod, _ in immediate_schedule(state, [flat, tall]).placed]) == ["tall"]


def test_of_pods_that_are_alike_the_one_that_gains_most_gets_the_node() -> None:
    # A is worth 0.5, B's only pod 11; there is room for one.
    new = (edge_pod("a", A, 1, 4), edge_pod("b", B, 1, 4))
    state = edge_state([(4, 4)], quality((2, 1.0), (1, 1.0)))
    for onto in (new, new[::-1]):
        assert keys([p for p, _ in apply_decision(state, onto, EdgeDecision(onto)).placed]) == ["b"]


def test_a_suggestion_without_new_pods_still_reorders() -> None:
    there = [edge_pod("a1", A, 1, 1, node=0, nodes=2), edge_pod("a2", A, 1, 1, node=1, nodes=2)]
    state = edge_state([(4, 4), (4, 4)], quality((2, 1.0)), there)
    assert len(suggest(state, [], 0, 3).reordered) == 1
    assert suggest(state, [], 0, 0).reordered == ()


def test_applying_a_decision_matches_after_the_migrations() -> None:
    # n needs 4 GiB, which the first node has once a has gone to the second.
    a, n = edge_pod("a", A, 1, 1, node=0, nodes=2), edge_pod("n", B, 1, 4, nodes=2)
    state = edge_state([(4, 4), (4, 2)], quality((1, 1.0), (1, 1.0)), [a])
    outcome = apply_decision(state, [n], EdgeDecision((n,), (), ((a, 1),)))
    assert [(pod.key, node) for pod, node in outcome.placed] == [("n", 0)]
    assert outcome.state.edge.used.tolist() == [[1, 4], [1, 1]]


def edge_view(seed: int, count: int) -> tuple[EdgeState, list[EdgePod]]:
    """Pods of three services and different sizes, and an edge too small for all of them."""
    random = Random(seed)
    pods = []
    for i in range(count):
        requests = np.array([random.randint(1, 9), random.randint(1, 9)])
        size = pod_size(requests, np.array([20, 20]))
        feasible = np.array([True, True])
        pods.append(EdgePod(f"p{i}", random.randrange(3), requests, feasible, size))
    totals = [sum(pod.service == s for pod in pods) + 1 for s in range(3)]
    services = quality(*((total, random.choice([0.5, 0.8, 1.0])) for total in totals))
    return edge_state([(12, 12), (9, 14)], services), pods


def reached(state: EdgeState, pods: Sequence[EdgePod]) -> float:
    on_edge = state.on_edge.copy()
    for pod in pods:
        on_edge[pod.service] += 1
    return float(state.quality.of(on_edge))


@pytest.mark.parametrize("seed", range(15))
def test_the_decision_is_as_good_as_every_subset_tried(seed: int) -> None:
    state, pods = edge_view(seed, 8)
    room = state.edge.free.sum(axis=0)
    best = max(
        reached(state, subset)
        for size in range(len(pods) + 1)
        for subset in combinations(pods, size)
        if fits_in(sum((pod.requests for pod in subset), start=np.zeros(2, dtype=np.int64)), room)
    )
    choice = make_decision(state, pods)
    assert choice.exact
    assert reached(state, choice.onto_edge) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("alike", [True, False])
def test_the_bounded_search_fits_and_is_near(
    seed: int, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, pods = edge_view(seed, 8)
    if alike:  # all pods of a service want the same, as in the paper: nothing is lost
        first = {pod.service: pod for pod in reversed(pods)}
        pods = [
            EdgePod(pod.key, pod.service, first[pod.service].requests, pod.feasible, pod.size)
            for pod in pods
        ]
    exact = make_decision(state, pods)
    monkeypatch.setattr(decision, "MAX_EXACT_SUBSETS", 0)
    found = make_decision(state, pods)
    need = sum((pod.requests for pod in found.onto_edge), start=np.zeros(2, dtype=np.int64))
    assert fits_in(need, state.edge.free.sum(axis=0))
    goal, got = reached(state, exact.onto_edge), reached(state, found.onto_edge)
    assert found.exact is alike
    if found.exact:
        assert got == pytest.approx(goal)
    else:
        assert goal - 10.5 <= got <= goal + 1e-9, "at worst one target less is reached"
