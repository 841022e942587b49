"""match: assigns new pods to edge nodes, KubeDSM's Algorithm 8. Pure.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 14-16.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.strategies.kubedsm.packing import (
    MAX_EXACT_SUBSETS,
    NO_NODE,
    TOLERANCE,
    Edge,
    all_subsets,
    fits_in,
    group_equal,
    subset_count,
    used_product,
)

_MAX_EXACT_WORK = 60_000_000  # 12 distinct pods on three large nodes
_BEAM_WIDTH = 64


class Matching(NamedTuple):
    """Each pod's node, NO_NODE for none, and whether the search was exhaustive."""

    nodes: tuple[int, ...]
    exact: bool


def match(edge: Edge, requests: Ints, feasible: Bools) -> Matching:
    """The matching with the most pods, and of these the one with the least fragmentation
    (Algorithm 8, Eq. 14-16).

    requests: shape (pods, resources). feasible: nodes that pass the filters, shape (pods, nodes).
    """
    groups = group_equal(
        [(row.tobytes(), may.tobytes()) for row, may in zip(requests, feasible, strict=True)]
    )
    counts = [len(members) for members in groups]
    if not groups:
        return Matching((), exact=True)
    if subset_count(counts) <= MAX_EXACT_SUBSETS:
        first = [members[0] for members in groups]
        subsets = all_subsets(counts)
        can_hold = _can_hold(edge, subsets, requests[first], feasible[first])
        if int(can_hold.sum()) * len(subsets) <= _MAX_EXACT_WORK:
            chosen = _dynamic_program(edge, subsets, subsets @ requests[first], can_hold)
            return Matching(_assign_pods(groups, chosen, len(requests)), exact=True)
    return Matching(_beam_search(edge, requests, feasible), exact=False)


def _can_hold(edge: Edge, subsets: Ints, requests: Ints, feasible: Bools) -> Bools:
    """Whether a node can hold a subset of the pods, shape (nodes, subsets)."""
    need = subsets @ requests
    can_hold: Bools = (subsets @ (~feasible).astype(np.int64)).T == 0
    for node, room in enumerate(edge.free):
        can_hold[node] &= fits_in(need, room)
    return can_hold


def _dynamic_program(edge: Edge, subsets: Ints, need: Ints, can_hold: Bools) -> list[Ints]:
    """The best matching: one row of `subsets` for each node."""
    most = subsets[-1]
    sources: dict[int, Ints] = {}
    best = np.full(len(subsets), -np.inf)
    best[0] = 0.0
    taken = np.zeros((len(edge.used), len(subsets)), dtype=np.int64)
    for node, (capacity, used) in enumerate(zip(edge.capacity, edge.used, strict=True)):
        gain = used_product(capacity, used + need) - used_product(capacity, used)
        before, best = best, best.copy()
        for added in np.flatnonzero(can_hold[node])[1:].tolist():  # the empty subset is `before`
            if added not in sources:
                roomy = (subsets + subsets[added] <= most).all(axis=1)
                sources[added] = np.flatnonzero(roomy)
            source = sources[added]
            value = before[source] + gain[added]
            better = value > best[source + added] + TOLERANCE
            reached = source[better] + added
            best[reached] = value[better]
            taken[node, reached] = added
    return list(_backtrack(subsets, best, taken))[::-1]


def _backtrack(subsets: Ints, best: Floats, taken: Ints) -> Iterator[Ints]:
    """Backtracks from the largest subset that can be matched with the least fragmentation."""
    pods = np.where(np.isfinite(best), subsets.sum(axis=1), -1)
    largest = np.flatnonzero(pods == pods.max())
    state = int(largest[np.argmax(best[largest])])
    for row in taken[::-1]:
        added = int(row[state])
        yield subsets[added]
        state -= added


def _assign_pods(
    groups: Sequence[Sequence[int]], chosen: Sequence[Ints], pods: int
) -> tuple[int, ...]:
    """Each pod's node, from the number of pods of each group on each node."""
    nodes = [NO_NODE] * pods
    for group, members in enumerate(groups):
        left = iter(members)
        for node, row in enumerate(chosen):
            for _ in range(int(row[group])):
                nodes[next(left)] = node
    return tuple(nodes)


def _beam_search(edge: Edge, requests: Ints, feasible: Bools) -> tuple[int, ...]:
    """The better of two beam searches: largest pods first, and smallest pods first."""
    share = (requests / np.maximum(edge.capacity.max(axis=0), 1)).max(axis=1)
    order = np.argsort(share, kind="stable")
    found = [_beam_search_in_order(edge, requests, feasible, each) for each in (order[::-1], order)]
    return max(found, key=lambda it: it[:2])[2]


def _beam_search_in_order(
    edge: Edge, requests: Ints, feasible: Bools, order: Ints
) -> tuple[int, float, tuple[int, ...]]:
    """Adds pod after pod and keeps the best _BEAM_WIDTH placements. Returns the number of placed
    pods, the value, and each pod's node."""
    used = edge.used[np.newaxis].copy()
    value, nodes = np.zeros(1), np.full((1, len(requests)), NO_NODE)
    for pod in order.tolist():
        room = np.maximum(edge.capacity - used, 0)
        can = fits_in(requests[pod], room) & feasible[pod]
        gain = used_product(edge.capacity, used + requests[pod]) - used_product(edge.capacity, used)
        # One more pod outweighs any gain in packing, which is at most 1 for each node.
        grown = np.where(can, value[:, np.newaxis] + gain + len(edge.used) + 1, -np.inf)
        ranked = np.concatenate((grown, value[:, np.newaxis]), axis=1)
        keep = np.argsort(-ranked, axis=None, kind="stable")[:_BEAM_WIDTH]
        keep = keep[np.isfinite(ranked.ravel()[keep])]
        parent, node = np.divmod(keep, ranked.shape[1])
        used, nodes, value = used[parent].copy(), nodes[parent].copy(), ranked.ravel()[keep]
        placed = node < len(edge.used)
        nodes[placed, pod] = node[placed]
        used[placed, node[placed]] += requests[pod]
    return int((nodes[0] >= 0).sum()), float(value[0]), tuple(nodes[0].tolist())
