"""How much longer work takes on a board that heat or a low voltage slow down.

Only the firmware's flag tells it: the frequency alone is low on an idle board, too, whose governor
lowers it.
"""

from collections.abc import Mapping
from typing import NamedTuple

# A Pi whose firmware has lowered the frequency does about half of its work; its driver may go on to
# report the frequency that Linux has asked for.
_STATED_TIMES = 2.0
_MOST_TIMES = 10.0
# A frequency this close to the highest one that the board reported says nothing of the limit.
_FULL_SPEED = 0.95
# Of what throttling adds, the standard deviation as a share: an idle board's frequency may be lower
# than its limit.
_ERROR = 0.5
# From the second of these on a Pi is throttled more and more (its firmware's soft limit, and 85 °C
# the hard one); from the first on a pod may be enough to bring it there.
_WARM_CELSIUS, _LIMIT_CELSIUS = 75.0, 80.0


class Throttling(NamedTuple):
    """How many times as long work takes, 1 on a board that is not throttled, and the standard
    deviation."""

    times: float = 1.0
    error: float = 0.0


UNTHROTTLED = Throttling()


def throttling(
    flags: Mapping[str, bool], values: Mapping[str, float], most_mhz: float
) -> Throttling:
    """Of a board with these flags and values in its report. most_mhz: the highest frequency that it
    has reported, 0 if unknown."""
    # The firmware sets its flag for a low voltage, too, once it slows the board down.
    is_throttled = flags.get("throttled", flags.get("under_voltage"))
    if is_throttled is None:
        return UNTHROTTLED
    if is_throttled:
        mhz = values.get("frequency_mhz", 0.0)
        times = _STATED_TIMES
        if 0.0 < mhz < _FULL_SPEED * most_mhz:
            times = min(most_mhz / mhz, _MOST_TIMES)
        return Throttling(times, _ERROR * (times - 1.0))
    # Where the limit is not the firmware's, nobody knows it.
    celsius = values.get("cpu_celsius", 0.0) if "throttled" in flags else 0.0
    if celsius <= _WARM_CELSIUS:
        return UNTHROTTLED
    share = min((celsius - _WARM_CELSIUS) / (_LIMIT_CELSIUS - _WARM_CELSIUS), 1.0)
    return Throttling(1.0, share * _ERROR * (_STATED_TIMES - 1.0))
