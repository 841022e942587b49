"""Finds the nodes whose reports contradict those of their peers. Pure.

A ping measures the same round trip from either end, and of a bandwidth test both ends report. Where
they disagree, one is wrong, and the pair does not say which one. But a node that is wrong disagrees
with most of its peers, and these agree with most of theirs. So a majority of the peers decides, and
it is right as long as most of the peers of each node are.
"""

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints

# Two of three nodes outvote the third. In a larger cluster the first two peers of a node may both be
# wrong, so more have to vote.
_LEAST_AGAINST, _LEAST_VOTES = 2, 5
# A node is out from the first share of its peers on, and in again below the second one.
_OUT_ABOVE, _OUT_UNTIL = 0.5, 0.25
_MAX_PASSES = 10
_FACTOR, _DEVIATIONS, _LEAST_DIFFERENCE_MS = 2.0, 5.0, 0.2
_TO_STANDARD = 1.4826  # standard deviation of a normal distribution by its median deviation


def outvoted(count: int, ends: Ints, disagree: Bools, already: Bools) -> Bools:
    """Which of `count` nodes contradict most of the peers that can be trusted, shape (count,).

    ends: the nodes of m pairs that both ends reported, shape (m, 2), each pair once. disagree:
    whether they disagree, shape (m,). already: the nodes that contradicted so far. O(m).
    """
    limit = np.where(already, _OUT_UNTIL, _OUT_ABOVE)
    least = min(_LEAST_VOTES, count // 2 + 1)
    out = np.zeros(count, dtype=np.bool_)
    for _ in range(_MAX_PASSES):
        votes, against = np.zeros(count), np.zeros(count)
        for voter, node in ((0, 1), (1, 0)):
            trusted = ~out[ends[:, voter]]
            votes += np.bincount(ends[trusted, node], minlength=count)
            against += np.bincount(ends[trusted & disagree, node], minlength=count)
        # The first pass suspects all that disagree with many; the others clear those that did so
        # only with suspects.
        found: Bools = (against > limit * votes) & (against >= _LEAST_AGAINST) & (votes >= least)
        if (found == out).all():
            break
        out = found
    return out


def differ(said_ms: Floats) -> Bools:
    """Whether both ends' round trips differ by more than noise, shape (m,). said_ms: shape (m, 2).

    Noise is what most pairs differ by, as long as less than half of them have a wrong end.
    """
    if not len(said_ms):
        return np.zeros(0, dtype=np.bool_)
    gap = abs(np.log(said_ms[:, 0] / said_ms[:, 1]))
    noise = _TO_STANDARD * float(np.median(gap))
    beyond: Bools = gap > max(np.log(_FACTOR), _DEVIATIONS * noise)
    return beyond & (abs(said_ms[:, 0] - said_ms[:, 1]) > _LEAST_DIFFERENCE_MS)
