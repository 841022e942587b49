"""What one board has counted, as means of the last minute, hour and day.

The minute is the newest report. Hour and day are sums that fade, each with the window as time
constant: what was counted t seconds ago weighs exp(-t / window). They are divided by the same sum
over the time in which the board did report, so a board that was silent, or reports for the first
time, makes nothing smaller. Buckets of 60 minutes and 24 hours would be 336 numbers a row instead
of 12, in memory and on the SD card.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from leadline_controller.framework.view import Floats
from leadline_controller.traffic.edges import DAY_S, HOUR_S
from leadline_controller.traffic.join import Key

# Both directions: bytes, packets, connections that began, packets of the rarer direction.
BYTES, PACKETS, CONNECTIONS, RARER = range(4)
QUANTITIES = 4
_WINDOWS_S = np.array([HOUR_S, DAY_S])
_MOST_ROWS = 512  # of one board; those with the least bytes of the hour are dropped
_FRESH_S = 150.0  # for which the newest report says what is now: two, and half of a third one
_SILENT_S = 600.0  # after which a board that says nothing does not contradict others
_LEAST_S = 1.0
# A packet has a header of 20 bytes at least, and a connection a packet.
_MOST_OF_BYTES = np.array([1.0, 1 / 20, 1 / 20, 1 / 20])


@dataclass(slots=True)
class BoardCounts:
    """The counts of one board. Rows are in the order of `keys`; a rate is per second."""

    counted_s: float = -np.inf  # the end of what was counted
    keys: dict[Key, int] = field(default_factory=dict)
    last: Floats = field(default_factory=lambda: np.zeros((0, QUANTITIES)))  # rates, newest report
    sums: Floats = field(default_factory=lambda: np.zeros((0, 2, QUANTITIES)))  # hour, day
    row_s: Floats = field(default_factory=lambda: np.zeros(0))  # when each was counted last
    known: Floats = field(default_factory=lambda: np.zeros(2))  # the time that it did report, 0..1
    # What a flow may have that it left out, as it was smaller: bytes a second; last, hour, day.
    omitted: Floats = field(default_factory=lambda: np.zeros(3))

    def add(
        self,
        counts: Mapping[Key, Iterable[float]],
        omitted_bytes: float,
        counted_s: float,
        duration_s: float,
    ) -> None:
        """Count these: amounts of the `duration_s` seconds before `counted_s`. omitted_bytes: at
        most of each flow that is not among them. What ends before the last report counts no more.
        """
        duration_s = max(duration_s, _LEAST_S)
        new_s = min(duration_s, counted_s - self.counted_s)
        if new_s <= 0:
            return
        for key in counts:
            self.keys.setdefault(key, len(self.keys))
        rates = np.zeros((len(self.keys), QUANTITIES))
        rows = np.array([self.keys[key] for key in counts], dtype=np.int64)
        if len(rows):
            amounts = np.array([tuple(each) for each in counts.values()], dtype=np.float64)
            rates[rows] = amounts / duration_s
        keep = np.exp(-(counted_s - self.counted_s) / _WINDOWS_S)  # 0 at the first time
        gain = 1.0 - np.exp(-new_s / _WINDOWS_S)
        grown = len(rates) - len(self.last)
        sums = np.concatenate((self.sums, np.zeros((grown, 2, QUANTITIES))))
        self.sums = sums * keep[:, None] + rates[:, None, :] * gain[:, None]
        self.row_s = np.concatenate((self.row_s, np.zeros(grown)))
        self.row_s[rows] = counted_s
        self.last, self.known = rates, self.known * keep + gain
        omitted = omitted_bytes / duration_s
        self.omitted = np.append(omitted, self.omitted[1:] * keep + omitted * gain)
        self.counted_s = counted_s
        self._drop_least()

    def rates(self, now_s: float) -> Floats:
        """Rates of each row in the last minute, hour and day, shape (rows, 3, 4)."""
        sums = self.sums / np.maximum(self.known, 1e-12)[:, None]
        return np.concatenate(((self.last * self.is_fresh(now_s))[:, None, :], sums), axis=1)

    def allowed(self, now_s: float) -> Floats:
        """What a flow that it does not report may have at most, shape (3, 4)."""
        rates = self.omitted / np.maximum(np.append(1.0, self.known), 1e-12)
        rates[0] *= self.is_fresh(now_s)
        allowed: Floats = rates[:, None] * _MOST_OF_BYTES
        return allowed

    def is_fresh(self, now_s: float) -> bool:
        """Whether the newest report says what is now."""
        return now_s - self.counted_s <= _FRESH_S

    def reports(self, now_s: float) -> bool:
        """Whether it says what others' reports must agree with."""
        return now_s - self.counted_s <= _SILENT_S

    def retain(self, keys: Iterable[Key]) -> None:
        """Drop all other rows."""
        kept = [key for key in keys if key in self.keys]
        rows = np.array([self.keys[key] for key in kept], dtype=np.int64)
        self.keys = {key: row for row, key in enumerate(kept)}
        self.last, self.sums, self.row_s = self.last[rows], self.sums[rows], self.row_s[rows]

    def _drop_least(self) -> None:
        is_old = self.row_s < self.counted_s - DAY_S
        if len(self.keys) <= _MOST_ROWS and not is_old.any():
            return
        order = np.argsort(-self.sums[:, 0, BYTES], kind="stable")
        kept = set(order[~is_old[order]][:_MOST_ROWS].tolist())
        self.retain([key for key, row in self.keys.items() if row in kept])
