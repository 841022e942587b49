"""A bandwidth test, and which speeds of the links it shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log2
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import Floats
from leadline_controller.telemetry.link_belief import SPEEDS_MBPS

# A shaper lets so much pass at once, s of its link's time.
BURST_S = 0.005
# A shorter measurement shows a burst, and not the link.
EXACT_S = BURST_S
# Until TCP's window is as large as the link needs, the second half of the bytes takes one round
# trip, or less than two if the window grows slowly. What takes longer is held up by the link.
EXACT_ROUND_TRIPS = 2
# Assumed for a pair whose round trip is not known, so that the first tests are lower bounds.
UNKNOWN_RTT_MS = 20.0
# Results that are this near to each other agree.
AGREEING_SHARE = 0.8
# A lower bound proves nothing, unless TCP should have reached twice as much by then.
_SUSPICIOUS_SHARE = 0.5
# TCP's first window (RFC 6928), and the time that both ends' programs take to begin.
_FIRST_WINDOW_MEGABITS, _BEGIN_S = 10 * 1460 * 8e-6, 0.001


class Window(NamedTuple):
    """What a test shows of a link: its speed is from `low_mbps` to `high_mbps`, and below
    `likely_mbps` only if a burst was in all of the test."""

    low_mbps: float
    likely_mbps: float
    high_mbps: float


@dataclass(frozen=True, slots=True)
class BandwidthTest:
    """A valid result, as the server measured it.

    Times are seconds on the controller's monotonic clock.
    """

    client: str
    server: str
    mbps: float
    seconds: float  # over which the rate was measured, on the last part of the bytes
    at_s: float
    rtt_ms: float | None = None  # of the pair, None if unknown
    # A board was too busy, throttled or under voltage, so the link may do more.
    is_hindered: bool = False
    is_untimed: bool = False  # it was too fast to be timed
    # What the pods of each node requested when the test began.
    requested_mbps: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        """Whether this is what the links can do, else they can do at least `value_mbps`."""
        return self._is_long and not self.is_hindered

    @property
    def _is_long(self) -> bool:
        """Whether no burst and no slow start is in the rate."""
        return self.seconds >= exact_s(self.rtt_ms) and not self.is_untimed

    @property
    def value_mbps(self) -> float:
        """What the links can do, or can do at least. In any time, a link carries no more than its
        speed allows in that time and a shaper's burst."""
        return self.mbps * (1.0 if self.is_exact else self.seconds / (self.seconds + BURST_S))

    def window(self, flowing_mbps: float = 0.0, used_mbps: float = 0.0) -> Window:
        """What this shows of a link, if that was the slower one. flowing_mbps: what of its users'
        traffic belongs to its value; used_mbps: all of it."""
        least = max(self.value_mbps, SPEEDS_MBPS[0])
        low = least + flowing_mbps
        if self._is_long:
            return Window(low, low, max(low, self.mbps + used_mbps))
        # On a link that is twice as fast as this, TCP should have shown more.
        is_slow_enough = _SUSPICIOUS_SHARE * self._expected_mbps(SPEEDS_MBPS) <= self.mbps
        high = float(SPEEDS_MBPS[is_slow_enough].max(initial=least)) + used_mbps
        likely = max(low, AGREEING_SHARE * self.mbps + flowing_mbps)
        return Window(low, likely, inf if is_slow_enough.all() else max(high, likely))

    def _expected_mbps(self, link_mbps: Floats) -> Floats:
        """The rate that this test should have measured on links of these speeds: the second half of
        the bytes takes a round trip at least, since TCP's window has grown to the first half. One
        that was not timed has half of the bytes in the time of all, with TCP's slow start."""
        megabits = self.mbps * self.seconds
        rtt_s = (UNKNOWN_RTT_MS if self.rtt_ms is None else self.rtt_ms) / 1000
        seconds = np.maximum(megabits / link_mbps, rtt_s)
        if self.is_untimed:
            doublings = log2(max(2 * megabits / _FIRST_WINDOW_MEGABITS, 1.0))
            seconds = 2 * seconds + doublings * rtt_s + _BEGIN_S
        return np.asarray(megabits / seconds)


def exact_s(rtt_ms: float | None) -> float:
    """How long an exact measurement takes at least, s. rtt_ms: of the pair, None if unknown."""
    return max(EXACT_S, EXACT_ROUND_TRIPS * (UNKNOWN_RTT_MS if rtt_ms is None else rtt_ms) / 1000)
