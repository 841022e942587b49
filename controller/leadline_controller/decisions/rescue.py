"""What to do with a file that is no sound database any more: put it aside, and take over what
can still be read of it."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from leadline_controller.decisions.codec import decode
from leadline_controller.decisions.database import bounded, connected, rows
from leadline_controller.decisions.rows import Row
from leadline_controller.decisions.schema import CorruptFileError

# With statements as plain as ours, SQLITE_ERROR means tables that are not what they were.
_KINDS = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_INTERNAL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_NOTADB,
)
_READING_S = 5.0  # twice, from either end


def is_corrupt(error: Exception) -> bool:
    """Whether this error says that the file itself is broken."""
    # The low byte is the kind; the rest says where it was met.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, CorruptFileError) or kind in _KINDS


def put_aside(path: Path) -> Path:
    """Rename the file, with its journals; where it is now. Raises OSError."""
    aside = path.with_name(f"{path.name}.corrupt")
    # The journals go first: one that is left behind would be applied to the next file.
    for ending in ("-journal", "-wal", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).replace(aside.with_name(aside.name + ending))
    for each in (path, aside):
        each.with_name(f"{each.name}-shm").unlink(missing_ok=True)
    return aside


def readable(path: Path, most_bytes: int) -> list[Row]:
    """Every decision of a broken file that can be read from its beginning or from its end,
    oldest first, as many as fit into `most_bytes` and can be read in a few seconds."""
    found: dict[int, Row] = {}
    with suppress(sqlite3.Error), closing(connected(path)) as connection:
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error), bounded(connection, _READING_S):
                for row, number in rows(connection, f"ORDER BY decisions.id {order}"):
                    if number in found or most_bytes < 0:
                        break
                    if row is not None and _is_sound(row.explanation):
                        found[number] = row
                        most_bytes -= len(row.explanation) + len(row.why)
    return [found[number] for number in sorted(found)]


def _is_sound(explanation: bytes) -> bool:
    """An account has a checksum of its own."""
    if not explanation:
        return True
    try:
        decode(explanation)
    except ValueError:
        return False
    return True
