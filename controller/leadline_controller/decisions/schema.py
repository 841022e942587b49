"""The tables, their migrations, and checks whether a file is ours and undamaged.

A file carries the version of its tables. `MIGRATIONS[n]` migrates version n to n + 1; all needed
migrations run in one transaction, so a file is never between two versions. A file of a newer
version, or of another program, is not changed.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import quote

Migration = Callable[[sqlite3.Connection], None]
APPLICATION_ID = 0x4C454144  # "LEAD"
# A higher version is a flipped bit and no newer Leadline.
_LATEST_VERSION = 1000
_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_BUSY_S = 5.0

# Our statements are plain, so SQLITE_ERROR means damaged tables.
_DAMAGED = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_INTERNAL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_NOTADB,
)


class ForeignFileError(Exception):
    """The file is sound but not ours to write; str() says why."""


class CorruptFileError(sqlite3.DatabaseError):
    """The file is no sound database; str() says what was found."""


def is_corrupt(error: Exception) -> bool:
    """Whether this error says that the file itself is broken."""
    # The low byte is the kind; the rest says where it occurred.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, CorruptFileError) or kind in _DAMAGED


def _create(connection: sqlite3.Connection) -> None:
    for statement in (
        "CREATE TABLE boots (id INTEGER PRIMARY KEY, boot TEXT NOT NULL UNIQUE,"
        " started_unix_s REAL)",
        "CREATE TABLE rules (id INTEGER PRIMARY KEY, strategy TEXT NOT NULL,"
        " better TEXT NOT NULL, options TEXT NOT NULL, UNIQUE (strategy, better, options))",
        # The ids grow with time: a decision that is made again gets a new one.
        "CREATE TABLE decisions (id INTEGER PRIMARY KEY, pod TEXT NOT NULL, uid TEXT NOT NULL,"
        " node TEXT, why TEXT NOT NULL, outcome TEXT NOT NULL, times INTEGER NOT NULL,"
        " rule INTEGER NOT NULL REFERENCES rules, first_boot INTEGER NOT NULL REFERENCES boots,"
        " first_up_s REAL NOT NULL, boot INTEGER NOT NULL REFERENCES boots,"
        " up_s REAL NOT NULL, account BLOB NOT NULL)",
        "CREATE INDEX decisions_of_pod ON decisions (pod)",
    ):
        connection.execute(statement)


def _add_series(connection: sqlite3.Connection) -> None:
    """Blocks of measured series, see telemetry/series.py. Rows of one time are together, because
    they are written together and deleted together."""
    connection.execute(
        "CREATE TABLE series (id INTEGER PRIMARY KEY, step_s INTEGER NOT NULL,"
        " start_unix_s INTEGER NOT NULL, board TEXT NOT NULL, points BLOB NOT NULL,"
        " UNIQUE (step_s, start_unix_s, board))"
    )


MIGRATIONS: tuple[Migration, ...] = (_create, _add_series)


def connected(path: Path | str, *, uri: bool = False) -> sqlite3.Connection:
    """A connection that decodes any text. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, uri=uri)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def check_file(path: Path) -> None:
    """Check a file without changing anything in or beside it. Raises ForeignFileError if it is not
    ours to write, sqlite3.Error if it is no sound database, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # do not wait for a pipe
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ForeignFileError("it is no regular file")
        header = os.read(descriptor, _HEADER_BYTES)
    finally:
        os.close(descriptor)
    if not header:
        return
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise CorruptFileError("file is not a database")
    if int.from_bytes(header[68:72]) == APPLICATION_ID:
        # See https://www.sqlite.org/fileformat2.html#the_database_header. With some of these
        # fields wrong SQLite opens the file read-only.
        layout, encoding = int.from_bytes(header[44:48]), int.from_bytes(header[56:60])
        if header[18] not in (1, 2) or header[19] not in (1, 2) or layout > 4 or encoding > 1:
            raise CorruptFileError("its header is damaged")
        return
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    with closing(connected(uri, uri=True)) as connection:
        check_ours(connection)


def check_ours(connection: sqlite3.Connection) -> int:
    """The version of the file's tables, 0 for a new file. Raises ForeignFileError if it is not ours
    to write, sqlite3.Error if it is no sound database."""
    version, application = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("user_version", "application_id")
    )
    tables = _tables(connection)
    if application != APPLICATION_ID and (tables or application or version):
        if not _our_tables(MIGRATIONS[:1]) <= tables:
            raise ForeignFileError("it belongs to another program")
        raise CorruptFileError("the mark of the program that wrote it is damaged")
    if len(MIGRATIONS) < version <= _LATEST_VERSION:
        raise ForeignFileError("a newer Leadline wrote it")
    if not 0 <= version <= _LATEST_VERSION or bool(version) != bool(tables):
        raise CorruptFileError(f"it has no tables of version {version}")
    return int(version)


def check_tables(connection: sqlite3.Connection) -> None:
    """Raises CorruptFileError if the tables are not ours, or have triggers, which would run with
    each write."""
    found = _tables(connection)
    if not _our_tables(MIGRATIONS) <= found or any(kind == "trigger" for kind, *_ in found):
        raise CorruptFileError("its tables are not those that Leadline makes")


def upgrade(connection: sqlite3.Connection) -> None:
    """Migrate the file to the newest version. Raises as check_ours."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for version in range(check_ours(connection), len(MIGRATIONS)):
            MIGRATIONS[version](connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _tables(connection: sqlite3.Connection) -> set[tuple[object, ...]]:
    """The file's definitions: kind, name, table and statement of each."""
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


def _our_tables(migrations: Sequence[Migration]) -> set[tuple[object, ...]]:
    """The definitions in a sound file after these migrations."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        for migrate in migrations:
            migrate(fresh)
        return _tables(fresh)
