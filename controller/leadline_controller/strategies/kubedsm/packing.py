"""How pods pack onto edge nodes: KubeDSM's match (Algorithm 8) and reorderEdge (Algorithm 6). Pure.

Pods with equal requests and equal feasible nodes form a group, and subsets that take equally many
pods of each group are tried once. This is as exact as trying every subset. If there are still too
many, a bounded search runs instead, and its result is marked as not exact.

Amounts are in base units, CPU in the first column and memory in the second.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import comb, prod
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints

NO_NODE = -1
MAX_EXACT_SUBSETS = 4096  # 12 distinct pods have as many subsets
TOLERANCE = 1e-9  # sums of the same fractions in another order differ by less
_MAX_EXACT_WORK = 60_000_000  # 12 distinct pods on three large nodes
_BEAM_WIDTH = 64
_MAX_EXCHANGED = 600  # groups, of which every pair is tried
_MAX_EQUAL = 32  # ways to reorder


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """The edge nodes."""

    # capacity, used: shape (nodes, resources).
    capacity: Ints
    used: Ints

    @property
    def free(self) -> Ints:
        """Free resources, shape (nodes, resources), never negative."""
        left: Ints = np.maximum(self.capacity - self.used, 0)
        return left

    def with_pod(self, requests: Ints, node: int) -> "Edge":
        """The edge with a pod's requests, shape (resources,), added to a node."""
        used = self.used.copy()
        used[node] += requests
        return replace(self, used=used)

    def without_pod(self, requests: Ints, node: int) -> "Edge":
        """The edge with a pod's requests removed from a node."""
        return self.with_pod(-requests, node)


def used_product(capacity: Ints, used: Ints) -> Floats:
    """Product of the used fractions of CPU and memory of each node, shape (...,); 0 for a node
    without CPU or memory."""
    sizes = capacity[..., :2].astype(np.float64)
    fractions = np.divide(used[..., :2], sizes, out=np.zeros(used[..., :2].shape), where=sizes > 0)
    product: Floats = fractions.prod(axis=-1)
    return product


def fragmentation(edge: Edge) -> float:
    """Eq. 13, whose text is lost: minus the sum over the nodes of the products of the used
    fractions, which the authors' program minimises."""
    return -float(used_product(edge.capacity, edge.used).sum())


def fits_in(need: Ints, room: Ints) -> Bools:
    """Whether every needed resource is available, over the last axis."""
    fit: Bools = np.all((need <= 0) | (need <= room), axis=-1, keepdims=False)
    return fit


def group_equal(keys: Iterable[Hashable]) -> list[list[int]]:
    """Positions of equal keys, in the order of first occurrence."""
    found: dict[Hashable, list[int]] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, []).append(at)
    return list(found.values())


def _group_pods(requests: Ints, feasible: Bools, at: Ints) -> list[list[int]]:
    """Positions of the pods that are equal in requests, feasible nodes and their own node."""
    rows = zip(requests, feasible, at.tolist(), strict=True)
    return group_equal([(row.tobytes(), may.tobytes(), node) for row, may, node in rows])


def all_subsets(counts: Sequence[int]) -> Ints:
    """The number of pods of each group, for all subsets: shape (subsets, groups), the empty one
    first. counts: pods in each group."""
    grid = np.indices([count + 1 for count in counts])
    return grid.reshape(len(counts), -1).T.astype(np.int64)


def subset_count(counts: Sequence[int]) -> int:
    """The number of rows of `all_subsets`."""
    return prod(count + 1 for count in counts)


class Matching(NamedTuple):
    """Each pod's node, NO_NODE for none, and whether the search was exhaustive."""

    nodes: tuple[int, ...]
    exact: bool


def match(edge: Edge, requests: Ints, feasible: Bools) -> Matching:
    """The matching with the most pods, and of these the one with the least fragmentation
    (Algorithm 8, Eq. 14-16).

    requests: shape (pods, resources). feasible: nodes that pass the filters, shape (pods, nodes).
    """
    if not len(requests):
        return Matching((), exact=True)
    groups = _group_pods(requests, feasible, np.full(len(requests), NO_NODE))
    counts = [len(members) for members in groups]
    if subset_count(counts) <= MAX_EXACT_SUBSETS:
        first = [members[0] for members in groups]
        subsets = all_subsets(counts)
        can_hold = _can_hold(edge, subsets, requests[first], feasible[first])
        if int(can_hold.sum()) * len(subsets) <= _MAX_EXACT_WORK:
            chosen = _dynamic_program(edge, subsets, subsets @ requests[first], can_hold)
            nodes = [NO_NODE] * len(requests)
            for group, members in enumerate(groups):
                per_node = np.repeat(np.arange(len(chosen)), [row[group] for row in chosen])
                for pod, node in zip(members, per_node.tolist(), strict=False):
                    nodes[pod] = node
            return Matching(tuple(nodes), exact=True)
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
    # Back from the largest subset that can be matched with the least fragmentation.
    pods = np.where(np.isfinite(best), subsets.sum(axis=1), -1)
    largest = np.flatnonzero(pods == pods.max())
    state = int(largest[np.argmax(best[largest])])
    chosen = []
    for row in taken[::-1]:
        chosen.append(subsets[row[state]])
        state -= int(row[state])
    return chosen[::-1]


def _beam_search(edge: Edge, requests: Ints, feasible: Bools) -> tuple[int, ...]:
    """The better of two beam searches, largest pods first and smallest pods first. Each adds pod
    after pod and keeps the best _BEAM_WIDTH placements."""
    share = (requests / np.maximum(edge.capacity.max(axis=0), 1)).max(axis=1)
    order = np.argsort(share, kind="stable")
    found: list[tuple[int, float, tuple[int, ...]]] = []  # pods placed, value, node of each pod
    for pods in (order[::-1].tolist(), order.tolist()):
        used = edge.used[np.newaxis].copy()
        value, nodes = np.zeros(1), np.full((1, len(requests)), NO_NODE)
        for pod in pods:
            can = fits_in(requests[pod], np.maximum(edge.capacity - used, 0)) & feasible[pod]
            with_pod = used_product(edge.capacity, used + requests[pod])
            gain = with_pod - used_product(edge.capacity, used)
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
        found.append((int((nodes[0] >= 0).sum()), float(value[0]), tuple(nodes[0].tolist())))
    return max(found, key=lambda it: it[:2])[2]


Moves = tuple[tuple[int, int], ...]


class Reordering(NamedTuple):
    """(pod, node) for each pod that moves, in one or more ways that leave equally little
    fragmentation, and whether the search was exhaustive."""

    equal: Sequence[Moves]
    exact: bool


class MoveLimits(NamedTuple):
    """How many pods may move."""

    service: Ints  # of each pod, shape (pods,)
    most: Ints  # of each service, shape (services,)


def reorder_edge(
    edge: Edge,
    requests: Ints,
    feasible: Bools,
    at: Ints,
    most: int,
    limits: MoveLimits | None = None,
) -> Reordering:
    """Moves up to `most` pods for the least fragmentation, ties to fewer moves (Algorithm 6). No
    moves if none reduces it.

    requests: shape (pods, resources). feasible: shape (pods, nodes). at: each pod's node, where it
    may stay even if it does not pass the filters. limits: of the services, None for no limits.
    """
    nodes, chosen = len(edge.used), min(most, len(requests))
    if not chosen:
        return Reordering(((),), exact=True)
    groups = _group_pods(requests, feasible, at)
    if limits is not None:  # pods of two services are not alike then
        parts = ((group, limits.service[group]) for group in groups)
        groups = [
            [pod for pod, of in zip(group, services.tolist(), strict=True) if of == service]
            for group, services in parts
            for service in dict.fromkeys(services.tolist())
        ]
    work = comb(len(groups) + chosen - 1, chosen) * nodes ** (chosen + 1)
    if work > MAX_EXACT_SUBSETS * 64:
        moves = _greedy(edge, requests, feasible, at, chosen, limits)
        return Reordering((moves,), exact=False)
    subsets = np.array(list(_subsets(groups, chosen)), dtype=np.int64).reshape(-1, chosen)
    return Reordering(_best_rematch(edge, requests, feasible, at, subsets, limits), exact=True)


def _subsets(groups: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """One subset of `size` pods for each combination of groups."""
    for pick in combinations_with_replacement(range(len(groups)), size):
        if all(pick.count(group) <= len(groups[group]) for group in set(pick)):
            yield [groups[group][pick[:i].count(group)] for i, group in enumerate(pick)]


def _best_rematch(
    edge: Edge,
    requests: Ints,
    feasible: Bools,
    at: Ints,
    subsets: Ints,
    limits: MoveLimits | None,
) -> Sequence[Moves]:
    """Tries all nodes for all subsets at once; the moves that leave the least fragmentation, up to
    _MAX_EQUAL ways."""
    nodes, size = len(edge.used), subsets.shape[1]
    targets = np.indices([nodes] * size).reshape(size, -1).T
    place, request = at[subsets], requests[subsets]
    used = np.repeat(edge.used[np.newaxis], len(subsets), axis=0)
    for i in range(size):
        used[np.arange(len(subsets)), place[:, i]] -= request[:, i]
    used = np.repeat(used[:, np.newaxis], len(targets), axis=1)
    may = feasible | (np.arange(nodes) == at[:, np.newaxis])
    valid = np.ones(used.shape[:2], dtype=np.bool_)
    moves = np.zeros(used.shape[:2], dtype=np.int64)
    for i in range(size):
        used[:, np.arange(len(targets)), targets[:, i]] += request[:, np.newaxis, i]
        valid &= may[subsets[:, i]][:, targets[:, i]]
        moves += place[:, np.newaxis, i] != targets[:, i]
    if limits is not None:
        for service, most in enumerate(limits.most.tolist()):
            of_service = limits.service[subsets] == service
            moved = (of_service[:, np.newaxis] & (place[:, np.newaxis] != targets)).sum(axis=2)
            valid &= moved <= most
    # A node that is overcommitted may stay so, but must not get worse.
    valid &= (used <= np.maximum(edge.capacity, edge.used)).all(axis=(2, 3))
    gain = used_product(edge.capacity, used).sum(axis=2) + fragmentation(edge)
    gain = np.where(valid, np.round(gain / TOLERANCE), -np.inf)
    most_gained = gain.max(initial=0)
    if most_gained <= 0:
        return ((),)
    fewest = moves[gain == most_gained].min()
    least = np.flatnonzero((gain == most_gained) & (moves == fewest))[:_MAX_EQUAL]
    ways: dict[Moves, None] = {}  # the same pods can move as part of several subsets
    for subset, target in zip(*np.divmod(least, len(targets)), strict=True):
        pairs = zip(subsets[subset].tolist(), targets[target].tolist(), strict=True)
        ways[tuple((pod, node) for pod, node in pairs if node != at[pod])] = None
    return tuple(ways)


def _greedy(
    edge: Edge,
    requests: Ints,
    feasible: Bools,
    at: Ints,
    most: int,
    limits: MoveLimits | None,
) -> Moves:
    """Repeats the best single move or exchange, each pod once. With limits, a service of which
    fewer than two more may move stays, as an exchange may take both."""
    moved: dict[int, int] = {}
    at = at.copy()
    left = None if limits is None else limits.most.copy()
    while len(moved) < most:
        may = np.array([pod not in moved for pod in range(len(at))])
        if limits is not None and left is not None:
            may &= left[limits.service] > 1
        stay = np.flatnonzero(may)
        if not stay.size:
            break
        groups = _group_pods(requests[stay], feasible[stay], at[stay])
        some = stay[[members[0] for members in groups]]
        gain, step = _best_move(edge, requests[some], feasible[some], at[some])
        if len(moved) + 2 <= most and some.size <= _MAX_EXCHANGED:
            exchange = _best_exchange(edge, requests[some], feasible[some], at[some])
            gain, step = max((gain, step), exchange, key=lambda found: found[0])
        if gain <= TOLERANCE:
            break
        for one, node in step:
            pod = int(some[one])
            edge = edge.without_pod(requests[pod], int(at[pod])).with_pod(requests[pod], node)
            at[pod] = moved[pod] = node
            if limits is not None and left is not None:
                left[limits.service[pod]] -= 1
    return tuple(moved.items())


Step = tuple[float, tuple[tuple[int, int], ...]]


def _best_move(edge: Edge, requests: Ints, feasible: Bools, at: Ints) -> Step:
    left = used_product(edge.capacity[at], edge.used[at] - requests) - used_product(
        edge.capacity[at], edge.used[at]
    )
    there = edge.used + requests[:, np.newaxis]
    gain = (
        left[:, np.newaxis]
        + used_product(edge.capacity, there)
        - used_product(edge.capacity, edge.used)
    )
    can = feasible & fits_in(requests[:, np.newaxis], edge.free)
    can[np.arange(len(at)), at] = False
    gain = np.where(can, gain, -np.inf)
    pod, node = divmod(int(np.argmax(gain)), gain.shape[1])
    return float(gain[pod, node]), ((pod, node),)


def _best_exchange(edge: Edge, requests: Ints, feasible: Bools, at: Ints) -> Step:
    """The best pair of pods to swap."""
    capacity, used = edge.capacity[at], edge.used[at]
    after = used[:, np.newaxis] - requests[:, np.newaxis] + requests[np.newaxis]
    change = (
        used_product(capacity[:, np.newaxis], after) - used_product(capacity, used)[:, np.newaxis]
    )
    ceiling = np.maximum(capacity, used)[:, np.newaxis]
    can = (after <= ceiling).all(axis=2) & feasible[:, at].T
    can &= at[:, np.newaxis] != at
    gain = np.where(can & can.T, change + change.T, -np.inf)
    one, two = divmod(int(np.argmax(gain)), len(at))
    return float(gain[one, two]), ((one, int(at[two])), (two, int(at[one])))
