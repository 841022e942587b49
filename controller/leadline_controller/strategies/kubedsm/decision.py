"""KubeDSM's decisions: which pods belong on the edge. Pure.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 10 and 12, Algorithms 1-5 and 7. The functions have the paper's names.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from leadline_controller.framework.view import Ints
from leadline_controller.strategies.kubedsm.edge_state import (
    AppliedDecision,
    EdgeDecision,
    EdgePod,
    EdgeState,
    MigrationLimits,
    Quality,
    quality_with,
    total_requests,
    with_count,
)
from leadline_controller.strategies.kubedsm.match import match
from leadline_controller.strategies.kubedsm.packing import (
    MAX_EXACT_SUBSETS,
    NO_NODE,
    all_subsets,
    fits_in,
    group_equal,
    subset_count,
)
from leadline_controller.strategies.kubedsm.reorder import reorder_edge
from leadline_controller.strategies.kubedsm.subset import best_subset, best_within_bounds


def immediate_schedule(state: EdgeState, new: Sequence[EdgePod]) -> AppliedDecision:
    """Place new pods without migration (Algorithm 1)."""
    return apply_decision(state, new, make_decision(state, new))


def suggest(state: EdgeState, cloud: Sequence[EdgePod], limits: MigrationLimits) -> AppliedDecision:
    """Move pods from the cloud to the edge, and reorder the edge (Algorithm 2)."""
    chosen = _select_for_edge(state, cloud, limits.cloud_to_edge)
    return apply_decision(state, chosen, make_decision(state, chosen, limits))


def _select_for_edge(state: EdgeState, cloud: Sequence[EdgePod], most: int) -> list[EdgePod]:
    """Up to `most` pods, the most QoS per size first (Eq. 10), scored again after each choice.

    They must fit into the capacity of the whole edge, not into what is free, because bestFit
    makes room.
    """
    candidates = [pod for pod in cloud if pod.feasible.any()]
    chosen: list[EdgePod] = []
    room, on_edge = state.edge.capacity.sum(axis=0), state.on_edge
    while candidates and len(chosen) < most:
        pod = _highest_gain(state.quality, on_edge, candidates, 1)
        candidates = [each for each in candidates if each is not pod]
        need = sum((each.requests for each in chosen), start=pod.requests)
        if fits_in(need, room):
            chosen.append(pod)
            on_edge = with_count(on_edge, pod, 1)
    return chosen


def _highest_gain(quality: Quality, on_edge: Ints, pods: Iterable[EdgePod], step: int) -> EdgePod:
    """The pod with the highest QoS gain per size when it arrives on the edge (Eq. 10, step 1) or
    leaves it (Eq. 12, step -1); the first of equals."""
    gains = quality.each(on_edge + step) - quality.each(on_edge)
    return max(pods, key=lambda pod: round(float(gains[pod.service]) / pod.size, 9))


def make_decision(
    state: EdgeState, new: Sequence[EdgePod], limits: MigrationLimits | None = None
) -> EdgeDecision:
    """The subset of the new pods for the edge with the highest QoS (Algorithm 3). limits: of the
    migrations, or None for no migration.

    Ties go to fewer migrations, then to the smaller subset, by size. Without migration only the
    sum of the free resources is checked, as in the paper; match then finds out what fits. With
    migration, the edge is reordered even if there are no new pods.
    """
    feasible = [pod for pod in new if pod.feasible.any()]
    groups = group_equal(
        [(pod.service, pod.requests.tobytes(), pod.feasible.tobytes()) for pod in feasible]
    )
    counts = [len(members) for members in groups]
    if limits is None:
        if subset_count(counts) > MAX_EXACT_SUBSETS:
            return best_within_bounds(state, feasible)
        return best_subset(state, feasible, groups)
    best, rank = EdgeDecision(), (-np.inf, 0, 0.0)
    for row in all_subsets(counts) if groups else np.zeros((1, 0), dtype=np.int64):
        pods = tuple(
            feasible[at] for group, members in enumerate(groups) for at in members[: row[group]]
        )
        choice = best_fit(state, pods, limits.edge_reorder, rank[0])
        if choice is None:
            continue
        size = round(sum(pod.size for pod in pods), 9)
        quality = quality_with(state, pods, choice.freed)
        found = (quality, -choice.migrations - len(pods), -size)
        if found > rank:
            best, rank = choice, found
    return best


def best_fit(
    state: EdgeState, pods: tuple[EdgePod, ...], edge_reorder: int, least_quality: float = -np.inf
) -> EdgeDecision | None:
    """The migrations that make room for these pods: first free the edge, then reorder it
    (Algorithm 4). None if there cannot be enough room, or if QoS would be below least_quality,
    which reordering does not change."""
    freed = free_edge_as_needed(state, total_requests(state, pods))
    if freed is None or quality_with(state, pods, freed) < least_quality:
        return None
    for pod in freed:
        state = state.without(pod)
    movable = state.pods
    if not movable:
        return EdgeDecision(pods, freed)
    found = reorder_edge(
        state.edge,
        np.array([pod.requests for pod in movable]),
        np.array([pod.feasible for pod in movable]),
        np.array([pod.node for pod in movable]),
        edge_reorder,
    )
    moves = tuple((movable[at], node) for at, node in found.moves)
    return EdgeDecision(pods, freed, moves, found.exact)


def free_edge_as_needed(state: EdgeState, need: Ints) -> tuple[EdgePod, ...] | None:
    """The pods that leave for the cloud until this much of the edge is free, the least QoS loss per
    size first, scored again after each (Algorithm 5, Eq. 12). None if there are not enough pods
    that may leave."""
    freed: list[EdgePod] = []
    while not fits_in(need, state.edge.free.sum(axis=0)):
        candidates = [pod for pod in state.pods if pod.cloud_feasible]
        if not candidates:
            return None
        pod = _highest_gain(state.quality, state.on_edge, candidates, -1)
        state = state.without(pod)
        freed.append(pod)
    return tuple(freed)


def apply_decision(
    state: EdgeState, new: Sequence[EdgePod], choice: EdgeDecision
) -> AppliedDecision:
    """Migrate, then match the chosen pods to edge nodes; new pods that are not chosen or not
    matched go to the cloud (Algorithm 7)."""
    for pod in choice.freed:
        state = state.without(pod)
    for pod, node in choice.reordered:
        state = state.moved(pod, node)
    placed: list[tuple[EdgePod, int]] = []
    exact = choice.exact
    if choice.onto_edge:
        requests = np.array([pod.requests for pod in choice.onto_edge])
        feasible = np.array([pod.feasible for pod in choice.onto_edge])
        found = match(state.edge, requests, feasible)
        exact = exact and found.exact
        pairs = zip(choice.onto_edge, found.nodes, strict=True)
        placed = [(pod, node) for pod, node in pairs if node != NO_NODE]
    for pod, node in placed:
        state = state.with_pod(pod, node)
    on_edge = {pod.key for pod, _ in placed}
    to_cloud = tuple(pod for pod in new if pod.key not in on_edge)
    return AppliedDecision(tuple(placed), to_cloud, choice.freed, choice.reordered, state, exact)
