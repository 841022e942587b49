"""KubeDSM's makeDecision without migration, over every subset of the new pods or within bounds.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Algorithm 3 for Algorithm 1.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from leadline_controller.framework.view import Floats, Ints
from leadline_controller.strategies.kubedsm.edge_state import (
    EdgeDecision,
    EdgePod,
    EdgeState,
    quality_with,
    total_requests,
)
from leadline_controller.strategies.kubedsm.packing import all_subsets, fits_in, group_equal

_MAX_FRONT = 256


def best_subset(
    state: EdgeState, pods: Sequence[EdgePod], groups: Sequence[Sequence[int]]
) -> EdgeDecision:
    """The best of all subsets whose requests fit into the sum of the edge's free resources."""
    if not groups:
        return EdgeDecision()
    subsets = all_subsets([len(members) for members in groups])
    first = [pods[members[0]] for members in groups]
    need = subsets @ np.array([pod.requests for pod in first])
    possible = fits_in(need, _free(state, pods))
    quality = np.where(possible, _qualities(state, subsets, first), -np.inf)
    size = np.round(subsets @ np.array([pod.size for pod in first]), 9)
    row = subsets[np.lexsort((size, -quality))[0]]
    return EdgeDecision(
        tuple(pods[at] for group, held in enumerate(groups) for at in held[: row[group]])
    )


def _free(state: EdgeState, pods: Sequence[EdgePod]) -> Ints:
    """Sum of the free resources of the nodes that are feasible for any of these pods."""
    nodes = np.any([pod.feasible for pod in pods], axis=0)
    free: Ints = state.edge.free[nodes].sum(axis=0)
    return free


def _qualities(state: EdgeState, subsets: Ints, first: Sequence[EdgePod]) -> Floats:
    """QoS of each subset, shape (subsets,), over the services of these pods."""
    services = sorted({pod.service for pod in first})
    one_of = np.array([[pod.service == each for each in services] for pod in first])
    part = replace(
        state.quality, total=state.quality.total[services], target=state.quality.target[services]
    )
    return np.round(part.of(state.on_edge[services] + subsets @ one_of.astype(np.int64)), 9)


def best_within_bounds(state: EdgeState, pods: Sequence[EdgePod]) -> EdgeDecision:
    """For batches with too many subsets: adds service after service and keeps the subsets that no
    other dominates in QoS and in all requests. This is exact unless more than _MAX_FRONT are left,
    of which an even sample is kept, or unless the pods of a service differ in their requests, of
    which only the smallest of each number are tried."""
    free, exact = _free(state, pods), True
    need = np.zeros((1, free.size), dtype=np.int64)
    quality, picks = np.zeros(1), [()]  # type: tuple[Floats, list[tuple[EdgePod, ...]]]
    before = float(state.quality.of(state.on_edge))
    for members in group_equal([pod.service for pod in pods]):
        # If the pods of a service have equal requests, no other subsets can be better.
        whole = len({pods[at].requests.tobytes() for at in members}) == 1
        smallest = sorted((pods[at] for at in members), key=lambda pod: (pod.size, pod.key))
        options = [tuple(smallest[:count]) for count in range(len(smallest) + 1)]
        requests = np.array([total_requests(state, option) for option in options])
        gain = np.array([round(quality_with(state, option, ()) - before, 9) for option in options])
        all_need = (need[:, np.newaxis] + requests).reshape(-1, free.size)
        all_quality = (quality[:, np.newaxis] + gain).ravel()
        kept, cut = _pareto_front(all_need, all_quality, free)
        exact = exact and whole and not cut
        picks = [picks[at // len(options)] + options[at % len(options)] for at in kept.tolist()]
        need, quality = all_need[kept], all_quality[kept]
    return EdgeDecision(picks[0], exact=exact)


def _pareto_front(need: Ints, quality: Floats, free: Ints) -> tuple[Ints, bool]:
    """Positions of the subsets that fit and that no other dominates, best QoS first, and whether
    the list was sampled."""
    order = np.lexsort((need.sum(axis=1), -quality))
    order = order[fits_in(need[order], free)]
    kept: list[int] = []
    front = np.empty((0, need.shape[1]), dtype=np.int64)
    for at in order.tolist():
        if not (front <= need[at]).all(axis=1).any():
            kept.append(at)
            front = need[kept]
    if len(kept) <= _MAX_FRONT:
        return np.array(kept, dtype=np.int64), False
    sample = np.linspace(0, len(kept) - 1, _MAX_FRONT).astype(np.int64)
    return np.array(kept, dtype=np.int64)[sample], True
