"""What is believed of one link, in one value with its kind, its error and its reason. Pure.

A test of a busy board says that the link can do at least so much, and contradicts nothing. Times
are seconds on the controller's monotonic clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median_low

import numpy as np

from leadline_controller.framework.view import Floats
from leadline_controller.telemetry.bandwidth_tests import AGREEING_SHARE, Window
from leadline_controller.telemetry.link_belief import SPEEDS_MBPS, valley

# A value is exact if its probability is so much. If not, the link does at least what is improbable
# to be too much; and of two groups of speeds that part, neither may be improbable.
_SURE, _IMPROBABLE = 0.6, 0.1
# What a server says again within so long is no more than what it said before.
_AGAIN_S = 120.0
# How near a test is to the most probable speed, and a bound to what is improbable to be too much.
_NEAR, _OVER = 0.7, 1.15
# Where a value is from.
TESTS, COUNTERS, INTERFACE, PULLS = "tests", "counters", "interface", "pulls"
# Why it is a bound.
BUSY, PEER, SHORT, OWN = "busy", "peer", "short", "own"
_REASONS = {
    BUSY: "the board was busy",
    PEER: "the peer's link is no faster",
    SHORT: "the test was short",
    OWN: "no other node has measured more",
}


@dataclass(frozen=True, slots=True)
class LinkBandwidth:
    """The bandwidth of one node's link."""

    mbps: float
    at_s: float  # when a test agreed with it last
    lower_bound: bool = False  # the link can do at least this
    reason: str = ""  # why it is a bound: BUSY, PEER, SHORT or OWN
    source: str = TESTS
    # Of a suspect node: what the other tests say, and what the newest one says. The lower one
    # counts.
    former_mbps: float = field(default=0.0, compare=False)
    suspected_mbps: float | None = None

    @property
    def is_suspect(self) -> bool:
        """Whether one test contradicts what was believed, and another one is to decide."""
        return self.suspected_mbps is not None

    @property
    def is_host_limited(self) -> bool:
        """Whether it is a bound because a board was too busy, throttled or under voltage."""
        return self.reason == BUSY and not self.is_suspect

    def __str__(self) -> str:
        if self.suspected_mbps is not None:
            was = "was " if self.suspected_mbps < self.former_mbps else ""
            return f"{was}{self.former_mbps:.3g}, one test says {self.suspected_mbps:.3g}: checking"
        if self.source == INTERFACE or not self.lower_bound:
            return f"{self.mbps:.3g} Mbit/s"
        why = _REASONS.get(self.reason, f"from its {self.source}")
        return f"at least {self.mbps:.3g} Mbit/s ({why})"


@dataclass(frozen=True, slots=True)
class NodeLink:
    """What is known of a node's link."""

    name: str
    link_mbps: float | None = None  # the speed of its interface, None if unknown
    bandwidth: LinkBandwidth | None = None
    # The probability of each of SPEEDS_MBPS now, shape (g,); None before the first test.
    belief: Floats | None = field(default=None, compare=False)
    last_peer: str = ""  # the other node of its last test
    is_measured: bool = False  # another node has measured it
    used_mbps: float = 0.0  # its users' traffic
    wanted_mbps: float = 0.0  # what its pods request
    contradicted_s: float = -inf  # when traffic or round trips last contradicted what is believed

    @property
    def is_wanted(self) -> bool:
        """Whether pods request more than the lower bound that is known."""
        bandwidth = self.bandwidth
        return bandwidth is not None and bandwidth.lower_bound and self.wanted_mbps > bandwidth.mbps


@dataclass(slots=True, eq=False)
class LinkTest:
    """A test as one of its two nodes sees it."""

    node: str
    at_s: float
    is_own: bool  # the node was the server, so that it measured this itself
    is_exact: bool
    is_hindered: bool
    mbps: float  # its rate
    window: Window  # what it says of the node's link, if that is the slower one
    used_mbps: float  # the node's users' traffic
    other: "LinkTest" = field(init=False)
    # What it says of the link, by what was known of the peer then, shape (g,).
    likelihood: Floats = field(init=False)

    def is_like(self, before: "LinkTest") -> bool:
        """Whether both show the same in the same way."""
        kinds = (self.is_own, self.is_exact, self.is_hindered)
        ratio = self.window.low_mbps / before.window.low_mbps
        is_same_kind = kinds == (before.is_own, before.is_exact, before.is_hindered)
        return is_same_kind and AGREEING_SHARE <= ratio <= 1 / AGREEING_SHARE

    def is_again(self, after: "LinkTest") -> bool:
        """Whether the same server says the same soon after."""
        return self.other.node == after.other.node and after.at_s - self.at_s <= _AGAIN_S

    def agrees(self, mbps: float, *, is_bound: bool) -> bool:
        """Whether it shows this value: of a bound no less, and else neither half of it."""
        low, likely, high = self.window
        if is_bound:
            return likely >= AGREEING_SHARE * mbps
        return AGREEING_SHARE * low <= mbps <= min(2 * likely, high / AGREEING_SHARE)


def read_belief(belief: Floats, tests: Sequence[LinkTest]) -> LinkBandwidth:
    """What is believed of a link in one value. belief: the probabilities, shape (g,)."""
    split = valley(belief, _IMPROBABLE)
    if split is None:
        return _value(belief, tests)
    between_mbps = SPEEDS_MBPS[split]
    below = [each for each in tests if each.window.high_mbps < between_mbps]
    above = [each for each in tests if each.window.low_mbps >= between_mbps]
    # Where no test shows one group, only its interface speaks for it, or its peers' links.
    newest = next(
        (each.window for each in reversed(tests) if each in below + above if not each.is_hindered),
        None,
    )
    if newest is None or not below or not above:
        return _value(belief, tests)
    kept = belief.copy()
    kept[(slice(split) if newest.high_mbps < between_mbps else slice(split, None))] = 0.0
    former = _value(kept / kept.sum(), tests)
    if AGREEING_SHARE <= newest.low_mbps / former.mbps <= 1 / AGREEING_SHARE:
        return _value(belief, tests)
    return replace(
        former,
        mbps=min(former.mbps, newest.low_mbps),
        former_mbps=former.mbps,
        suspected_mbps=newest.low_mbps,
    )


def _value(belief: Floats, tests: Sequence[LinkTest]) -> LinkBandwidth:
    """One group of speeds as a value. belief: their probabilities, shape (g,)."""
    mode = int(belief.argmax())
    is_sure = belief[max(mode - 1, 0) : mode + 2].sum() >= _SURE
    by_others = [each for each in tests if not each.is_own]
    exact = [each.window.low_mbps for each in tests if each.is_exact]

    def newest(near_mbps: float) -> list[float]:
        return [mbps for mbps in exact if _NEAR <= mbps / near_mbps <= 1 / _NEAR][-3:]

    if is_sure and by_others and newest(SPEEDS_MBPS[mode]):
        mbps, reason = median_low(newest(SPEEDS_MBPS[mode])), ""
    else:
        # Until another node has measured it, there is no better than its own word.
        least = int(np.searchsorted(np.cumsum(belief), _IMPROBABLE if by_others else 0.5))
        least_mbps = SPEEDS_MBPS[least]
        shown = [
            (each.window[at], each)
            for each in tests
            for at in (0, 1)
            if each.window[at] <= _OVER * least_mbps
        ]
        mbps, best = max(shown, key=lambda each: each[0], default=(float(least_mbps), tests[-1]))
        if best.is_exact:
            mbps = median_low(newest(mbps) or [mbps])
        kinds = ((best.is_hindered, BUSY), (best.is_own, OWN), (best.is_exact, PEER))
        reason = next((kind for is_kind, kind in kinds if is_kind), SHORT)
    agreeing = [each for each in tests if each.agrees(mbps, is_bound=bool(reason))]
    confirmed_s = [each.at_s for each in agreeing if not each.is_own]
    return LinkBandwidth(
        mbps=mbps,
        at_s=max(confirmed_s or [each.at_s for each in agreeing or tests[:1]]),
        lower_bound=bool(reason),
        reason=reason,
    )
