"""The deletion costs of a workload's replicas, from how good each one's place is. Pure.

A ReplicaSet removes the replica with the lowest cost first, and one without a cost counts as 0. So
all costs here are far above 0, and so far apart that a new replica finds room between two others.
A replica keeps its cost as long as its place in the order is right.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import Floats, Ints

_FIRST, _STEP = 1_000_000_000, 10_000
_LOWEST, _HIGHEST = _FIRST // 2, _FIRST // 2 * 3


def is_ours(cost: int) -> bool:
    """Whether it is a cost that `costs` may have given."""
    return _LOWEST < cost <= _HIGHEST


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica, and what decides about its cost."""

    pod: Pod
    # The cost that it has, None without one.
    cost: int | None
    # Of two equal ones the older stays longer; the least is the oldest.
    age: tuple[float, float, int, str]
    # The highest stays longest; -inf if it is unknown.
    score: float = 0.0

    @property
    def key(self) -> tuple[float, tuple[float, float, int, str]]:
        """The least stays longest."""
        return -self.score, self.age


def costs(replicas: Sequence[Replica], tolerance: float = 0.0) -> list[tuple[Replica, int]]:
    """The replicas and their costs, the highest first.

    As many as possible keep theirs, and the others come where their scores belong. tolerance: two
    replicas keep their order until the lower one's score exceeds the other's by more than this.
    """
    with_cost = {each.cost: each for each in replicas if each.cost is not None}  # one for each
    ranked = [with_cost[cost] for cost in sorted(with_cost, reverse=True)]
    scores = np.array([each.score for each in ranked])
    kept = [ranked[at] for at in in_order(scores, tolerance).tolist()]
    keeps = {each.pod.uid for each in kept}
    least_from = list(accumulate((each.key for each in reversed(kept)), min))[::-1]
    order = [(at, False, each.key, each) for at, each in enumerate(kept)]
    # A newcomer comes after the last one that is to stay longer.
    order += [
        (bisect_right(least_from, each.key) - 1, True, each.key, each)
        for each in replicas
        if each.pod.uid not in keeps
    ]
    found = [each for *_, each in sorted(order, key=lambda place: place[:3])]
    given = [each.cost if each.pod.uid in keeps else None for each in found]
    return list(zip(found, _filled(given), strict=True))


def in_order(scores: Floats, tolerance: float) -> Ints:
    """Positions of the most scores of which none exceeds one before it by more than the tolerance.
    scores: shape (n,), none NaN."""
    if (scores <= np.minimum.accumulate(scores) + tolerance).all():
        return np.arange(scores.size)
    # What may follow depends only on the least score so far. For each position, the length of the
    # longest sequence whose least score is there, and the position of the least one before that.
    length, before = np.ones(scores.size, dtype=np.int64), np.full(scores.size, -1)
    for at, score in enumerate(scores):
        earlier = scores[:at]
        above = np.flatnonzero(earlier > score)
        if above.size:
            before[at] = above[np.argmax(length[above])]
            length[at] += length[before[at]]
        length[:at] += (earlier <= score) & (score <= earlier + tolerance)
    kept, least, end = list[Ints](), int(np.argmax(length)), scores.size
    while least >= 0:
        later = scores[least:end]
        near = (scores[least] <= later) & (later <= scores[least] + tolerance)
        kept.append(least + np.flatnonzero(near))
        least, end = int(before[least]), least
    return np.concatenate(kept[::-1])


def _filled(given: Sequence[int | None]) -> list[int]:
    """Falling costs, with those that are given; all anew if there is no room between two."""
    filled = list[int]()
    for cost, run in groupby(given):
        if cost is not None:
            filled.append(cost)
            continue
        count = sum(1 for _ in run)
        below = given[len(filled) + count] if len(filled) + count < len(given) else None
        above = filled[-1] if filled else None
        if above is None:
            above = _FIRST + _STEP if below is None else below + _STEP * (count + 1)
        step = _STEP if below is None else (above - below) // (count + 1)
        filled += [above - step * (at + 1) for at in range(count)]
    if all(a > b for a, b in pairwise(filled)) and all(map(is_ours, filled)):
        return filled
    return [_FIRST - _STEP * at for at in range(len(given))]
