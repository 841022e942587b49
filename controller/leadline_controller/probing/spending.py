"""What tests have cost a node or uplink of late. No I/O.

Times are seconds on the controller's monotonic clock.
"""

from array import array
from dataclasses import dataclass

HOUR_S = 3600
_HOURS = 24


class HourlySpending:
    """The link time, s, and the bytes that were spent in this hour and each of the 24 before."""

    __slots__ = ("_bytes", "_hour", "_link_s")

    def __init__(self) -> None:
        self._hour = 0  # number of the newest
        self._link_s, self._bytes = (array("d", [0.0] * (_HOURS + 1)) for _ in range(2))

    def add(self, link_s: float, amount: float, now_s: float) -> None:
        """Count what is spent now."""
        self._begin_hour(now_s)
        self._link_s[-1] += link_s
        self._bytes[-1] += amount

    def of_last(self, hours: int, now_s: float) -> tuple[float, float]:
        """Link time, s, and bytes of the last hours, up to 24. The hour in which they began counts
        by the part of it that belongs to them."""
        self._begin_hour(now_s)
        share = 1 - now_s % HOUR_S / HOUR_S
        spent = (
            sum(column[-hours:]) + share * column[-hours - 1]
            for column in (self._link_s, self._bytes)
        )
        link_s, amount = (max(0.0, each) for each in spent)  # tests may be refunded an hour later
        return link_s, amount

    def _begin_hour(self, now_s: float) -> None:
        hour = int(now_s // HOUR_S)
        passed = min(hour - self._hour, _HOURS + 1)
        if passed > 0:
            self._hour = hour
            for column in (self._link_s, self._bytes):
                del column[:passed]
                column.extend([0.0] * passed)


@dataclass(frozen=True, slots=True)
class AccountReading:
    """The budget of a node or uplink, and what was spent since the account began, in the last hour
    and in the last 24 hours.

    Shares are of the link's time. age_s: since the account began. pings_per_minute: that a node
    may send, None for an uplink.
    """

    name: str
    allowed_share: float
    share: float
    hour_share: float
    day_share: float
    bytes_per_day: int
    bytes: int
    day_bytes: int
    tests: int
    age_s: float
    pings_per_minute: float | None = None

    @property
    def day_bytes_left(self) -> int:
        """The bytes that may still be spent before the last 24 hours' bytes reach the limit."""
        return max(0, self.bytes_per_day - self.day_bytes)
