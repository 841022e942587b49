"""What to do with a file that is no sound database any more: put it aside, and take over what
can still be read of it."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from leadline_controller.history.codec import decode
from leadline_controller.history.database import CorruptFileError, rows
from leadline_controller.history.rows import Row

_KINDS = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_corrupt(error: Exception) -> bool:
    """Whether this error says that the file itself is broken."""
    # The low byte is the kind; the rest says where it was met.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, CorruptFileError) or kind in _KINDS


def put_aside(path: Path) -> Path:
    """Rename the file, with its journal; where it is now. Raises OSError."""
    aside = path.with_name(f"{path.name}.corrupt")
    # The journal goes first: one that is left behind would be applied to the next file.
    for ending in ("-wal", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).replace(aside.with_name(aside.name + ending))
    for each in (path, aside):
        each.with_name(f"{each.name}-shm").unlink(missing_ok=True)
    return aside


def readable(path: Path) -> list[Row]:
    """Every decision of a broken file that can be read from its beginning or from its end,
    oldest first."""
    found: dict[int, Row] = {}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error):
                for row, number in rows(connection, f"ORDER BY decisions.id {order}"):
                    if number in found:
                        break
                    if _is_sound(row):
                        found[number] = row
    return [found[number] for number in sorted(found)]


def _is_sound(row: Row) -> bool:
    """The account has a checksum of its own; the texts must at least be texts."""
    try:
        decode(row.account)
    except (ValueError, TypeError):
        return False
    return all(isinstance(x, str) for x in (row.pod, row.uid, row.why, row.outcome))
