"""The table of measured series: a row for each block of each board.

A block is rewritten while it grows. What a controller wrote before a restart, and what it writes
again after the wall clock went back, is merged into the row that is there. A damaged row is as if
it were not there. These functions are called by a Store, those that write in its transactions.
"""

import sqlite3
from collections.abc import Iterable

from leadline_controller.telemetry.series import COARSE, FINE, Block, Resolution, pack, unpack

KEPT_S = {FINE: 86_400, COARSE: 14 * 86_400}
_FUTURE_S = 86_400  # written while the clock was wrong
_AT_ONCE = 128  # blocks; unpacking one takes a tenth of a millisecond


def write(
    connection: sqlite3.Connection, blocks: Iterable[tuple[str, Block]], unix_s: float | None
) -> None:
    """Store the blocks, each of a board, and for each fine one its coarse point. Then delete what
    is too old, unless the time is unknown: at most twice as many rows as are written, so that a
    clock that is wrong for a moment costs little."""
    written = 0
    for board, block in blocks:
        written += 1
        merged = _merge(connection, board, block)
        if block.resolution is FINE:
            _merge(connection, board, merged.as_coarse())
    for resolution, kept_s in KEPT_S.items() if unix_s is not None else ():
        connection.execute(
            "DELETE FROM series WHERE id IN (SELECT id FROM series WHERE step_s = ?"
            " AND (start_unix_s <= ? OR start_unix_s >= ?) ORDER BY start_unix_s LIMIT ?)",
            (
                resolution.step_s,
                int(unix_s or 0) - kept_s - resolution.block_s,
                int(unix_s or 0) + _FUTURE_S,
                2 * written,
            ),
        )


def blocks(connection: sqlite3.Connection, board: str, from_s: int, to_s: int) -> list[Block]:
    """The board's blocks that overlap these Unix seconds."""
    found = []
    for resolution in (COARSE, FINE):
        rows = connection.execute(
            "SELECT start_unix_s, points FROM series"
            " WHERE step_s = ? AND start_unix_s > ? AND start_unix_s < ? AND board = ?",
            (resolution.step_s, from_s - resolution.block_s, to_s, board),
        )
        found += [_block(resolution, *row) for row in rows]
    return [block for block in found if block is not None]


def blocks_at(
    connection: sqlite3.Connection, resolution: Resolution, unix_s: int, after: str
) -> tuple[list[tuple[str, Block]], str | None]:
    """The blocks that have this Unix second in them, each with its board, of some boards whose
    names come after this one; and the last one's name, None if there are no more."""
    rows = connection.execute(
        "SELECT board, start_unix_s, points FROM series"
        " WHERE step_s = ? AND start_unix_s = ? AND board > ? ORDER BY board LIMIT ?",
        (resolution.step_s, unix_s - unix_s % resolution.block_s, after, _AT_ONCE),
    ).fetchall()
    found = ((board, _block(resolution, *row)) for board, *row in rows)
    return [(board, each) for board, each in found if each], rows[-1][0] if rows else None


def first_s(connection: sqlite3.Connection) -> int | None:
    """When the oldest block begins, Unix seconds; None without one. A coarse one may begin long
    before its first point, so the fine ones in it count."""
    coarse_s, fine_s = (
        connection.execute(
            "SELECT min(start_unix_s) FROM series WHERE step_s = ?", (resolution.step_s,)
        ).fetchone()[0]
        for resolution in (COARSE, FINE)
    )
    if not isinstance(coarse_s, int) or not isinstance(fine_s, int):
        return coarse_s if isinstance(coarse_s, int) else None
    return fine_s if coarse_s + COARSE.block_s > fine_s else coarse_s


def _merge(connection: sqlite3.Connection, board: str, block: Block) -> Block:
    key = block.resolution.step_s, block.start_s, board
    row = connection.execute(
        "SELECT points FROM series WHERE step_s = ? AND start_unix_s = ? AND board = ?", key
    ).fetchone()
    before = _block(block.resolution, block.start_s, *row) if row else None
    merged = block if before is None else before.merged(block)
    connection.execute(
        "INSERT INTO series (step_s, start_unix_s, board, points) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET points = excluded.points",
        (*key, pack(merged)),
    )
    return merged


def _block(resolution: Resolution, start_s: int, points: bytes) -> Block | None:
    try:
        return unpack(resolution, start_s, points)
    except (ValueError, TypeError):
        return None
