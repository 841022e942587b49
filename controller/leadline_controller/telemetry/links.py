"""Round trips and bandwidth between pairs of nodes, each with its age.

The values are in columns, because thousands of nodes report round trips between two decisions and
each decision needs a table of them. Times are seconds on the controller's monotonic clock.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from math import isnan, log
from statistics import median
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from leadline_controller.framework.view import Bools, Floats, Ints, LinkTable, NodeTable
from leadline_controller.telemetry.coordinates import SOURCES, RttEstimates

_MAX_LINKS = 200_000
_FEW_LINKS = 1000  # fewer unused rows are not worth compacting
# The pairs of broker legs grow with the square of the boards. They only replace ICMP where it is
# not permitted; beyond this many boards such a pair is unknown.
_MAX_LEGS = 64
_NOTHING = (None, 0.0)
_ROUNDS = 3
_LEAST_RTT_MS = 0.001  # of a relative error of zero nothing can be said
# A measurement is stale in the last part of its time to live.
_STALE_SHARE = 0.5
_COVERAGE = 0.9  # the share of true round trips within the error
_MAX_DEVIATIONS = 512
_ERROR_SHARE = 0.8  # a median of rounds is nearer to the truth than a round to the median
_STANDARD = 0.68  # the share of values within one standard deviation
# The standard deviation of a median of three, as a share of that of a round from a median.
_MEDIAN_SHARE = 0.55
_UNKNOWN_DEVIATION = 0.3  # relative, until pairs have been measured twice
_FEWEST_NODES = 5


@dataclass(frozen=True, slots=True)
class LinkReading:
    """The known values of one pair of nodes, and when each was measured.

    rtt_method: "icmp", or "mqtt" for a bound made of both boards' round trips to the broker; "" for
    an estimate. rtt_source: "measured"; "stale" in the second half of the time to live;
    "triangulated" from near nodes, or "estimated" from the coordinates of both. rtt_error_ms: the
    true round trip is within this of rtt_ms in 90 % of the pairs.
    lower_bound: the bandwidth test ran into its byte cap; the link can do at least this.
    """

    a: str
    b: str
    rtt_ms: float | None = None
    rtt_at_s: float = 0.0
    rtt_method: str = ""
    rtt_source: str = ""
    rtt_error_ms: float | None = None
    bandwidth_mbps: float | None = None
    bandwidth_at_s: float = 0.0
    lower_bound: bool = False


@dataclass(slots=True)
class _Column:
    """One measurement of every pair: its values and the times of measurement."""

    ttl_s: float
    values: NDArray[np.float64]
    at_s: NDArray[np.float64]

    @classmethod
    def empty(cls, ttl_s: float) -> "_Column":
        return cls(ttl_s, np.zeros(64), np.full(64, -np.inf))

    def grow(self) -> None:
        self.values = np.concatenate((self.values, np.zeros_like(self.values)))
        self.at_s = np.concatenate((self.at_s, np.full_like(self.at_s, -np.inf)))

    def keep(self, rows: Ints) -> None:
        room = max(64, len(rows))
        kept = _Column(self.ttl_s, np.zeros(room), np.full(room, -np.inf))
        kept.values[: len(rows)], kept.at_s[: len(rows)] = self.values[rows], self.at_s[rows]
        self.values, self.at_s = kept.values, kept.at_s

    def set(self, row: int, value: float, at_s: float) -> bool:
        """Store a measurement unless a newer one is stored. Returns whether it was stored."""
        if at_s < self.at_s[row]:
            return False
        self.values[row], self.at_s[row] = value, at_s
        return True

    def is_fresh(self, rows: int, now_s: float) -> Bools:
        fresh: Bools = now_s - self.at_s[:rows] <= self.ttl_s
        return fresh

    def known(self, rows: int, now_s: float) -> list[tuple[float, float] | None]:
        """(value, time of measurement) of each pair, None where it is too old."""
        columns = (self.values[:rows], self.at_s[:rows], self.is_fresh(rows, now_s))
        return [
            (value, at_s) if fresh else None
            for value, at_s, fresh in zip(*(column.tolist() for column in columns), strict=True)
        ]


@dataclass(slots=True)
class _Medians:
    """The last round trips of every pair, of which the median counts: one round that met other
    traffic does not, and a lasting change does from its second round on."""

    values: NDArray[np.float64]

    @classmethod
    def empty(cls) -> "_Medians":
        return cls(np.full((64, _ROUNDS), np.nan))

    def grow(self) -> None:
        self.values = np.concatenate((self.values, np.full_like(self.values, np.nan)))

    def keep(self, rows: Ints) -> None:
        kept = np.full((max(64, len(rows)), _ROUNDS), np.nan)
        kept[: len(rows)] = self.values[rows]
        self.values = kept

    def add(self, row: int, value: float, *, restart: bool) -> float:
        """Add the newest value, after dropping the others on `restart`. Returns the median."""
        values = self.values[row]
        values[:-1] = np.nan if restart else values[1:]
        values[-1] = value
        return float(median(each for each in values.tolist() if not isnan(each)))


class LinkState:
    """All pairs of nodes with a measurement, and estimates of the other pairs' round trips."""

    def __init__(self, rtt_ttl_s: float, bandwidth_ttl_s: float) -> None:
        self._rows: dict[tuple[str, str], int] = {}
        self._rows_of: defaultdict[str, list[int]] = defaultdict(list)
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []  # by number
        self._ends = np.zeros((64, 2), dtype=np.int64)  # the numbers of both nodes
        self._rtt = _Column.empty(rtt_ttl_s)
        self._bandwidth = _Column.empty(bandwidth_ttl_s)
        self._lower_bounds: set[int] = set()
        self._legs: dict[str, tuple[float, float]] = {}
        self._version = 0
        self._cached: tuple[object, LinkTable] | None = None
        self._medians = _Medians.empty()
        # |log(newest round / median before)| of pairs that are measured again
        self._deviations: deque[float] = deque(maxlen=_MAX_DEVIATIONS)
        self._estimates: RttEstimates | None = None

    def set_rtt(self, node: str, peer: str, rtt_ms: float, at_s: float) -> None:
        """Store a round trip by ICMP, ms, above zero."""
        row = self._row(node, peer)
        if row is None or at_s < self._rtt.at_s[row]:
            return
        rtt_ms = max(rtt_ms, _LEAST_RTT_MS)
        known = at_s - self._rtt.at_s[row] <= self._rtt.ttl_s
        if known:
            self._deviations.append(abs(log(rtt_ms / self._rtt.values[row])))
        self._rtt.set(row, self._medians.add(row, rtt_ms, restart=not known), at_s)
        self._version += 1

    def set_broker_leg(self, node: str, rtt_ms: float, at_s: float) -> None:
        """Store a board's round trip to the broker, ms: its leg, where it may not send ICMP."""
        if node not in self._legs and len(self._legs) >= _MAX_LEGS:
            self._legs = {
                name: leg for name, leg in self._legs.items() if at_s - leg[1] <= self._rtt.ttl_s
            }
        if node in self._legs or len(self._legs) < _MAX_LEGS:
            self._legs[node] = (rtt_ms, at_s)
            self._version += 1

    def set_bandwidth(
        self, node: str, peer: str, mbps: float, at_s: float, *, lower_bound: bool
    ) -> None:
        """Store the result of a bandwidth test, Mbit/s."""
        row = self._row(node, peer)
        if row is not None and self._bandwidth.set(row, mbps, at_s):
            (self._lower_bounds.add if lower_bound else self._lower_bounds.discard)(row)

    def fresh(self, now_s: float, estimated_from: Iterable[str] = ()) -> list[LinkReading]:
        """Every pair with a value that is known now; values that are too old are None.

        estimated_from: the nodes whose unmeasured round trips are estimated, without an age.
        """
        count = len(self._rows)
        bounds = {(a, b): (rtt_ms, at_s) for a, b, rtt_ms, at_s in self._broker_bounds(now_s)}
        noise = self._noise()
        readings = {}
        rtts_ms = self._smoothed(np.arange(count)).tolist()
        for pair, row, rtt, bandwidth in zip(
            self._rows,
            range(count),
            self._rtt.known(count, now_s),
            self._bandwidth.known(count, now_s),
            strict=True,
        ):
            leg = bounds.pop(pair, None)
            if not (rtt or leg or bandwidth):
                continue
            rtt_ms, rtt_at_s = (rtts_ms[row], rtt[1]) if rtt else leg or _NOTHING
            mbps, mbps_at_s = bandwidth or _NOTHING
            age = (now_s - rtt_at_s) / self._rtt.ttl_s
            readings[pair] = LinkReading(
                *pair,
                rtt_ms,
                rtt_at_s,
                rtt_method="icmp" if rtt else "mqtt" if leg else "",
                rtt_source="" if rtt_ms is None else "stale" if age > _STALE_SHARE else "measured",
                rtt_error_ms=rtt_ms * noise * (1 + age) if rtt and rtt_ms is not None else rtt_ms,
                bandwidth_mbps=mbps,
                bandwidth_at_s=mbps_at_s,
                lower_bound=bandwidth is not None and row in self._lower_bounds,
            )
        for pair, (rtt_ms, at_s) in bounds.items():
            readings[pair] = LinkReading(*pair, rtt_ms, at_s, "mqtt", "measured", rtt_ms)
        for node in estimated_from:
            self._add_estimates(node, readings)
        return list(readings.values())

    def _noise(self) -> float:
        """The relative deviation of 90 % of the rounds from the median of their pair."""
        if not self._deviations:
            return _UNKNOWN_DEVIATION
        return float(np.expm1(_ERROR_SHARE * np.quantile(self._deviations, _COVERAGE)))

    def _smoothed(self, rows: Ints) -> Floats:
        """The measured round trips of these rows, ms, with less noise where estimates help."""
        estimates, rtt_ms = self._estimates, self._rtt.values[rows]
        if estimates is None or not self._deviations:
            return rtt_ms
        places = np.array([estimates.index.get(name, -1) for name in self._names], dtype=np.int64)
        noise = _MEDIAN_SHARE * float(np.quantile(self._deviations, _STANDARD))
        rtt_ms = np.maximum(rtt_ms, _LEAST_RTT_MS)  # of rows that only have a bandwidth
        return estimates.smoothed(places[self._ends[rows]], rtt_ms, noise)

    def _add_estimates(self, node: str, readings: dict[tuple[str, str], LinkReading]) -> None:
        estimates = self._estimates
        if estimates is None or node not in estimates.index:
            return
        rtt_ms, triangulated = estimates.rtt_ms_from(estimates.index[node])
        errors = {source: estimates.trials.error(source) for source in SOURCES}
        columns = zip(estimates.names, rtt_ms.tolist(), triangulated.tolist(), strict=True)
        for peer, value, near in columns:
            pair = (node, peer) if node < peer else (peer, node)
            reading = readings.get(pair)
            if peer == node or isnan(value) or (reading and reading.rtt_ms is not None):
                continue
            source = SOURCES[0] if near else SOURCES[1]
            readings[pair] = replace(
                reading or LinkReading(*pair),
                rtt_ms=value,
                rtt_source=source,
                rtt_error_ms=value * errors[source],
            )

    # Estimates: the fit takes longer than the lock may be held.

    def measured(self, now_s: float) -> tuple[tuple[str, ...], Ints, Floats, RttEstimates | None]:
        """The input of `estimate`: names, pairs, round trips and the last result. No pairs if the
        nodes are too few for coordinates to mean anything."""
        rows = np.flatnonzero(self._rtt.is_fresh(len(self._rows), now_s))
        if len(np.unique(self._ends[rows])) < _FEWEST_NODES:
            rows = rows[:0]
        return tuple(self._names), self._ends[rows], self._rtt.values[rows], self._estimates

    def set_estimates(self, estimates: RttEstimates) -> None:
        """Store the newest estimates."""
        self._estimates = estimates
        self._version += 1

    def nearest_unknown(self, node: str, count: int, now_s: float) -> list[str]:
        """The names of up to `count` nodes that are nearest to `node` by their coordinates and
        whose round trip from it is unknown or stale, nearest first."""
        estimates = self._estimates
        if estimates is None or node not in estimates.index:
            return []
        rtt_ms = estimates.coordinates.rtt_ms_from(estimates.index[node])
        rtt_ms[estimates.index[node]] = np.inf
        rows = np.array(self._rows_of.get(node, ()), dtype=np.int64)
        fresh = rows[now_s - self._rtt.at_s[rows] <= self._rtt.ttl_s * _STALE_SHARE]
        for number in self._ends[fresh].ravel().tolist():
            if (at := estimates.index.get(self._names[number])) is not None:
                rtt_ms[at] = np.inf
        nearest = np.argpartition(rtt_ms, min(count, len(rtt_ms) - 1))[:count]
        nearest = nearest[np.argsort(rtt_ms[nearest])]
        return [estimates.names[at] for at in nearest if np.isfinite(rtt_ms[at])]

    def bandwidth_of(self, node: str, now_s: float) -> tuple[float, float] | None:
        """(Mbit/s, time of measurement) of the node's best link, None when unknown. It is what the
        node's interface can do at least; a slow peer limits only its own link."""
        column = self._bandwidth
        known = [
            (float(column.values[row]), float(column.at_s[row]))
            for row in self._rows_of.get(node, ())
            if now_s - column.at_s[row] <= column.ttl_s
        ]
        return max(known, default=None)

    def table(self, nodes: NodeTable, now_s: float) -> LinkTable:
        """The round trips between `nodes`. The result is cached until one changes or a second has
        passed, as a value may have become too old."""
        key = (ref(nodes), self._version, int(now_s))  # keeps no nodes in memory
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._table(nodes, now_s))
        return self._cached[1]

    def _table(self, nodes: NodeTable, now_s: float) -> LinkTable:
        places = np.array([nodes.index.get(name, -1) for name in self._names], dtype=np.int64)
        rows = np.flatnonzero(self._rtt.is_fresh(len(self._rows), now_s))
        ends: Ints = places[self._ends[rows]].reshape(-1, 2)
        rtt_ms, at_s = self._smoothed(rows), self._rtt.at_s[rows]
        bounds = [
            (nodes.index[a], nodes.index[b], *leg)
            for a, b, *leg in self._broker_bounds(now_s)
            if a in nodes.index and b in nodes.index
        ]
        if bounds:
            ends = np.concatenate((ends, [(a, b) for a, b, _, _ in bounds]))
            rtt_ms = np.concatenate((rtt_ms, [leg_ms for _, _, leg_ms, _ in bounds]))
            at_s = np.concatenate((at_s, [leg_at_s for _, _, _, leg_at_s in bounds]))
        here = (ends >= 0).all(axis=1)
        estimate = None if self._estimates is None else _rows_of(self._estimates, nodes)
        return LinkTable.of_columns(len(nodes), ends[here], rtt_ms[here], at_s[here], estimate)

    def _broker_bounds(self, now_s: float) -> list[tuple[str, str, float, float]]:
        """(a, b, ms, when measured) of the pairs without a fresh round trip of their own.

        Each leg crosses one of the two boards' links and the broker, so together they bound
        the pair's round trip from above.
        """
        column = self._rtt
        legs = [(n, *leg) for n, leg in self._legs.items() if now_s - leg[1] <= column.ttl_s]
        bounds = []
        for (a, a_ms, a_at_s), (b, b_ms, b_at_s) in combinations(sorted(legs), 2):
            row = self._rows.get((a, b))
            if row is None or now_s - column.at_s[row] > column.ttl_s:
                bounds.append((a, b, a_ms + b_ms, min(a_at_s, b_at_s)))
        return bounds

    def drop_old(self, now_s: float) -> None:
        """Remove the rows of pairs without a fresh value once they are half of all rows."""
        count = len(self._rows)
        fresh = self._rtt.is_fresh(count, now_s) | self._bandwidth.is_fresh(count, now_s)
        kept = np.flatnonzero(fresh)
        if count - len(kept) <= max(len(kept), _FEW_LINKS):
            return
        places = dict(zip(kept.tolist(), range(len(kept)), strict=True))
        self._rows = {
            pair: places[row] for pair, row in self._rows.items() if row in places
        }  # still in the order of their rows
        self._lower_bounds = {places[row] for row in self._lower_bounds if row in places}
        self._rtt.keep(kept)
        self._bandwidth.keep(kept)
        self._medians.keep(kept)
        self._rows_of.clear()
        self._numbers.clear()
        self._names.clear()
        self._ends = np.zeros((max(64, len(kept)), 2), dtype=np.int64)
        for pair, row in self._rows.items():
            self._put_ends(row, pair)
        self._version += 1

    def _row(self, node: str, peer: str) -> int | None:
        """The row of a pair, created if necessary; None when there are too many."""
        a, b = sorted((node, peer))
        row = self._rows.get((a, b))
        if row is None and len(self._rows) < _MAX_LINKS:
            row = self._rows[a, b] = len(self._rows)
            if row == len(self._ends):
                self._ends = np.concatenate((self._ends, np.zeros_like(self._ends)))
                self._rtt.grow()
                self._bandwidth.grow()
                self._medians.grow()
            self._put_ends(row, (a, b))
        return row

    def _put_ends(self, row: int, pair: tuple[str, str]) -> None:
        for end, name in enumerate(pair):
            self._rows_of[name].append(row)
            if name not in self._numbers:
                self._numbers[name] = len(self._names)
                self._names.append(name)
            self._ends[row, end] = self._numbers[name]


def _rows_of(estimates: RttEstimates, nodes: NodeTable) -> Callable[[int], Floats]:
    """The estimated round trips from a node of the table to each, NaN if unknown."""
    places = np.array([estimates.index.get(name, -1) for name in nodes.names], dtype=np.int64)

    def row(node: int) -> Floats:
        if places[node] < 0:
            return np.full(len(places), np.nan)
        rtt_ms, _ = estimates.rtt_ms_from(int(places[node]))
        return np.where(places >= 0, rtt_ms[places], np.nan)

    return row
