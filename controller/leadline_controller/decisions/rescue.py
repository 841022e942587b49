"""Recovery from a damaged file: move it aside, and read what is still readable."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from leadline_controller.decisions.codec import decode
from leadline_controller.decisions.database import bounded, connected, select
from leadline_controller.decisions.record import DecisionRecord
from leadline_controller.decisions.schema import CorruptFileError

# Our statements are plain, so SQLITE_ERROR means damaged tables.
_KINDS = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_INTERNAL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_NOTADB,
)
_READING_S = 5.0  # from each end


def is_corrupt(error: Exception) -> bool:
    """Whether this error says that the file itself is broken."""
    # The low byte is the kind; the rest says where it occurred.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, CorruptFileError) or kind in _KINDS


def put_aside(path: Path) -> Path:
    """Rename the file and its journals. Returns the new path; raises OSError."""
    aside = path.with_name(f"{path.name}.corrupt")
    # The journals go first: one left behind would be applied to the next file.
    for ending in ("-journal", "-wal", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).replace(aside.with_name(aside.name + ending))
    for each in (path, aside):
        each.with_name(f"{each.name}-shm").unlink(missing_ok=True)
    return aside


def readable(path: Path, max_bytes: int) -> list[DecisionRecord]:
    """Every decision of a broken file that can be read from its beginning or from its end,
    oldest first, as many as fit into `max_bytes` and can be read in a few seconds."""
    found: dict[int, DecisionRecord] = {}
    with suppress(sqlite3.Error), closing(connected(path)) as connection:
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error), bounded(connection, _READING_S):
                for record, number in select(connection, f"ORDER BY decisions.id {order}"):
                    if number in found or max_bytes < 0:
                        break
                    if record is not None and _is_sound(record.explanation):
                        found[number] = record
                        max_bytes -= len(record.explanation) + len(record.why)
    return [found[number] for number in sorted(found)]


def _is_sound(explanation: bytes) -> bool:
    """An explanation has a checksum of its own."""
    if not explanation:
        return True
    try:
        decode(explanation)
    except ValueError:
        return False
    return True
