"""The tables, and how older files are brought up to them.

A file carries the version of its tables. `MIGRATIONS[n]` turns version n into n + 1; all that
are needed run in one transaction, so a file is never between two versions. A file of a newer
version, or of another program, is left alone.
"""

import sqlite3
from collections.abc import Callable

APPLICATION_ID = 0x4C454144  # "LEAD"


class ForeignFileError(Exception):
    """The file is sound, but not ours to write; str() says why."""


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


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_create,)


def check_ours(connection: sqlite3.Connection) -> int:
    """The version of the file's tables, 0 for a new file. Raises ForeignFileError when it is
    not ours to write, sqlite3.Error when it is no database."""
    version, application, tables = (
        int(connection.execute(sql).fetchone()[0])
        for sql in (
            "PRAGMA user_version",
            "PRAGMA application_id",
            "SELECT count(*) FROM sqlite_schema",
        )
    )
    if tables and application != APPLICATION_ID:
        raise ForeignFileError("it belongs to another program")
    if version > len(MIGRATIONS):
        raise ForeignFileError("a newer Leadline wrote it")
    return version


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring our file to the newest version. Raises as check_ours."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for version in range(check_ours(connection), len(MIGRATIONS)):
            MIGRATIONS[version](connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
