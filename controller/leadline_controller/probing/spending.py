"""What tests may cost a node or uplink, and have cost it of late. No I/O.

Times are seconds on the controller's monotonic clock.
"""

from array import array
from dataclasses import dataclass, field
from math import inf

HOUR_S, DAY_S = 3600, 86_400.0
_HOURS = 24
# A part of the budget stays unused, because tests take a little longer than planned.
_PLANNED_SHARE = 0.94
# The most that a budget saves while no test runs, and of that the most for one test.
SAVED_LINK_S, _SAVED_BYTES = 1.0, 30_000_000
SHARE_OF_SAVINGS = 0.9
# Of the bytes that can be saved. A restart forgets debts, so metered uplinks have none.
_MOST_DEBT = 0.1


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
class AccountStatus:
    """The budget of a node or uplink, and what was spent since the account began, in the last hour
    and in the last 24 hours. Shares are of the link's time."""

    name: str
    allowed_share: float
    share: float
    hour_share: float
    day_share: float
    bytes_per_day: int
    bytes: int
    day_bytes: int
    tests: int
    age_s: float  # since the account began
    bytes_wait_s: float = 0.0  # until the bytes of the day pay for one more test of the usual size
    pings_per_minute: float | None = None  # that a node may send, None for an uplink

    @property
    def day_bytes_left(self) -> int:
        """The bytes that may still be spent before the last 24 hours' bytes reach the limit."""
        return max(0, self.bytes_per_day - self.day_bytes)


@dataclass(slots=True)
class Account:
    """The budget of one node or uplink, and what was spent since the start."""

    share: float
    bytes_per_day: float
    at_s: float
    most_debt: float = _MOST_DEBT  # as a share of the bytes that can be saved
    link_s: float = 0.0
    bytes: float = 0.0
    spent_link_s: float = 0.0
    spent_bytes: int = 0
    tests: int = 0
    recent: HourlySpending = field(default_factory=HourlySpending)
    since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.since_s = self.at_s

    def refill(self, now_s: float) -> None:
        """Add what the time since the last call is worth."""
        passed_s = max(0.0, now_s - self.at_s)
        self.at_s = max(self.at_s, now_s)
        link_s = self.link_s + passed_s * self.share * _PLANNED_SHARE
        self.link_s = min(link_s, SAVED_LINK_S)
        self.bytes = min(self.bytes + passed_s * self._bytes_per_s, self._saved_bytes)

    @property
    def most_bytes(self) -> float:
        """The most that one test may transfer."""
        return SHARE_OF_SAVINGS * self._saved_bytes

    def wait_s(self, link_s: float, amount: int, debt_s: float = 0.0) -> float:
        """Seconds until a test fits the budget, with a debt of up to `debt_s` of link time."""
        if not self.share:
            return inf
        missing_s = link_s - self.link_s - debt_s
        most_bytes = self.most_debt * self._saved_bytes
        missing = amount - self.bytes - min(debt_s * self.bytes_per_day / DAY_S * 1000, most_bytes)
        if missing_s <= 0 and missing <= 0:
            return 0.0
        if missing > 0 and not self.bytes_per_day:
            return inf
        wait_s = missing_s / (self.share * _PLANNED_SHARE)
        return max(wait_s, missing / self._bytes_per_s if missing > 0 else 0.0)

    @property
    def _saved_bytes(self) -> float:
        """The most that can be saved."""
        return min(_SAVED_BYTES, self.bytes_per_day / 4)

    @property
    def _bytes_per_s(self) -> float:
        """By which the budget grows. What was saved, and debts, count for the next day too."""
        return (self.bytes_per_day - (1 + self.most_debt) * self._saved_bytes) / DAY_S

    def pay(self, link_s: float, amount: int) -> None:
        """Charge a test. Negative values correct the plan by what it took."""
        self.link_s -= link_s
        self.bytes -= amount
        self.spent_link_s += link_s
        self.spent_bytes += amount
        self.recent.add(link_s, amount, self.at_s)

    def _bytes_wait_s(self) -> float:
        if not self.tests or not self.bytes_per_day:
            return 0.0
        usual = self.spent_bytes / self.tests
        return max(0.0, (usual - self.bytes) / self._bytes_per_s)

    def read(self, name: str, pings_per_minute: float | None = None) -> AccountStatus:
        """The account as of the last `refill`."""
        age_s = self.at_s - self.since_s
        hour_s, _ = self.recent.of_last(1, self.at_s)
        day_s, day_bytes = self.recent.of_last(24, self.at_s)
        return AccountStatus(
            name=name,
            allowed_share=self.share,
            share=self.spent_link_s / max(age_s, 1.0),
            hour_share=hour_s / min(max(age_s, 1.0), HOUR_S),
            day_share=day_s / min(max(age_s, 1.0), DAY_S),
            bytes_per_day=round(self.bytes_per_day),
            bytes=self.spent_bytes,
            day_bytes=round(day_bytes),
            tests=self.tests,
            age_s=age_s,
            bytes_wait_s=self._bytes_wait_s(),
            pings_per_minute=pings_per_minute,
        )
