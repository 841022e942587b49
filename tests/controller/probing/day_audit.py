"""An independent auditor of a simulated day: it sees only what the network carried.

It knows neither the controller's accounts nor its leases. It keeps the transfers that boards really
made, and what they took of each link.
"""

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from leadline_controller.framework.view import Floats, Ints

HOUR_S, DAY_S = 3600.0, 86_400.0
# What docs/network.md says is saved while no test runs.
SAVED_LINK_S = 1.0
# A lease cannot come back so long after its test.
_REPLAY_S = 60.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What tests may cost a node or uplink: a share of its link's time, and bytes a day."""

    share: float
    bytes_per_day: float


@dataclass(slots=True)
class Spent:
    """The transfers over one link: when each ended, s, its seconds of the link, and its bytes."""

    end_s: "array[float]" = field(default_factory=lambda: array("d"))
    link_s: "array[float]" = field(default_factory=lambda: array("d"))
    bytes: "array[float]" = field(default_factory=lambda: array("d"))

    def most_in(self, window_s: float) -> tuple[float, float]:
        """The most seconds of the link, and the most bytes, in any window of this length."""
        end_s = np.array(self.end_s)
        order = np.argsort(end_s, kind="stable")
        first = np.searchsorted(end_s[order], end_s[order] - window_s, side="right")
        most_s, most_bytes = (
            _most_between(first, np.array(column)[order]) for column in (self.link_s, self.bytes)
        )
        return most_s, most_bytes


def _most_between(first: Ints, column: Floats) -> float:
    total = np.concatenate(([0.0], np.cumsum(column)))
    return float((total[1:] - total[first]).max()) if len(column) else 0.0


class Auditor:
    """Counts what must not happen. allowances: by name of the node or uplink."""

    def __init__(self, allowances: dict[str, Allowance]) -> None:
        self.allowances = allowances
        self.transfers = 0
        self.overlaps: list[str] = []
        # Leases for boards that still had another one: of another leader, or of the same. The board
        # refuses, so nothing overlaps. The latter wait in vain for a peer that has given up.
        self.conflicts: list[str] = []
        self.early: list[str] = []
        self.replays: list[str] = []  # leases that ran twice
        self.overdue: list[str] = []  # nodes without a fresh bandwidth, and no reason for it
        self.minutes: Counter[str] = Counter()  # of boards, by what is known of their bandwidth
        self.ages_s: array[float] = array("f")
        self._spent: defaultdict[str, Spent] = defaultdict(Spent)
        self._active: dict[str, str] = {}
        self._ran: deque[tuple[float, str]] = deque()
        self._ran_names: Counter[str] = Counter()

    def begin(self, takers: Iterable[str], transfer: str, now_s: float) -> None:
        """A transfer begins. takers: both nodes and the uplinks between them."""
        self.transfers += 1
        while self._ran and self._ran[0][0] < now_s - _REPLAY_S:
            old = self._ran.popleft()[1]
            self._ran_names[old] -= 1
            if not self._ran_names[old]:
                del self._ran_names[old]
        if transfer in self._ran_names:
            self.replays.append(f"{now_s:.1f} s: {transfer}")
        self._ran.append((now_s, transfer))
        self._ran_names[transfer] += 1
        for taker in takers:
            if taker in self._active:
                self.overlaps.append(
                    f"{now_s:.1f} s: {taker}: {transfer} during {self._active[taker]}"
                )
            self._active[taker] = transfer

    def end(self, takers: dict[str, float], transfer: str, moved: float, now_s: float) -> None:
        """A transfer has moved so many bytes. takers: the speed of each one's link, Mbit/s."""
        for taker, mbps in takers.items():
            if self._active.get(taker) == transfer:
                del self._active[taker]
            spent = self._spent[taker]
            spent.end_s.append(now_s)
            spent.link_s.append(moved * 8e-6 / mbps)
            spent.bytes.append(moved)

    def most(self, name: str, window_s: float) -> tuple[float, float]:
        """The most seconds of its link, and bytes, that a node or uplink spent in any window."""
        return self._spent[name].most_in(window_s)

    def broken_budgets(self, run_s: float) -> list[str]:
        """Who spent more than the promise: in any hour its share of the time and what may be saved,
        in any day its share, and its bytes."""
        broken = []
        for name, spent in self._spent.items():
            allowance = self.allowances[name]
            hour_s, _ = spent.most_in(HOUR_S)
            day_s, day_bytes = spent.most_in(DAY_S)
            if hour_s > allowance.share * HOUR_S + SAVED_LINK_S:
                broken.append(f"{name}: {hour_s:.3f} s of its link in an hour")
            if run_s >= DAY_S and day_s > allowance.share * DAY_S:
                broken.append(f"{name}: {day_s:.3f} s of its link in a day")
            if day_bytes > allowance.bytes_per_day:
                broken.append(f"{name}: {day_bytes:.0f} bytes in a day")
        return broken

    def total(self, names: Iterable[str]) -> tuple[float, float]:
        """Seconds of links, and bytes, of all these nodes or uplinks."""
        spent = [self._spent[name] for name in names if name in self._spent]
        return sum(sum(x.link_s) for x in spent), sum(sum(x.bytes) for x in spent)
