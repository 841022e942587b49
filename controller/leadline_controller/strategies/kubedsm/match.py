"""match: new pods on the nodes of an edge, KubeDSM's Algorithm 8, pure.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 14-16.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.strategies.kubedsm.packing import (
    ALIKE,
    EXACT_STATES,
    NOWHERE,
    Edge,
    fits_in,
    kinds_of,
    lattice,
    packed,
    sets,
)

_EXACT_WORK = 60_000_000  # 12 pods, each like no other, on three roomy nodes
_BEAM = 64


class Matching(NamedTuple):
    """Each pod's node, NOWHERE for none, and whether every possibility was weighed."""

    nodes: tuple[int, ...]
    exact: bool


def match(edge: Edge, wants: Ints, fits: Bools) -> Matching:
    """As many of the pods as can be on the nodes, and of those matchings the one with the least
    fragmentation (Algorithm 8, Eq. 14-16).

    wants: shape (pods, resources). fits: shape (pods, nodes), where the filters allow a pod.
    """
    kinds = kinds_of([(row.tobytes(), may.tobytes()) for row, may in zip(wants, fits, strict=True)])
    counts = [len(members) for members in kinds]
    if not kinds:
        return Matching((), exact=True)
    if sets(counts) <= EXACT_STATES:
        first = [members[0] for members in kinds]
        states = lattice(counts)
        holds = _holds(edge, states, wants[first], fits[first])
        if int(holds.sum()) * len(states) <= _EXACT_WORK:
            chosen = _programme(edge, states, states @ wants[first], holds)
            return Matching(_spread(kinds, chosen, len(wants)), exact=True)
    return Matching(_beam(edge, wants, fits), exact=False)


def _holds(edge: Edge, states: Ints, wants: Ints, fits: Bools) -> Bools:
    """Whether a node can hold a set of pods, shape (nodes, sets)."""
    need = states @ wants
    holds: Bools = (states @ (~fits).astype(np.int64)).T == 0
    for node, room in enumerate(edge.free):
        holds[node] &= fits_in(need, room)
    return holds


def _programme(edge: Edge, states: Ints, need: Ints, holds: Bools) -> list[Ints]:
    """What each node gets in the best matching: one row of `states` a node."""
    most = states[-1]
    sources: dict[int, Ints] = {}
    best = np.full(len(states), -np.inf)
    best[0] = 0.0
    taken = np.zeros((len(edge.used), len(states)), dtype=np.int64)
    for node, (capacity, used) in enumerate(zip(edge.capacity, edge.used, strict=True)):
        gain = packed(capacity, used + need) - packed(capacity, used)
        before, best = best, best.copy()
        for added in np.flatnonzero(holds[node])[1:].tolist():  # the empty set is `before`
            if added not in sources:
                roomy = (states + states[added] <= most).all(axis=1)
                sources[added] = np.flatnonzero(roomy)
            source = sources[added]
            value = before[source] + gain[added]
            better = value > best[source + added] + ALIKE
            reached = source[better] + added
            best[reached] = value[better]
            taken[node, reached] = added
    return list(_traced(states, best, taken))[::-1]


def _traced(states: Ints, best: Floats, taken: Ints) -> Iterator[Ints]:
    """Back from the largest set that can be matched, of those the least fragmented."""
    pods = np.where(np.isfinite(best), states.sum(axis=1), -1)
    largest = np.flatnonzero(pods == pods.max())
    state = int(largest[np.argmax(best[largest])])
    for row in taken[::-1]:
        added = int(row[state])
        yield states[added]
        state -= added


def _spread(kinds: Sequence[Sequence[int]], chosen: Sequence[Ints], pods: int) -> tuple[int, ...]:
    """Which pods go where, from how many of each kind do."""
    nodes = [NOWHERE] * pods
    for kind, members in enumerate(kinds):
        left = iter(members)
        for node, row in enumerate(chosen):
            for _ in range(int(row[kind])):
                nodes[next(left)] = node
    return tuple(nodes)


def _beam(edge: Edge, wants: Ints, fits: Bools) -> tuple[int, ...]:
    """The better of two bounded searches: the pods from the largest, and from the smallest."""
    share = (wants / np.maximum(edge.capacity.max(axis=0), 1)).max(axis=1)
    order = np.argsort(share, kind="stable")
    found = [_beam_in(edge, wants, fits, each) for each in (order[::-1], order)]
    return max(found, key=lambda it: it[:2])[2]


def _beam_in(
    edge: Edge, wants: Ints, fits: Bools, order: Ints
) -> tuple[int, float, tuple[int, ...]]:
    """Pod after pod, keeping the most promising placements so far."""
    used = edge.used[np.newaxis].copy()
    value, nodes = np.zeros(1), np.full((1, len(wants)), NOWHERE)
    for pod in order.tolist():
        room = np.maximum(edge.capacity - used, 0)
        can = fits_in(wants[pod], room) & fits[pod]
        gain = packed(edge.capacity, used + wants[pod]) - packed(edge.capacity, used)
        # A pod more outweighs every gain in packing, which is at most 1 a node.
        grown = np.where(can, value[:, np.newaxis] + gain + len(edge.used) + 1, -np.inf)
        ranked = np.concatenate((grown, value[:, np.newaxis]), axis=1)
        keep = np.argsort(-ranked, axis=None, kind="stable")[:_BEAM]
        keep = keep[np.isfinite(ranked.ravel()[keep])]
        parent, node = np.divmod(keep, ranked.shape[1])
        used, nodes, value = used[parent].copy(), nodes[parent].copy(), ranked.ravel()[keep]
        placed = node < len(edge.used)
        nodes[placed, pod] = node[placed]
        used[placed, node[placed]] += wants[pod]
    return int((nodes[0] >= 0).sum()), float(value[0]), tuple(nodes[0].tolist())
