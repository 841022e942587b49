"""Means, minima and maxima of every minute of what is measured, until they are written.

It reads the state of the boards at short intervals, instead of each message, so it costs the same
however much is reported: O(boards and measured pairs). Of a board's round trips it keeps those to
the anchors and to a few more peers, which stay as long as they are measured; so history grows with
the number of boards and not with that of pairs.
"""

from collections.abc import Collection, Iterator
from threading import Lock

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.telemetry.series import FINE, RTT, Block, SeriesKey
from leadline_controller.telemetry.state import TelemetryState

PEERS = 8
# So many boards are written every minute, twice as many every second minute, and so on: what is
# written in a day stays the same, until all are written once a quarter of an hour.
_BOARDS_A_MINUTE = 4
# A round trip arrives so long after it was measured; one that counts in two minutes does no harm.
_LATE_S = 5.0
_SHIFT = 32  # a pair's code: the board's number, then the peer's


class Sampler:
    """The present quarter of an hour of all boards. anchors: peers that are always kept. Its
    methods may be called on any thread."""

    def __init__(self, telemetry: TelemetryState, anchors: Collection[str] = ()) -> None:
        self._telemetry = telemetry
        self._anchors = tuple(anchors)
        self._lock = Lock()
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._minute = -1  # since 1970
        self._written = -1
        self._now_s = self._paired_s = -np.inf
        self._columns: tuple[str, ...] = ()
        self._pairs: Ints = np.zeros(0, dtype=np.int64)  # codes, sorted
        self._clear()

    def _clear(self) -> None:
        boards, columns = len(self._names), len(self._columns)
        self._seen_s = np.full((boards, columns), -np.inf)  # when the newest value was measured
        self._totals = np.zeros((boards, columns))  # of this minute
        self._counts = np.zeros((boards, columns), dtype=np.int64)
        self._extremes = _no_extremes(boards, columns)
        self._points = np.full((boards, columns, FINE.points, 3), np.nan, dtype=np.float32)
        self._rtts = np.full((len(self._pairs), FINE.points), np.nan, dtype=np.float32)

    def sample(self, now_s: float, unix_s: float) -> list[tuple[str, Block]]:
        """Read what was measured since the last time. now_s: the state's clock. unix_s: the wall
        clock, which may jump.

        Returns the blocks that are to be written now, each with its board; empty most of the time.
        """
        with self._lock:
            minute, due = int(unix_s // FINE.step_s), list[tuple[str, Block]]()
            if minute != self._minute and self._minute >= 0:
                self._end_minute(now_s)
                ended = self._minute // FINE.points != minute // FINE.points
                every = min(FINE.points, 1 + (len(self._names) - 1) // _BOARDS_A_MINUTE)
                if ended or abs(minute - self._written) >= every:
                    due, self._written = list(self._blocks()), minute
                if ended:
                    self._start_block()
            self._minute = minute
            self._read_boards(now_s)
            self._now_s = now_s
            return due

    def block(self, board: str) -> Block | None:
        """What is known of the board in this quarter of an hour, without the present minute."""
        with self._lock:
            return next(self._blocks(board), (board, None))[1]

    def blocks(self) -> list[tuple[str, Block]]:
        """What is known of all boards in this quarter of an hour, without the present minute."""
        with self._lock:
            return list(self._blocks()) if self._minute >= 0 else []

    def last(self) -> list[tuple[str, Block]]:
        """What is to be written before the end, the present minute included."""
        with self._lock:
            if self._minute < 0:
                return []
            self._end_minute(self._now_s)
            return list(self._blocks())

    def _read_boards(self, now_s: float) -> None:
        boards = self._telemetry.boards(now_s)
        names, columns, at_s = boards.names, tuple(boards.columns), boards.at_s
        values = np.stack(tuple(boards.columns.values()), axis=1)
        if columns != self._columns:
            self._columns = columns
            self._clear()
        rows = self._rows(names)
        # A board that was forgotten still has its old values in the state.
        since_s = np.maximum(self._seen_s[rows], self._now_s - FINE.step_s)
        new = (at_s > since_s) & ~np.isnan(values)
        self._seen_s[rows] = at_s
        self._totals[rows] += np.where(new, values, 0.0)
        self._counts[rows] += new
        least, most = self._extremes
        least[rows] = np.minimum(least[rows], np.where(new, values, np.inf))
        most[rows] = np.maximum(most[rows], np.where(new, values, -np.inf))

    def _rows(self, names: Collection[str]) -> Ints:
        """The numbers of these boards; new ones get one."""
        for name in names:
            if name not in self._numbers:
                self._numbers[name] = len(self._names)
                self._names.append(name)
        more = len(self._names) - len(self._totals)
        if more > 0:
            columns = len(self._columns)
            self._seen_s = np.concatenate((self._seen_s, np.full((more, columns), -np.inf)))
            self._totals = np.concatenate((self._totals, np.zeros((more, columns))))
            self._counts = np.concatenate((self._counts, np.zeros((more, columns), dtype=np.int64)))
            self._extremes = np.concatenate((self._extremes, _no_extremes(more, columns)), axis=1)
            unknown = np.full((more, *self._points.shape[1:]), np.nan, dtype=np.float32)
            self._points = np.concatenate((self._points, unknown))
        return np.array([self._numbers[name] for name in names], dtype=np.int64)

    def _end_minute(self, now_s: float) -> None:
        """Make points of what was measured in the minute."""
        at = self._minute % FINE.points
        known = self._counts > 0
        means = self._totals / np.maximum(self._counts, 1)
        points = np.stack((means, *self._extremes), axis=-1)
        self._points[:, :, at][known] = points[known]
        self._totals[:], self._counts[:] = 0.0, 0
        self._extremes = _no_extremes(*self._totals.shape)
        self._read_pairs(at)
        self._paired_s = now_s

    def _read_pairs(self, at: int) -> None:
        names, ends, rtt_ms = self._telemetry.rtts_since(self._paired_s - _LATE_S)
        numbers = self._rows(names)
        if not len(ends):
            return
        one, other = numbers[ends[:, 0]], numbers[ends[:, 1]]
        codes = np.concatenate(((one << _SHIFT) + other, (other << _SHIFT) + one))
        rtt_ms = np.concatenate((rtt_ms, rtt_ms))
        self._keep(codes, rtt_ms)
        places = np.searchsorted(self._pairs, codes)
        kept: Bools = self._pairs[np.minimum(places, len(self._pairs) - 1)] == codes
        self._rtts[places[kept], at] = rtt_ms[kept]

    def _keep(self, codes: Ints, rtt_ms: Floats) -> None:
        """Keep PEERS pairs of each board: those with anchors, those that it has, the nearest."""
        candidates = np.concatenate((self._pairs, codes))
        nearness = np.concatenate((np.zeros(len(self._pairs)), rtt_ms))
        candidates, first = np.unique(candidates, return_index=True)
        boards = candidates >> _SHIFT
        anchors = [self._numbers[name] for name in self._anchors if name in self._numbers]
        is_anchor = np.isin(candidates & ((1 << _SHIFT) - 1), anchors)
        order = np.lexsort((nearness[first], ~is_anchor, boards))
        ordered = boards[order]
        rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        pairs = np.sort(candidates[order[rank < PEERS]])
        if not np.array_equal(pairs, self._pairs):
            rtts = np.full((len(pairs), FINE.points), np.nan, dtype=np.float32)
            places = np.searchsorted(pairs, self._pairs)
            stay = places < len(pairs)
            stay[stay] = pairs[places[stay]] == self._pairs[stay]
            rtts[places[stay]] = self._rtts[stay]
            self._pairs, self._rtts = pairs, rtts

    def _blocks(self, board: str | None = None) -> Iterator[tuple[str, Block]]:
        """The blocks of all boards, or of this one, that have any point."""
        start_s = self._minute // FINE.points * FINE.block_s
        keys = [SeriesKey(name) for name in self._columns]
        numbers = range(len(self._names))
        if board is not None:
            numbers = range(self._numbers.get(board, 0), self._numbers.get(board, -1) + 1)
        for number in numbers:
            first, last = np.searchsorted(
                self._pairs, ((number << _SHIFT), ((number + 1) << _SHIFT))
            )
            peers = (self._pairs[first:last] & ((1 << _SHIFT) - 1)).tolist()
            rtts = np.repeat(self._rtts[first:last, :, np.newaxis], 3, axis=2)
            points = np.concatenate((self._points[number], rtts)).astype(np.float64)
            known = (~np.isnan(points[:, :, 0])).sum(axis=1) > 0
            if known.any():
                every = (*keys, *(SeriesKey(RTT, self._names[peer]) for peer in peers))
                chosen = tuple(key for key, is_known in zip(every, known, strict=True) if is_known)
                yield self._names[number], Block(FINE, start_s, chosen, points[known])

    def _start_block(self) -> None:
        """Forget pairs and boards that were not measured in the block."""
        pairs = self._pairs[(~np.isnan(self._rtts)).sum(axis=1) > 0]
        ends = np.stack((pairs >> _SHIFT, pairs & ((1 << _SHIFT) - 1)))
        measured = (~np.isnan(self._points[:, :, :, 0])).sum(axis=(1, 2)) > 0
        measured[ends.ravel()] = True
        kept = np.flatnonzero(measured)
        places = np.searchsorted(kept, ends)
        self._pairs = np.sort((places[0] << _SHIFT) + places[1])
        self._names = [self._names[number] for number in kept.tolist()]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        seen_s = self._seen_s[kept]
        self._clear()
        self._seen_s = seen_s


def _no_extremes(boards: int, columns: int) -> Floats:
    """The least and the most of no values."""
    extremes = np.empty((2, boards, columns))
    extremes[0], extremes[1] = np.inf, -np.inf
    return extremes
