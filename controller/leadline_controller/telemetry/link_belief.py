"""How fast a link probably is, given the results of tests with it. Pure: arrays in, arrays out.

A link's speed is one of SPEEDS_MBPS, and it may change at any time, so each node has a hidden
Markov chain over its results: a result multiplies the probability of each speed by what it says,
and between two results a part of the probability goes back to what it was before any test. A test
measures the slower one of two links, so what it says of one depends on what is known of the other
at that time from all other results of it (belief propagation). Nothing else is state, so the same
results give the same belief.

The letters of the shapes: n nodes, k results of each, g speeds, m results.
"""

from math import log

import numpy as np

from leadline_controller.framework.view import Floats

# In equal ratios of 1.23, so that two results of one link, which differ by a fifth at most, are in
# the same or the next one.
SPEEDS_MBPS: Floats = np.geomspace(0.1, 51_200.0, 64)
_LOG_MBPS: Floats = np.log(SPEEDS_MBPS)
_HALF_STEP = float(_LOG_MBPS[1] - _LOG_MBPS[0]) / 2
_RANGE = float(_LOG_MBPS[-1] - _LOG_MBPS[0])
# The deviation of a result from the link's speed, as a logarithm.
_DEVIATION = 0.1
# How probable it is that a shaper's burst was in all of a short test.
_BURST = 0.2
# A link changes once in so long, and as often as if a test were so much longer ago.
_CHANGES_S, _AT_LEAST_S = 7200.0, 20.0
# How often a link does what its interface says, and how near to that it is then.
_AT_SPEED, _NEAR_SPEED = 0.5, 0.75
# What TCP may carry above the speed that an interface says, by rounding.
_OVER_SPEED = 1.1
_TINY = 1e-12
# How much less probable what is between two groups of speeds is than either.
_DEEP = 0.2


def change_chance(passed_s: Floats) -> Floats:
    """The probability that a link changed in so many seconds, same shape."""
    return -np.expm1(-(np.maximum(passed_s, 0.0) + _AT_LEAST_S) / _CHANGES_S)


def prior(link_mbps: Floats) -> Floats:
    """What is known before any test: no link is faster than its interface. link_mbps: infinite if
    unknown, shape (n,). Returns probabilities, shape (n, g)."""
    most = np.maximum(link_mbps, SPEEDS_MBPS[0])[:, np.newaxis]
    is_possible = _OVER_SPEED * most >= SPEEDS_MBPS
    is_at_speed = is_possible & (_NEAR_SPEED * most <= SPEEDS_MBPS)
    any_speed = is_possible / is_possible.sum(axis=1, keepdims=True)
    its_speed = is_at_speed / np.maximum(is_at_speed.sum(axis=1, keepdims=True), 1)
    share = np.where(is_at_speed.any(axis=1, keepdims=True), _AT_SPEED, 0.0)
    return np.asarray(any_speed + share * (its_speed - any_speed))


def share_of_range(low_mbps: float, high_mbps: float) -> float:
    """Which part of all speeds is between these, at least one step of them."""
    return min((log(high_mbps) - log(low_mbps) + 2 * _HALF_STEP) / _RANGE, 1.0)


def window_likelihood(windows: Floats) -> Floats:
    """How probable tests are at each speed of a link. Of each: the least speed that it shows, if a
    burst was in all of it, the least without a burst, and the most, Mbit/s; how probable it is all
    the same if the link is slower, and if it is faster; and by which power of the ratio a still
    faster link makes that less probable. Shape (m, 6). Returns shape (m, g)."""
    with np.errstate(divide="ignore"):
        low, likely, high = np.log(windows[:, :3].T[..., np.newaxis])
    below, above, power = windows[:, 3:].T[..., np.newaxis]
    apart = np.maximum(low - _LOG_MBPS, _LOG_MBPS - high) - _HALF_STEP
    inside = np.exp(-0.5 * (np.maximum(apart, 0.0) / _DEVIATION) ** 2)
    inside *= np.where(likely - _HALF_STEP > _LOG_MBPS, _BURST, 1.0)
    with np.errstate(invalid="ignore"):
        faster = above * np.exp(-power * np.maximum(_LOG_MBPS - high, 0.0))
    return np.asarray(np.maximum(inside, np.where(low > _LOG_MBPS, below, faster)))


def through_peer(own: Floats, of_peer: Floats, peer: Floats, busier_mbps: Floats) -> Floats:
    """What results say of one link if the slower one of two was measured. own, of_peer: what they
    say of this and of the other link if it is the slower one; peer: the probability of each speed
    of the other; shapes (m, g). busier_mbps: how much more of the other is used, shape (m,)."""
    limit_mbps = SPEEDS_MBPS * (1 - 1e-9) + busier_mbps[:, np.newaxis]
    first = np.searchsorted(SPEEDS_MBPS, limit_mbps)  # of the other that is no slower
    zero = np.zeros((len(peer), 1))
    slower = np.concatenate((zero, np.cumsum(peer * of_peer, axis=1)), axis=1)
    below = np.concatenate((zero, np.cumsum(peer, axis=1)), axis=1)
    no_slower = 1.0 - np.take_along_axis(below, first, axis=1)
    return np.asarray(np.take_along_axis(slower, first, axis=1) + own * no_slower)


def smooth(likelihood: Floats, chance: Floats, before: Floats) -> tuple[Floats, Floats]:
    """Filter and smooth. likelihood: of the results, the oldest first, shape (n, k, g), 1 where a
    node has fewer. chance: that the link changed before each, shape (n, k). before: the prior,
    shape (n, g). Returns the probabilities after the last result, shape (n, g), and those at each
    result from all others, shape (n, k, g)."""
    at, others = before, np.empty_like(likelihood)
    for i in range(likelihood.shape[1]):
        at = at + chance[:, i, np.newaxis] * (before - at)
        others[:, i] = at
        at = at * likelihood[:, i]
        at = at / np.maximum(at.sum(axis=1, keepdims=True), _TINY)
    after = np.ones_like(before)
    for i in reversed(range(likelihood.shape[1])):
        others[:, i] *= after
        after = after * likelihood[:, i]
        mean = (before * after).sum(axis=1, keepdims=True)
        after += chance[:, i, np.newaxis] * (mean - after)
        after /= np.maximum(after.max(axis=1, keepdims=True), _TINY)
    others /= np.maximum(others.sum(axis=2, keepdims=True), _TINY)
    return at, others


def later(belief: Floats, chance: Floats, before: Floats) -> Floats:
    """The probabilities after links may have changed. Shapes (n, g), (n,), (n, g)."""
    return belief + chance[:, np.newaxis] * (before - belief)


def valley(belief: Floats, least: float) -> int | None:
    """Where two groups of speeds part, each of this probability at least; None if nowhere. belief:
    the probabilities, shape (g,)."""
    wide = np.convolve(belief, np.ones(3), "same")
    peaks = np.minimum(np.maximum.accumulate(wide), np.maximum.accumulate(wide[::-1])[::-1])
    lower = np.cumsum(belief) - belief
    depth = np.where((lower >= least) & (lower <= 1 - least), wide / np.maximum(peaks, _TINY), 1.0)
    at = int(depth.argmin())
    return at if depth[at] < _DEEP else None
