"""reorderEdge: pods to other nodes of an edge for less fragmentation, KubeDSM's Algorithm 6, pure.

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
    ALIKE,
    EXACT_STATES,
    Edge,
    fits_in,
    fragmentation,
    kinds_of,
    packed,
)

_MOST_EXCHANGED = 600  # kinds; every pair of them is weighed


class Reordering(NamedTuple):
    """(pod, node) for each pod that goes elsewhere, and whether every possibility was weighed."""

    moves: tuple[tuple[int, int], ...]
    exact: bool


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
    gain = np.where(valid, np.round(gain / ALIKE), -np.inf)
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
        if gain <= ALIKE:
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
