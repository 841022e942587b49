"""The tables of the file, and checks whether a file is ours and undamaged.

A file carries the version of its tables. One of an older version is converted in one transaction,
so a file is never between two versions. A file of a newer version, or of another program, is not
changed.
"""

import os
import sqlite3
import stat
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import quote

from leadline_controller.history import older

APPLICATION_ID = 0x4C454144  # "LEAD"
VERSION = 5
# A higher version is a flipped bit and no newer Leadline.
_LATEST_VERSION = 1000
_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_BUSY_S = 5.0
# A sound file of 64 MiB is checked in a quarter of a second, and in a few on a small board.
_CHECK_S = 5.0
LARGEST_ID = 2**62

# started_unix_s: when that run of the machine began, by its wall clock. The ids of decisions grow
# with time: one that is made again gets a new one. record: JSON of store.Stored. explanation: see
# explanation.encode. points: see telemetry/series.py. Of shadows, record: JSON of a ShadowDecision;
# outcome: JSON of its Later, empty if there is none, NULL until it is measured. The one row of
# traffic is the newest document of its graph.
_BOOTS = (
    "CREATE TABLE boots (id INTEGER PRIMARY KEY, boot TEXT NOT NULL UNIQUE, started_unix_s REAL)"
)
_DECISIONS = (
    "CREATE TABLE decisions (id INTEGER PRIMARY KEY, pod TEXT NOT NULL,"
    " first_boot INTEGER NOT NULL, first_up_s REAL NOT NULL,"
    " boot INTEGER NOT NULL, up_s REAL NOT NULL, record TEXT NOT NULL, explanation BLOB NOT NULL)",
    "CREATE INDEX decisions_of_pod ON decisions (pod)",
)
_SERIES = (
    "CREATE TABLE series (id INTEGER PRIMARY KEY, step_s INTEGER NOT NULL,"
    " start_unix_s INTEGER NOT NULL, board TEXT NOT NULL, points BLOB NOT NULL,"
    " UNIQUE (step_s, start_unix_s, board))"
)

_SHADOWS = (
    "CREATE TABLE shadows (id INTEGER PRIMARY KEY, boot INTEGER NOT NULL, up_s REAL NOT NULL,"
    " record TEXT NOT NULL, outcome TEXT)",
    "CREATE INDEX shadows_due ON shadows (id) WHERE outcome IS NULL",
)
_TRAFFIC = "CREATE TABLE traffic (id INTEGER PRIMARY KEY CHECK (id = 1), document BLOB NOT NULL)"

# Our statements are plain, so SQLITE_ERROR means damaged tables. Only an endless tree of pages
# takes so much of the processor that an operation is interrupted.
_DAMAGED = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_INTERNAL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_INTERRUPT,
)


class ForeignFileError(Exception):
    """The file is sound but not ours to write; str() says why."""


class CorruptFileError(sqlite3.DatabaseError):
    """The file is no sound database; str() says what was found."""


def is_corrupt(error: Exception) -> bool:
    """Whether this error says that the file itself is broken."""
    # The low byte is the kind; the rest says where it occurred.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, CorruptFileError | UnicodeDecodeError) or kind in _DAMAGED


def opened(path: Path | None) -> sqlite3.Connection:
    """A connection to the file, which is created if it is missing; None: to a database in memory.
    Raises ForeignFileError, sqlite3.Error, OSError."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            _check_file(path)
        except FileNotFoundError:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # for its owner only
    connection = _connected(path or ":memory:")
    try:
        _check_ours(connection)
        if path is not None:
            path.chmod(0o600)
        for pragma in (
            "auto_vacuum = INCREMENTAL",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"journal_size_limit = {4 * 2**20}",
            "cache_size = -2048",  # KiB; the file's own setting may be damaged
        ):
            connection.execute(f"PRAGMA {pragma}")
        _check_structure(connection)
        _upgrade(connection)
        # Triggers would run with each write.
        found = _tables(connection)
        if not _our_tables() <= found or any(kind == "trigger" for kind, *_ in found):
            raise CorruptFileError("its tables are not those that Leadline makes")
        (largest,) = connection.execute("SELECT max(id) FROM decisions").fetchone()
        if largest is not None and largest > LARGEST_ID:
            raise CorruptFileError("it has no numbers left for new decisions")
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(path: Path | str, *, uri: bool = False) -> sqlite3.Connection:
    """A connection that decodes any text. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, uri=uri)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def _check_file(path: Path) -> None:
    """Check a file without changing anything in or beside it. Raises as `opened`."""
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
    with closing(_connected(uri, uri=True)) as connection:
        _check_ours(connection)


def _check_ours(connection: sqlite3.Connection) -> int:
    """The version of the file's tables, 0 for a new file. Raises as `opened`."""
    version, application = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("user_version", "application_id")
    )
    tables = _tables(connection)
    if application != APPLICATION_ID and (tables or application or version):
        if not any(name == "decisions_of_pod" for _, name, *_ in tables):
            raise ForeignFileError("it belongs to another program")
        raise CorruptFileError("the mark of the program that wrote it is damaged")
    if VERSION < version <= _LATEST_VERSION:
        raise ForeignFileError("a newer Leadline wrote it")
    if not 0 <= version <= _LATEST_VERSION or bool(version) != bool(tables):
        raise CorruptFileError(f"it has no tables of version {version}")
    return int(version)


def _check_structure(connection: sqlite3.Connection) -> None:
    """Run SQLite's integrity check for at most a few seconds. Raises CorruptFileError."""
    timer = threading.Timer(_CHECK_S, connection.interrupt)
    timer.start()
    try:
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return
    finally:
        timer.cancel()
        # Empty the cache, which would hide later damage of the file.
        connection.execute("PRAGMA shrink_memory")
    if found != "ok":
        raise CorruptFileError(" ".join(str(found).split())[:200])


def _upgrade(connection: sqlite3.Connection) -> None:
    """Create the tables, or convert those of an older version. Raises as `opened`."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        version = _check_ours(connection)
        if version == VERSION:
            return
        if not version:
            connection.execute(_BOOTS)
        if version < older.WITH_SERIES:
            connection.execute(_SERIES)
        if version < older.WITH_RECORDS:
            rows = older.begin(connection) if version else iter(())
            for statement in _DECISIONS:
                connection.execute(statement)
            for row in rows:
                connection.execute("INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            if version:
                older.end(connection)
        if version < older.WITH_SHADOWS:
            for statement in _SHADOWS:
                connection.execute(statement)
        connection.execute(_TRAFFIC)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _tables(connection: sqlite3.Connection) -> set[tuple[object, ...]]:
    """The file's definitions: kind, name, table and statement of each."""
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


def _our_tables() -> set[tuple[object, ...]]:
    with closing(sqlite3.connect(":memory:")) as fresh:
        for statement in (_BOOTS, *_DECISIONS, _SERIES, *_SHADOWS, _TRAFFIC):
            fresh.execute(statement)
        return _tables(fresh)
