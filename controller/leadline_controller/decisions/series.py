"""The table of measured series: a row for each block of each board, bounded in age and bytes.

A block is rewritten while it grows. What a controller wrote before a restart, and what it writes
again after the wall clock went back, is merged into the row that is there. Rows are deleted by the
wall clock, but at most twice as many as are written, so that a clock that is wrong for a moment
costs little. For use by one thread, in the transactions of its Database.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from leadline_controller.telemetry.series import COARSE, FINE, Block, Resolution, pack, unpack

KEPT_S = {FINE: 86_400, COARSE: 14 * 86_400}
# Of the file's largest size, for each resolution. Pages are not full, so together they take half.
_SHARE = 0.2
_PRUNED_TO = 0.95
_ROW_BYTES = 40  # besides the points and twice the board's name, one of them in the index
_USED = "SELECT step_s, sum(length(points) + 2 * length(board) + ?) FROM series GROUP BY step_s"
_DELETE = (
    "DELETE FROM series WHERE id IN (SELECT id FROM series WHERE step_s = ? AND start_unix_s"
    " BETWEEN ? AND ? ORDER BY start_unix_s LIMIT ?)"
    " RETURNING length(points) + 2 * length(board) + ?"
)
_EARLIEST_S, _LATEST_S = -(2**62), 2**62
_FUTURE_S = 86_400  # written while the clock was wrong
_MAX_TEXT = 1024
_AT_ONCE = 128  # blocks; unpacking one takes a tenth of a millisecond
_RESOLUTIONS = {resolution.step_s: resolution for resolution in (FINE, COARSE)}


class SeriesRow(NamedTuple):
    """A row as it is stored. points: a packed block."""

    step_s: int
    start_unix_s: int
    board: str
    points: bytes

    def block(self) -> Block:
        """Raises ValueError if the row is damaged."""
        step_s, start_s, board, points = self
        resolution = _RESOLUTIONS.get(step_s)
        is_sound = (
            resolution is not None
            and isinstance(start_s, int)
            and isinstance(board, str)
            and len(board) <= _MAX_TEXT
            and isinstance(points, bytes)
        )
        if resolution is None or not is_sound:
            raise ValueError("a damaged row of series")
        return unpack(resolution, start_s, points)


class SeriesTable:
    """max_bytes: of the whole file. unreadable: rows skipped because they are damaged."""

    def __init__(self, connection: sqlite3.Connection, max_bytes: int) -> None:
        self._connection = connection
        self._most_bytes = _SHARE * max_bytes
        self._bytes: dict[int, int] | None = None  # of each step_s, about
        self.unreadable = 0

    def forget(self) -> None:
        """Forget what a transaction that failed may have changed."""
        self._bytes = None

    def write(self, blocks: Iterable[tuple[str, Block]], unix_s: float | None) -> None:
        """Store the blocks, each of a board, and for each fine one its coarse point. Then delete
        what is too old, None if the time is unknown, and what is too much."""
        written = 0
        for board, block in blocks:
            written += 1
            merged = self._merge(board, block)
            if block.resolution is FINE:
                self._merge(board, merged.as_coarse())
        if unix_s is not None:
            self._delete_old(int(unix_s), 2 * written)
        self.shrink()

    def copy(self, rows: Iterable[SeriesRow]) -> None:
        """Add the rows of another file."""
        for row in rows:
            if self._get(row.step_s, row.start_unix_s, row.board) is None:
                self._put(row)
            else:
                self._merge(row.board, row.block())
        self.shrink()

    def shrink(self) -> None:
        """Delete the oldest rows beyond the largest size."""
        for step_s, used in list(self._used().items()):
            while used > self._most_bytes:
                (count,) = self._connection.execute(
                    "SELECT count(*) FROM series WHERE step_s = ?", (step_s,)
                ).fetchone()
                most = 1 + int(count * (1 - _PRUNED_TO * self._most_bytes / used))
                self._delete(step_s, _EARLIEST_S, _LATEST_S, most)
                used = self._used()[step_s] if count else 0

    def blocks(self, board: str, from_s: int, to_s: int) -> list[Block]:
        """The board's blocks that overlap these Unix seconds. It looks at each block's time there
        is between them, whatever was asked."""
        found = []
        for resolution in (COARSE, FINE):
            starts = self._starts(resolution, from_s - resolution.block_s + 1, to_s)
            blocks = (self._block(resolution, start_s, board) for start_s in starts)
            found += [block for block in blocks if block is not None]
        return found

    def blocks_at(
        self, resolution: Resolution, unix_s: int, after: str
    ) -> tuple[list[tuple[str, Block]], str | None]:
        """The blocks that have this Unix second in them, each with its board, of some boards whose
        names come after this one; and the last one's name, None if there are no more."""
        rows = self._connection.execute(
            "SELECT step_s, start_unix_s, board, points FROM series"
            " WHERE step_s = ? AND start_unix_s = ? AND board > ? ORDER BY board LIMIT ?",
            (resolution.step_s, unix_s - unix_s % resolution.block_s, after, _AT_ONCE),
        ).fetchall()
        found = []
        for row in rows:
            try:
                found.append((row[2], SeriesRow(*row).block()))
            except ValueError:
                self.unreadable += 1
        return found, rows[-1][2] if rows else None

    def first_s(self) -> int | None:
        """When the oldest block begins, Unix seconds; None without one. A coarse one may begin long
        before its first point, so the fine ones in it count."""
        starts = {}
        for resolution in (COARSE, FINE):
            (starts[resolution],) = self._connection.execute(
                "SELECT min(start_unix_s) FROM series WHERE step_s = ?", (resolution.step_s,)
            ).fetchone()
        coarse_s, fine_s = starts[COARSE], starts[FINE]
        if not isinstance(coarse_s, int) or not isinstance(fine_s, int):
            return coarse_s if isinstance(coarse_s, int) else None
        return fine_s if coarse_s + COARSE.block_s > fine_s else coarse_s

    def rows(self) -> Iterator[SeriesRow]:
        """All rows, oldest first."""
        return (row for row, _ in select(self._connection, "ASC"))

    def _starts(self, resolution: Resolution, first_s: int, end_s: int) -> Iterator[int]:
        """When blocks of any board begin, from `first_s` on and before `end_s`."""
        while first_s < end_s:
            (first_s,) = self._connection.execute(
                "SELECT min(start_unix_s) FROM series WHERE step_s = ? AND start_unix_s >= ?",
                (resolution.step_s, first_s),
            ).fetchone()
            if not isinstance(first_s, int) or first_s >= end_s:
                return
            yield first_s
            first_s += 1

    def _merge(self, board: str, block: Block) -> Block:
        before = self._block(block.resolution, block.start_s, board)
        merged = block if before is None else before.merged(block)
        self._put(SeriesRow(block.resolution.step_s, block.start_s, board, pack(merged)))
        return merged

    def _block(self, resolution: Resolution, start_s: int, board: str) -> Block | None:
        points = self._get(resolution.step_s, start_s, board)
        if points is None:
            return None
        try:
            return SeriesRow(resolution.step_s, start_s, board, points).block()
        except ValueError:
            self.unreadable += 1
            return None

    def _get(self, step_s: int, start_s: int, board: str) -> Any:
        found = self._connection.execute(
            "SELECT points FROM series WHERE step_s = ? AND start_unix_s = ? AND board = ?",
            (step_s, start_s, board),
        ).fetchone()
        return None if found is None else found[0]

    def _put(self, row: SeriesRow) -> None:
        before = self._get(*row[:3])
        used = self._used()
        if before is None:
            grown = len(row.points) + 2 * len(row.board) + _ROW_BYTES
        else:
            grown = len(row.points) - (len(before) if isinstance(before, bytes) else 0)
        used[row.step_s] = used.get(row.step_s, 0) + grown
        self._connection.execute(
            "INSERT INTO series (step_s, start_unix_s, board, points) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET points = excluded.points",
            row,
        )

    def _delete_old(self, unix_s: int, most: int) -> None:
        for resolution, kept_s in KEPT_S.items():
            too_old_s = unix_s - kept_s - resolution.block_s
            self._delete(resolution.step_s, _EARLIEST_S, too_old_s, most)
            self._delete(resolution.step_s, unix_s + _FUTURE_S, _LATEST_S, most)

    def _delete(self, step_s: int, first_s: int, last_s: int, most: int) -> None:
        """Delete the first rows of this step that start between these times."""
        used = self._used()
        deleted = self._connection.execute(_DELETE, (step_s, first_s, last_s, most, _ROW_BYTES))
        used[step_s] = used.get(step_s, 0) - sum(cost for (cost,) in deleted.fetchall())

    def _used(self) -> dict[int, int]:
        if self._bytes is None:
            self._bytes = dict(self._connection.execute(_USED, (_ROW_BYTES,)).fetchall())
        return self._bytes


def select(connection: sqlite3.Connection, order: str) -> Iterator[tuple[SeriesRow, int]]:
    """All rows with their ids, as they are. order: ASC or DESC, by id."""
    sql = "SELECT step_s, start_unix_s, board, points, id FROM series ORDER BY id {order}"
    for *columns, number in connection.execute(sql.format(order=order)):
        yield SeriesRow(*columns), number
