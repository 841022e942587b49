"""reorderEdge: moves pods between edge nodes for less fragmentation, KubeDSM's Algorithm 6. Pure.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters".
"""

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from math import comb
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import Bools, Ints
from leadline_controller.strategies.kubedsm.packing import (
    MAX_EXACT_SUBSETS,
    TOLERANCE,
    Edge,
    fits_in,
    fragmentation,
    group_equal,
    used_product,
)

_MAX_EXCHANGED = 600  # groups, of which every pair is tried


class Reordering(NamedTuple):
    """(pod, node) for each pod that moves, and whether the search was exhaustive."""

    moves: tuple[tuple[int, int], ...]
    exact: bool


def reorder_edge(edge: Edge, requests: Ints, feasible: Bools, at: Ints, most: int) -> Reordering:
    """Moves up to `most` pods for the least fragmentation, ties to fewer moves (Algorithm 6). No
    moves if none reduces it.

    requests: shape (pods, resources). feasible: shape (pods, nodes). at: each pod's node, where it
    may stay even if it does not pass the filters.
    """
    nodes, chosen = len(edge.used), min(most, len(requests))
    if not chosen:
        return Reordering((), exact=True)
    keys = zip(requests, feasible, at.tolist(), strict=True)
    groups = group_equal([(row.tobytes(), may.tobytes(), place) for row, may, place in keys])
    work = comb(len(groups) + chosen - 1, chosen) * nodes ** (chosen + 1)
    if work > MAX_EXACT_SUBSETS * 64:
        return Reordering(_greedy(edge, requests, feasible, at, chosen), exact=False)
    subsets = np.array(list(_subsets(groups, chosen)), dtype=np.int64).reshape(-1, chosen)
    return Reordering(_best_rematch(edge, requests, feasible, at, subsets), exact=True)


def _subsets(groups: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """One subset of `size` pods for each combination of groups."""
    for pick in combinations_with_replacement(range(len(groups)), size):
        if all(pick.count(group) <= len(groups[group]) for group in set(pick)):
            yield [groups[group][pick[:i].count(group)] for i, group in enumerate(pick)]


def _best_rematch(
    edge: Edge, requests: Ints, feasible: Bools, at: Ints, subsets: Ints
) -> tuple[tuple[int, int], ...]:
    """Tries all nodes for all subsets at once; the moves that leave the least fragmentation."""
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
    # A node that is overcommitted may stay so, but must not get worse.
    valid &= (used <= np.maximum(edge.capacity, edge.used)).all(axis=(2, 3))
    gain = used_product(edge.capacity, used).sum(axis=2) + fragmentation(edge)
    gain = np.where(valid, np.round(gain / TOLERANCE), -np.inf)
    order = np.lexsort((moves.ravel(), -gain.ravel()))
    if gain.ravel()[order[0]] <= 0:
        return ()
    subset, target = divmod(int(order[0]), len(targets))
    pairs = zip(subsets[subset].tolist(), targets[target].tolist(), strict=True)
    return tuple((pod, node) for pod, node in pairs if node != at[pod])


def _greedy(
    edge: Edge, requests: Ints, feasible: Bools, at: Ints, most: int
) -> tuple[tuple[int, int], ...]:
    """Repeats the best single move or exchange, each pod once."""
    moved: dict[int, int] = {}
    at = at.copy()
    while len(moved) < most:
        stay = [pod for pod in range(len(at)) if pod not in moved]
        keys = [(requests[pod].tobytes(), feasible[pod].tobytes(), int(at[pod])) for pod in stay]
        some = np.array([stay[members[0]] for members in group_equal(keys)], dtype=np.int64)
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
