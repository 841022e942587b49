"""Tells whether the load of a board has jumped, so that a report of it comes before its time.

What a board's load does all the time is no news: a reading is compared with those of the minute
before it, not only with the last report.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

WATCH_S = 2.0  # between two readings, and so at least between two early reports
MOST_EARLY = 2  # between two reports that come in time, or in a minute if these are further apart
_MINUTE = 30  # readings
_CPU_PERCENT, _MEMORY_PERCENT, _PACKETS_PER_S = 15.0, 10.0, 100.0


class Load(NamedTuple):
    """A reading or a report of the load; None is unknown."""

    cpu_percent: float | None = None
    memory_percent: float | None = None
    packets_per_s: float | None = None  # sent and received

    def in_jumps(self) -> tuple[float | None, ...]:
        """Each value on a scale on which 1 is a jump: 15 points of CPU, 10 of memory, and twice the
        packets, where 100 a second more than none are twice."""
        packets = self.packets_per_s
        return (
            None if self.cpu_percent is None else self.cpu_percent / _CPU_PERCENT,
            None if self.memory_percent is None else self.memory_percent / _MEMORY_PERCENT,
            None if packets is None else math.log2(1 + packets / _PACKETS_PER_S),
        )


class JumpDetector:
    """Has the readings of a minute. A reading is news if it is more than a jump away from the last
    report and from all of them but the newest, in which the jump may have begun.

    A report has rates since the one before, so that the first one after a jump is in part of the
    time before it. A second one follows if the first is not near what is read then.
    """

    def __init__(self) -> None:
        self._readings = deque[tuple[float | None, ...]](maxlen=_MINUTE)
        self._reported: tuple[float | None, ...] = ()
        self._early = 0  # reports since the last one that came in time
        self._unreported = 0  # readings since the last report

    def reported(self, load: Load, *, is_early: bool) -> None:
        """A report was published."""
        self._reported = load.in_jumps()
        self._early, self._unreported = self._early + 1 if is_early else 0, 0

    def is_due(self, load: Load) -> bool:
        """Whether a report is due after this reading, of the load since the reading before."""
        now, before = load.in_jumps(), [*self._readings][:-1]
        self._readings.append(now)
        self._unreported += 1
        if self._unreported >= _MINUTE:
            self._early = 0
        seen = [self._reported] if self._early == 1 else [self._reported, *before]
        return self._early < MOST_EARLY and _is_outside(now, seen)


def _is_outside(now: Sequence[float | None], seen: Sequence[Sequence[float | None]]) -> bool:
    """Whether a value is more than a jump above or below all that were seen of it."""
    for value, *others in zip(now, *filter(None, seen), strict=True):
        known = [each for each in others if each is not None]
        if value is not None and known and not min(known) - 1 <= value <= max(known) + 1:
            return True
    return False
