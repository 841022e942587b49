"""How pods pack onto the nodes of an edge: KubeDSM's fragmentation, match and reorderEdge, pure.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 13-16, Algorithms 6 and 8. Pods that want the same and may go to the same nodes
are one kind, and sets that differ only in which of them they name are tried once. That is as
exact as trying every subset, over fewer of them; where even those are too many, a bounded
search says that it ran.

Amounts are in base units, CPU in the first column and memory in the second.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import comb, prod
from typing import NamedTuple

import numpy as np

from leadline_controller.core.view import Bools, Floats, Ints

NOWHERE = -1
EXACT_STATES = 4096  # as many as 12 pods have subsets
_EXACT_WORK = 60_000_000  # 12 pods, each like no other, on three roomy nodes
_BEAM = 64
_MOST_EXCHANGED = 600  # kinds; every pair of them is weighed
_ALIKE = 1e-9  # sums of the same fractions in another order differ by less


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """The edge nodes. capacity, used: shape (nodes, resources)."""

    capacity: Ints
    used: Ints

    @property
    def free(self) -> Ints:
        """What is left, shape (nodes, resources); never negative."""
        left: Ints = np.maximum(self.capacity - self.used, 0)
        return left

    def with_pod(self, wants: Ints, node: int) -> "Edge":
        """After a pod that wants this, shape (resources,), came to the node."""
        used = self.used.copy()
        used[node] += wants
        return replace(self, used=used)

    def without_pod(self, wants: Ints, node: int) -> "Edge":
        """After a pod that has this left the node."""
        return self.with_pod(-wants, node)


class Matching(NamedTuple):
    """Each pod's node, NOWHERE for none, and whether every possibility was weighed."""

    nodes: tuple[int, ...]
    exact: bool


class Reordering(NamedTuple):
    """(pod, node) for each pod that goes elsewhere, and whether every possibility was weighed."""

    moves: tuple[tuple[int, int], ...]
    exact: bool


def packed(capacity: Ints, used: Ints) -> Floats:
    """Product of the used fractions of CPU and memory of each node, shape (...,); 0 where a node
    has none of one of them."""
    sizes = capacity[..., :2].astype(np.float64)
    fractions = np.divide(used[..., :2], sizes, out=np.zeros(used[..., :2].shape), where=sizes > 0)
    product: Floats = fractions.prod(axis=-1)
    return product


def fragmentation(edge: Edge) -> float:
    """Eq. 13, whose text is lost: less the sum over the nodes of the products of the used
    fractions, which is what the authors' program minimises."""
    return -float(packed(edge.capacity, edge.used).sum())


def fits_in(need: Ints, room: Ints) -> Bools:
    """Whether each resource that is needed at all is there, over the last axis."""
    fit: Bools = np.all((need <= 0) | (need <= room), axis=-1, keepdims=False)
    return fit


def kinds_of(keys: Sequence[Hashable]) -> list[list[int]]:
    """Positions of equal keys, in the order in which each first comes."""
    found: dict[Hashable, list[int]] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, []).append(at)
    return list(found.values())


def lattice(counts: Sequence[int]) -> Ints:
    """How many of each kind a set holds, for all sets: shape (sets, kinds), the empty set first."""
    grid = np.indices([count + 1 for count in counts])
    return grid.reshape(len(counts), -1).T.astype(np.int64)


def sets(counts: Sequence[int]) -> int:
    """How many sets `lattice` has."""
    return prod(count + 1 for count in counts)


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
            better = value > best[source + added] + _ALIKE
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


def reorder_edge(edge: Edge, wants: Ints, fits: Bools, at: Ints, most: int) -> Reordering:
    """Up to `most` pods to other nodes so that fragmentation is least, ties to fewer moves
    (Algorithm 6); no moves where none lessens it.

    wants: shape (pods, resources). fits: shape (pods, nodes). at: each pod's node, where it may
    stay whatever the filters say.
    """
    nodes, chosen = len(edge.used), min(most, len(wants))
    if not chosen:
        return Reordering((), exact=True)
    keys = zip(wants, fits, at.tolist(), strict=True)
    kinds = kinds_of([(row.tobytes(), may.tobytes(), place) for row, may, place in keys])
    work = comb(len(kinds) + chosen - 1, chosen) * nodes ** (chosen + 1)
    if work > EXACT_STATES * 64:
        return Reordering(_step_by_step(edge, wants, fits, at, chosen), exact=False)
    subsets = np.array(list(_subsets(kinds, chosen)), dtype=np.int64).reshape(-1, chosen)
    return Reordering(_best_rematch(edge, wants, fits, at, subsets), exact=True)


def _subsets(kinds: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """One subset of pods for each way to take `size` of the kinds."""
    for pick in combinations_with_replacement(range(len(kinds)), size):
        if all(pick.count(kind) <= len(kinds[kind]) for kind in set(pick)):
            yield [kinds[kind][pick[:i].count(kind)] for i, kind in enumerate(pick)]


def _best_rematch(
    edge: Edge, wants: Ints, fits: Bools, at: Ints, subsets: Ints
) -> tuple[tuple[int, int], ...]:
    """Every way to put every subset, all at once: the one that leaves the least fragmentation."""
    nodes, size = len(edge.used), subsets.shape[1]
    targets = np.indices([nodes] * size).reshape(size, -1).T
    place, want = at[subsets], wants[subsets]
    used = np.repeat(edge.used[np.newaxis], len(subsets), axis=0)
    for i in range(size):
        used[np.arange(len(subsets)), place[:, i]] -= want[:, i]
    used = np.repeat(used[:, np.newaxis], len(targets), axis=1)
    may = fits | (np.arange(nodes) == at[:, np.newaxis])
    valid = np.ones(used.shape[:2], dtype=np.bool_)
    moves = np.zeros(used.shape[:2], dtype=np.int64)
    for i in range(size):
        used[:, np.arange(len(targets)), targets[:, i]] += want[:, np.newaxis, i]
        valid &= may[subsets[:, i]][:, targets[:, i]]
        moves += place[:, np.newaxis, i] != targets[:, i]
    # A node that is overdrawn already may stay so, but may not get worse.
    valid &= (used <= np.maximum(edge.capacity, edge.used)).all(axis=(2, 3))
    gain = packed(edge.capacity, used).sum(axis=2) + fragmentation(edge)
    gain = np.where(valid, np.round(gain / _ALIKE), -np.inf)
    order = np.lexsort((moves.ravel(), -gain.ravel()))
    if gain.ravel()[order[0]] <= 0:
        return ()
    subset, target = divmod(int(order[0]), len(targets))
    pairs = zip(subsets[subset].tolist(), targets[target].tolist(), strict=True)
    return tuple((pod, node) for pod, node in pairs if node != at[pod])


def _step_by_step(
    edge: Edge, wants: Ints, fits: Bools, at: Ints, most: int
) -> tuple[tuple[int, int], ...]:
    """The best single move or exchange, again and again, each pod once."""
    moved: dict[int, int] = {}
    at = at.copy()
    while len(moved) < most:
        stay = [pod for pod in range(len(at)) if pod not in moved]
        keys = [(wants[pod].tobytes(), fits[pod].tobytes(), int(at[pod])) for pod in stay]
        some = np.array([stay[members[0]] for members in kinds_of(keys)], dtype=np.int64)
        gain, step = _best_move(edge, wants[some], fits[some], at[some])
        if len(moved) + 2 <= most and some.size <= _MOST_EXCHANGED:
            exchange = _best_exchange(edge, wants[some], fits[some], at[some])
            gain, step = max((gain, step), exchange, key=lambda found: found[0])
        if gain <= _ALIKE:
            break
        for one, node in step:
            pod = int(some[one])
            edge = edge.without_pod(wants[pod], int(at[pod])).with_pod(wants[pod], node)
            at[pod] = moved[pod] = node
    return tuple(moved.items())


Step = tuple[float, tuple[tuple[int, int], ...]]


def _best_move(edge: Edge, wants: Ints, fits: Bools, at: Ints) -> Step:
    left = packed(edge.capacity[at], edge.used[at] - wants) - packed(
        edge.capacity[at], edge.used[at]
    )
    there = edge.used + wants[:, np.newaxis]
    gain = left[:, np.newaxis] + packed(edge.capacity, there) - packed(edge.capacity, edge.used)
    can = fits & fits_in(wants[:, np.newaxis], edge.free)
    can[np.arange(len(at)), at] = False
    gain = np.where(can, gain, -np.inf)
    pod, node = divmod(int(np.argmax(gain)), gain.shape[1])
    return float(gain[pod, node]), ((pod, node),)


def _best_exchange(edge: Edge, wants: Ints, fits: Bools, at: Ints) -> Step:
    """Over pairs: the first goes to the second's node, and the other way round."""
    capacity, used = edge.capacity[at], edge.used[at]
    after = used[:, np.newaxis] - wants[:, np.newaxis] + wants[np.newaxis]
    change = packed(capacity[:, np.newaxis], after) - packed(capacity, used)[:, np.newaxis]
    ceiling = np.maximum(capacity, used)[:, np.newaxis]
    can = (after <= ceiling).all(axis=2) & fits[:, at].T
    can &= at[:, np.newaxis] != at
    gain = np.where(can & can.T, change + change.T, -np.inf)
    one, two = divmod(int(np.argmax(gain)), len(at))
    return float(gain[one, two]), ((one, int(at[two])), (two, int(at[one])))
