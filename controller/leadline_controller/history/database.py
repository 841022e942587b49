"""One SQLite file of decisions, bounded in size and age. Used by one thread.

Write-ahead logging with synchronous NORMAL: a power cut leaves a sound file that lacks at most
what was written since the last checkpoint.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leadline_controller.history.rows import Row, Rule, Settled
from leadline_controller.history.schema import check_ours, upgrade
from leadline_controller.history.times import Moment, Now

MEMORY = ":memory:"
_BUSY_S = 5.0
_MIB = 1024 * 1024
_JOURNAL_BYTES = 4 * _MIB
# Room is made a little ahead, for a batch is written before it is known how large it is.
_FULL, _PRUNED_TO = 0.95, 0.9
_SELECT = (
    "SELECT pod, uid, node, why, outcome, times, strategy, better, options, f.boot, first_up_s,"
    " f.started_unix_s, b.boot, up_s, b.started_unix_s, {account}, decisions.id FROM decisions"
    " JOIN rules ON rules.id = rule JOIN boots AS f ON f.id = first_boot"
    " JOIN boots AS b ON b.id = decisions.boot {rest}"
)


class CorruptFileError(sqlite3.DatabaseError):
    """The file holds no sound database; str() says what was found."""


class Database:
    """The file at `path`, made if need be, or MEMORY. Methods raise sqlite3.Error; opening
    raises schema.ForeignFileError and OSError as well."""

    def __init__(self, path: Path | str, max_bytes: int, max_age_s: float) -> None:
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._ids: dict[tuple[object, ...], int] = {}
        unclean = isinstance(path, Path) and _prepare(path)
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        try:
            self._open(unclean=unclean)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, *, unclean: bool) -> None:
        check_ours(self._connection)
        for pragma in (
            "auto_vacuum = INCREMENTAL",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"journal_size_limit = {_JOURNAL_BYTES}",
        ):
            self._connection.execute(f"PRAGMA {pragma}")
        if unclean:
            (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise CorruptFileError(" ".join(verdict.split()))
        upgrade(self._connection)

    def close(self) -> None:
        """Write everything into the file itself, and let go of it."""
        self._connection.close()

    def checkpoint(self) -> None:
        """See to it that what was written so far survives a power cut."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    # Writing.

    def write(self, changes: Iterable[Row | Settled], now: Now) -> None:
        """All of these or none. What repeats the pod's last decision is counted there."""
        with self._transaction():
            self._boot(now.boot, now.started_unix_s)
            for change in changes:
                if isinstance(change, Row):
                    self._decided(change)
                else:
                    self._settled(change)
            self._prune(now)
        self._shrink()

    def copy(self, rows: Iterable[Row]) -> None:
        """Take rows over from another database, oldest first, as the newest of this one."""
        with self._transaction():
            for row in rows:
                self._insert(row)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self._ids.clear()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _decided(self, row: Row) -> None:
        last = "WHERE pod = ? ORDER BY decisions.id DESC LIMIT 1"
        for before, number in list(self._rows(last, (row.pod,), account=False)):
            if row.repeats(before):
                self._connection.execute("DELETE FROM decisions WHERE id = ?", (number,))
                row = row._replace(times=before.times + row.times, first=before.first)
        self._insert(row)

    def _insert(self, row: Row) -> None:
        first = self._boot(row.first.boot, row.first.started_unix_s)
        last = self._boot(row.last.boot, row.last.started_unix_s)
        self._connection.execute(
            "INSERT INTO decisions SELECT coalesce(max(id), 0) + 1,"
            " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM decisions",
            (
                *(row.pod, row.uid, row.node, row.why, row.outcome, row.times),
                *(self._rule(row.rule), first, row.first.up_s, last, row.last.up_s, row.account),
            ),
        )

    def _settled(self, change: Settled) -> None:
        self._connection.execute(
            "UPDATE decisions SET outcome = ? WHERE uid = ? AND id ="
            " (SELECT max(id) FROM decisions WHERE pod = ?) AND outcome = coalesce(?, outcome)",
            (change.outcome, change.uid, change.pod, change.over),
        )

    def _rule(self, rule: Rule) -> int:
        return self._id(
            "INSERT INTO rules (strategy, better, options) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET better = better RETURNING id",
            rule,
        )

    def _boot(self, boot: str, started_unix_s: float | None) -> int:
        """The machine's run of this name; the last word on when it began is the best."""
        return self._id(
            "INSERT INTO boots (boot, started_unix_s) VALUES (?, ?) ON CONFLICT (boot) DO UPDATE"
            " SET started_unix_s = coalesce(excluded.started_unix_s, started_unix_s) RETURNING id",
            (boot, None if started_unix_s is None else round(started_unix_s)),
        )

    def _id(self, sql: str, values: tuple[object, ...]) -> int:
        if values not in self._ids:
            self._ids[values] = self._number(sql, values)
        return self._ids[values]

    # Bounds.

    def _prune(self, now: Now) -> None:
        self._prune_age(now)
        used = self._used_bytes()
        while used > _FULL * self._max_bytes and (
            count := self._number("SELECT count(*) FROM decisions")
        ):
            extra = 1 + int(count * (1 - _PRUNED_TO * self._max_bytes / used))
            self._connection.execute(
                "DELETE FROM decisions WHERE id IN (SELECT id FROM decisions ORDER BY id LIMIT ?)",
                (extra,),
            )
            used = self._used_bytes()

    def _prune_age(self, now: Now) -> None:
        """Drop from the oldest on, up to the first that is young enough."""
        old = 0
        for row, number in self._rows("ORDER BY decisions.id", account=False):
            if row.last.age_s(now) <= self._max_age_s:
                break
            old = number
        if old:
            self._connection.execute("DELETE FROM decisions WHERE id <= ?", (old,))

    def _used_bytes(self) -> int:
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._number("PRAGMA page_size")

    def _shrink(self) -> None:
        """Give pages back where the file is larger than it may be: the bound was lowered."""
        most = self._max_bytes // self._number("PRAGMA page_size")
        extra = self._number("PRAGMA page_count") - most
        if extra > 0:
            # It gives a page back at each step, and only a script takes all of them.
            self._connection.executescript(f"PRAGMA incremental_vacuum({extra})")

    # Reading.

    def about(self, pod: str, limit: int) -> list[Row]:
        """The last decisions about a pod, the newest first."""
        rest = "WHERE pod = ? ORDER BY decisions.id DESC LIMIT ?"
        return [row for row, _ in self._rows(rest, (pod, limit))]

    def newest_first(self) -> Iterator[Row]:
        """All decisions, without their accounts."""
        return (row for row, _ in self._rows("ORDER BY decisions.id DESC", account=False))

    def last_with_outcome(self, outcome: str, limit: int) -> list[Row]:
        """The pods' last decisions, as far as this came of them: without their accounts, the
        newest first."""
        rest = (
            "WHERE outcome = ? AND decisions.id = (SELECT max(id) FROM decisions AS other"
            " WHERE other.pod = decisions.pod) ORDER BY decisions.id DESC LIMIT ?"
        )
        return [row for row, _ in self._rows(rest, (outcome, limit), account=False)]

    def all(self) -> Iterator[Row]:
        """All decisions, oldest first."""
        return (row for row, _ in self._rows("ORDER BY decisions.id"))

    def _rows(
        self, rest: str, values: Sequence[object] = (), *, account: bool = True
    ) -> Iterator[tuple[Row, int]]:
        return rows(self._connection, rest, values, account=account)

    def _number(self, sql: str, values: Sequence[object] = ()) -> int:
        (number,) = self._connection.execute(sql, values).fetchone()
        return int(number)


def rows(
    connection: sqlite3.Connection,
    rest: str,
    values: Sequence[object] = (),
    *,
    account: bool = True,
) -> Iterator[tuple[Row, int]]:
    """Decisions with their ids. rest: of the query, from WHERE on. account: read it as well."""
    sql = _SELECT.format(account="account" if account else "x''", rest=rest)
    for found in connection.execute(sql, values):
        yield _row(found), found[-1]


def _row(found: Sequence[Any]) -> Row:
    pod, uid, node, why, outcome, times = found[:6]
    rule, first, last = Rule(*found[6:9]), Moment(*found[9:12]), Moment(*found[12:15])
    return Row(pod, uid, node, why, outcome, times, rule, first, last, found[15])


def _prepare(path: Path) -> bool:
    """Make the file, for our eyes only; whether it was left in the middle of something."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    path.chmod(0o600)
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False
