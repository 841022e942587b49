"""Finds the nodes whose reports contradict those of their peers. Pure.

A ping measures the same round trip from either end, and of a bandwidth test both ends report. Where
they disagree, one is wrong, and the pair does not say which one. But a node that is wrong disagrees
with most of its peers, and these agree with most of theirs. So a majority of the peers decides, and
it is right as long as most of the peers of each node are.
"""

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints

# Two of three nodes outvote the third. In a larger cluster the first two peers of a node may both
# be wrong, so more have to vote.
LEAST_AGAINST, _LEAST_VOTES = 2, 5
_OUT_ABOVE = 0.5  # the share of its peers that a node contradicts
_ENOUGH_VOTES = 8
_MAX_PASSES = 10
_FACTOR, _DEVIATIONS, _LEAST_DIFFERENCE_MS = 2.0, 5.0, 0.2
# The lower quartile of the absolute values of a normal distribution, in standard deviations. With a
# wrong one of four nodes, half of the pairs differ, so their median says nothing about noise.
_QUARTILE = 0.3186


def outvoted(count: int, ends: Ints, disagree: Bools) -> Bools:
    """Which of `count` nodes contradict most of the peers that can be trusted, shape (count,).

    ends: the nodes of m pairs that both ends reported, shape (m, 2), each pair once. disagree:
    whether they disagree, shape (m,). O(m).
    """
    suspect = np.zeros(count, dtype=np.bool_)
    votes, against = np.zeros(count), np.zeros(count)
    for _ in range(_MAX_PASSES):
        votes, against = np.zeros(count), np.zeros(count)
        for voter, node in ((0, 1), (1, 0)):
            trusted = ~suspect[ends[:, voter]]
            votes += np.bincount(ends[trusted, node], minlength=count)
            against += np.bincount(ends[trusted & disagree, node], minlength=count)
        # The first pass suspects all that disagree with many; the others clear those that did so
        # only with suspects.
        found: Bools = (against > _OUT_ABOVE * votes) & (against >= LEAST_AGAINST)
        if (found == suspect).all():
            break
        suspect = found
    return suspect & (votes >= min(_LEAST_VOTES, count // 2 + 1))


def compare(said_ms: Floats, moved: Floats) -> tuple[Bools, Bools]:
    """Of which pairs both ends' round trips can be compared, and whether they differ by more than
    noise, shapes (m,). said_ms: shape (m, 2).

    moved: by how much the end that reported last has changed its mind since the other one reported,
    |log(ratio)|, shape (m,): if the path has changed, the other end is to say so first.
    Noise is estimated from the quarter of the pairs that differ least.
    """
    if not len(said_ms):
        return np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.bool_)
    gap = abs(np.log(said_ms[:, 0] / said_ms[:, 1]))
    noise = float(np.quantile(gap, 0.25, method="lower")) / _QUARTILE
    most = max(float(np.log(_FACTOR)), _DEVIATIONS * noise)
    differ: Bools = (gap > most) & (abs(said_ms[:, 0] - said_ms[:, 1]) > _LEAST_DIFFERENCE_MS)
    return moved <= most, differ


def to_be_checked(count: int, ends: Ints, is_said: Bools, random: np.random.Generator) -> Ints:
    """Which nodes are to ping which peers, so that soon enough pairs of each node have a report
    from both ends: shape (k, 2), each node at most once in each column. O(m).

    is_said: whether there is a report from each end of the m pairs, shape (m, 2).
    """
    votes = np.bincount(ends[is_said.all(axis=1)].ravel(), minlength=count)
    rows = random.permutation(np.flatnonzero(is_said[:, 0] != is_said[:, 1]))
    rows = rows[(votes[ends[rows]] < _ENOUGH_VOTES).any(axis=1)]
    silent = np.where(is_said[rows], 1, 0)[:, 0]
    asked = np.stack((ends[rows, silent], ends[rows, 1 - silent]), axis=1)
    for column in (0, 1):
        asked = asked[np.unique(asked[:, column], return_index=True)[1]]
    return asked
