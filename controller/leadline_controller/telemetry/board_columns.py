"""The newest values of all boards in columns, each value with the time at which it was measured.

Views of a decision, the metrics and the map read all boards at once. Times are seconds on the
controller's monotonic clock.
"""

from collections.abc import Callable, Mapping
from math import inf, pi, sqrt

import numpy as np

from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.telemetry.absences import Absences, absence_waits_ms
from leadline_controller.telemetry.bandwidth_tests import AGREEING_SHARE
from leadline_controller.telemetry.collectors import columns
from leadline_controller.telemetry.link_bandwidth import LinkBandwidth
from leadline_controller.telemetry.throttling import UNTHROTTLED, throttling

LINK, USED = "link_mbps", "used_mbps"
_BANDWIDTH = METRICS.index("bandwidth_mbps")  # the column that no report fills
# How many changes of a metric its mean change is of: a board's own, and those of all boards.
_CHANGES, _ALL_CHANGES = 8, 64
# A change counts as this many times the mean at most: it may be a pod that came.
_MOST_CHANGE = 3.0
# The mean change from one reading of the same to the next is 2 / sqrt(pi) standard deviations.
_DEVIATIONS = sqrt(pi) / 2
_NONE = np.zeros(0)
_NONE.flags.writeable = False


class BoardColumns:
    """A row for each board, its slot, and a column for each of `names`. values: NaN if unknown,
    shape (slots, columns). at_s: when each was measured, same shape. is_bound: whether the
    bandwidth is a lower bound, shape (slots,). report_s, bandwidth_s: times to live.

    The error of a metric, a standard deviation, follows from its mean change from one report of the
    board to the next, which a slow drift does not spoil (von Neumann's mean successive difference).
    Of a bandwidth it is half of the share by which two tests of one link differ and still agree.
    """

    def __init__(self, report_s: float, bandwidth_s: float) -> None:
        self.names = tuple(dict.fromkeys((*METRICS, *columns())))
        self._columns = {name: at for at, name in enumerate(self.names)}
        self.values = np.full((64, len(self.names)), np.nan)
        self.at_s = np.full((64, len(self.names)), -np.inf)
        self.is_bound = np.zeros(64, dtype=np.bool_)
        self._is_host_limited = np.zeros(64, dtype=np.bool_)
        # Mean change of each of METRICS, 0 if unknown: by board, shape (slots, m), and of all.
        self._changes = np.zeros((64, len(METRICS)))
        self._usual, self._counted = [0.0] * len(METRICS), [0] * len(METRICS)
        # Of each slot the times and the error of its throttling, and when they were reported.
        self._throttling = np.tile((*UNTHROTTLED, -np.inf), (64, 1))
        self._most_mhz: dict[int, float] = {}  # slot -> the highest frequency that it reported
        self._absences = np.tile((*Absences(),), (64, 1))  # a row for each slot
        self._ttl_s = np.full(len(self.names), report_s)
        self._ttl_s[_BANDWIDTH] = bandwidth_s
        self._used_slots = 0
        self._free_slots: list[int] = []

    def take(self) -> int:
        """An empty slot for a new board."""
        if self._free_slots:
            return self._free_slots.pop()
        slot = self._used_slots
        self._used_slots += 1
        if slot == len(self.at_s):
            self.values = np.concatenate((self.values, np.full_like(self.values, np.nan)))
            self.at_s = np.concatenate((self.at_s, np.full_like(self.at_s, -np.inf)))
            self.is_bound = np.concatenate((self.is_bound, np.zeros_like(self.is_bound)))
            limited = self._is_host_limited
            self._is_host_limited = np.concatenate((limited, np.zeros_like(limited)))
            self._changes = np.concatenate((self._changes, np.zeros_like(self._changes)))
            empty = np.tile((*UNTHROTTLED, -np.inf), (slot, 1))
            self._throttling = np.concatenate((self._throttling, empty))
            self._absences = np.concatenate((self._absences, np.tile((*Absences(),), (slot, 1))))
        return slot

    def free(self, slot: int) -> None:
        """Empty the slot of a board that is gone."""
        self.values[slot], self.at_s[slot], self._changes[slot] = np.nan, -np.inf, 0.0
        self._throttling[slot], self._absences[slot] = (*UNTHROTTLED, -np.inf), Absences()
        self._most_mhz.pop(slot, None)
        self._free_slots.append(slot)

    def report(
        self, slot: int, values: Mapping[str, float], flags: Mapping[str, bool], at_s: float
    ) -> None:
        """Store the values of a report, and what its flags say of throttling. Values that it leaves
        out keep their older value and its age."""
        row, row_at_s = self.values[slot], self.at_s[slot]
        before, own = row[: len(METRICS)].tolist(), self._changes[slot].tolist()
        for name, value in values.items():
            column = self._columns[name]
            row[column], row_at_s[column] = value, at_s
            if column < len(METRICS) and before[column] == before[column]:
                change = abs(value - before[column])
                count = self._counted[column] = min(self._counted[column] + 1, _ALL_CHANGES)
                usual = self._usual[column] = _mean(self._usual[column], change, count)
                own[column] = _mean(own[column] or usual, change, _CHANGES)
        self._changes[slot] = own
        most_mhz = max(self._most_mhz.get(slot, 0.0), values.get("frequency_mhz", 0.0))
        self._most_mhz[slot] = most_mhz
        self._throttling[slot] = (*throttling(flags, values, most_mhz), at_s)

    def away(self, slot: int, away_s: float, now_s: float) -> None:
        """Store that the board was away for so long, until now."""
        before = Absences(*self._absences[slot].tolist())
        self._absences[slot] = before.after(away_s, now_s)

    def set_bandwidth(self, slot: int, known: LinkBandwidth | None) -> bool:
        """Store what is believed of a board's link now. Whether it is known and differs from
        before, by its value or by being a lower bound."""
        before = (self.values[slot, _BANDWIDTH], self.is_bound[slot])
        value, at_s = (known.mbps, known.at_s) if known else (np.nan, -np.inf)
        self.values[slot, _BANDWIDTH], self.at_s[slot, _BANDWIDTH] = value, at_s
        self.is_bound[slot] = known is not None and known.lower_bound
        self._is_host_limited[slot] = known is not None and known.is_host_limited
        return known is not None and (known.mbps, known.lower_bound) != before

    def value(self, slot: int, name: str, now_s: float) -> float | None:
        """One value; None if it is unknown or too old."""
        at = self._columns[name]
        if now_s - self.at_s[slot, at] > self._ttl_s[at]:
            return None
        return float(self.values[slot, at])

    def ttl_s(self, name: str) -> float:
        """How long a value of this column is known."""
        return float(self._ttl_s[self._columns[name]])

    def fresh(self, slots: Ints, now_s: float, refresh: Callable[[int], None]) -> Floats:
        """Rows of values, NaN where unknown, too old, or the slot is -1. refresh: is called with
        the place in `slots` of each board whose bandwidth is too old, and sets another one, or
        None."""
        old = now_s - self.at_s[slots] > self._ttl_s
        has_bandwidth = (slots >= 0) & ~np.isnan(self.values[slots, _BANDWIDTH])
        for at in np.flatnonzero(old[:, _BANDWIDTH] & has_bandwidth).tolist():
            refresh(at)
            old[at, _BANDWIDTH] = False
        values: Floats = self.values[slots]
        values[old | (slots < 0)[:, np.newaxis]] = np.nan
        return values

    def node_metrics(self, slots: Ints, values: Floats, now_s: float) -> NodeMetrics:
        """The metrics of a view. values: as `fresh` returns them, for these slots."""
        at_s = self.at_s[slots][:, : len(METRICS)]
        at_s[slots < 0] = -np.inf
        values.flags.writeable = at_s.flags.writeable = False  # views share them
        metrics = {name: values[:, at] for at, name in enumerate(METRICS)}
        most_mbps = values[:, _BANDWIDTH].copy()
        bounds: Bools = self.is_bound[slots] & ~np.isnan(most_mbps)
        link_mbps = np.nan_to_num(values[bounds, self._columns[LINK]], nan=np.inf)
        most_mbps[bounds] = np.maximum(most_mbps[bounds], link_mbps)
        most_mbps.flags.writeable = False
        host_limited = self._is_host_limited[slots] & ~np.isnan(most_mbps)
        host_limited.flags.writeable = False
        errors = _DEVIATIONS * self._changes[slots]
        # Of a bound on an interface of unknown speed only the bound can be misread.
        read_mbps = np.where(np.isinf(most_mbps), metrics["bandwidth_mbps"], most_mbps)
        errors[:, _BANDWIDTH] = (1 - AGREEING_SHARE) / 2 * np.nan_to_num(read_mbps)
        errors.flags.writeable = False
        times, error = self._throttling_of(slots, now_s)
        absence_ms = absence_waits_ms(self._absences[slots], now_s)
        absence_ms[slots < 0] = 0.0
        return NodeMetrics(
            **metrics,
            measured_at_s=at_s,
            bandwidth_most_mbps=most_mbps,
            bandwidth_host_limited=host_limited,
            errors=errors,
            throttling=times,
            throttling_error=error,
            absence_ms=absence_ms if absence_ms.any() else _NONE,
        )

    def _throttling_of(self, slots: Ints, now_s: float) -> tuple[Floats, Floats]:
        """Times and error, shapes (n,); empty if no board is throttled or nearly so."""
        times, error, at_s = self._throttling[slots].T
        told = (error > 0.0) & (slots >= 0) & (now_s - at_s <= self._ttl_s[0])
        if not told.any():
            return _NONE, _NONE
        return np.where(told, times, UNTHROTTLED.times), np.where(told, error, UNTHROTTLED.error)


def _mean(before: float, change: float, count: int) -> float:
    """The mean of about the `count` newest changes, after one more."""
    return before + (min(change, _MOST_CHANGE * before or inf) - before) / count
