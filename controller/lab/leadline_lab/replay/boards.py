"""What boards would have measured if other pods had run on them: the model of a replay.

A report is taken as it was, less what the recorded pods of our scheduler used in its time, plus
what the replayed ones do; see docs/replay.md. Times are s on the clock of the recording.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan

from leadline_controller.framework.assumed_load import contained_share
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.telemetry.collectors import BoardReading

_REPORTED = METRICS[: METRICS.index("bandwidth_mbps")]
_CPU, _MEMORY = METRICS.index("cpu_percent"), METRICS.index("memory_percent")
_INTERVAL_S = 10.0  # between reports, before there were two
_LATE_S = 60.0  # a report may come so much later than one that was measured after it
_ROUNDING = 1e-9


@dataclass(slots=True)
class Stay:
    """A pod ran on a board. added: what it adds to the board's values, in the order of METRICS."""

    begin_s: float
    added: Sequence[float]
    end_s: float = inf

    def share_of(self, column: int, at_s: float, interval_s: float) -> float:
        """How much of it a report of this time contains, 0 to 1."""
        over_s = 0.0 if column == _MEMORY else interval_s
        return contained_share(self.begin_s, self.end_s, at_s, over_s)


@dataclass(slots=True)
class _Both:
    """A pod's stay on a board in the recording, and in the replay; None where it was not there."""

    recorded: Stay | None = None
    replayed: Stay | None = None

    def signed(self) -> list[tuple[int, Stay]]:
        """The stays, as they change a report; none if both are the same."""
        if self.recorded == self.replayed:
            return []
        found = ((-1, self.recorded), (+1, self.replayed))
        return [(sign, stay) for sign, stay in found if stay is not None]

    def is_settled(self, before_s: float) -> bool:
        """Whether all of it has begun, or ended, before this time, and will not change."""
        stays = [stay for stay in (self.recorded, self.replayed) if stay is not None]
        return all(max(s.begin_s, s.end_s if s.end_s < inf else 0.0) < before_s for s in stays)


@dataclass(slots=True)
class BoardLoad:
    """One board. short, reports: over its reports so far, the sum of the shares of the CPU that was
    wanted and not there, and how many they are."""

    reported_s: float = -inf
    short: float = 0.0
    reports: int = 0
    is_saturated: bool = False  # a report had all of its CPU in use, so it may have wanted more
    _stays: dict[str, _Both] = field(default_factory=dict)  # by uid
    # Of those, the ones that reports contain in part, or soon will; and what the others add.
    _moving: dict[str, _Both] = field(default_factory=dict)
    _steady: list[float] = field(default_factory=lambda: [0.0] * len(_REPORTED))

    def begin(self, uid: str, stay: Stay, *, is_replayed: bool) -> None:
        """A pod begins to run on it."""
        both = self._unsettled(uid)
        if is_replayed:
            both.replayed = stay
        else:
            both.recorded = stay

    def end(self, uid: str, at_s: float, *, is_replayed: bool) -> None:
        """It ends."""
        if uid not in self._stays:
            return
        both = self._unsettled(uid)
        stay = both.replayed if is_replayed else both.recorded
        if stay is not None:
            stay.end_s = min(stay.end_s, at_s)

    def _unsettled(self, uid: str) -> _Both:
        """The pod, whose stays are about to change."""
        both = self._stays.setdefault(uid, _Both())
        if uid not in self._moving:
            self._moving[uid] = both
            self._count(both, -1)
        return both

    def _count(self, both: _Both, sign: int) -> None:
        """Add what a pod's stays add for good to the steady sum, or take it off."""
        for of_it, stay in both.signed():
            if stay.end_s == inf:
                for column, each in enumerate(stay.added):
                    total = self._steady[column] + sign * of_it * each
                    self._steady[column] = total if abs(total) > _ROUNDING else 0.0

    def as_replayed(self, reading: BoardReading, at_s: float) -> BoardReading:
        """The report if the replayed pods had run in place of the recorded ones."""
        gap_s, self.reported_s = at_s - self.reported_s, max(at_s, self.reported_s)
        interval_s = gap_s if 0 < gap_s < inf else _INTERVAL_S
        more = self._difference(at_s, interval_s)
        values = reading.values
        if (cpu := values.get("cpu_percent")) is not None:
            self.is_saturated |= cpu >= 99.5
            wanted = cpu + (more[_CPU] if more else 0.0)
            self.short += max(0.0, 1.0 - 100.0 / wanted) if wanted > 0 else 0.0
            self.reports += 1
        if not more:
            return reading
        changed = dict(values)
        for column, name in enumerate(_REPORTED):
            if more[column] and (value := values.get(name)) is not None:
                most = 100.0 if column in (_CPU, _MEMORY) else inf
                changed[name] = min(max(value + more[column], 0.0), most)
        return replace(reading, values=changed)

    def _difference(self, at_s: float, interval_s: float) -> list[float]:
        """By how much the values differ, in the order of METRICS; empty if they do not."""
        settled = [
            uid
            for uid, both in self._moving.items()
            if both.is_settled(at_s - interval_s - _LATE_S)
        ]
        for uid in settled:
            both = self._moving.pop(uid)
            self._count(both, +1)
            if all(s is None or s.end_s < inf for s in (both.recorded, both.replayed)):
                del self._stays[uid]
        more = [*self._steady]
        for both in self._moving.values():
            for sign, stay in both.signed():
                for column, each in enumerate(stay.added):
                    if each:
                        more[column] += sign * each * stay.share_of(column, at_s, interval_s)
        return more if any(more) else []


def left_mbps(free_mbps: float, capacity_mbps: float) -> float:
    """What is left for a transfer where all may be requested: at least a hundredth of the link."""
    return free_mbps if isnan(capacity_mbps) else max(free_mbps, 0.01 * capacity_mbps)
