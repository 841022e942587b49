"""One SQLite file of decisions and measured series, bounded in size and age. For use by one thread.

With write-ahead logging and synchronous NORMAL a power cut leaves a sound file that lacks at most
what was written since the last checkpoint. Disks can damage files, so the structure is checked
when the file is opened, each row when it is read, and every operation of SQLite has a time limit.
"""

import json
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from leadline_controller.decisions.record import Change, DecisionRecord
from leadline_controller.decisions.schema import (
    CorruptFileError,
    check_file,
    check_ours,
    check_tables,
    connected,
    upgrade,
)
from leadline_controller.decisions.series import SeriesRow, SeriesTable
from leadline_controller.decisions.times import Moment
from leadline_controller.framework.options import OptionValue, value_of_text
from leadline_controller.parsing.fields import replace_surrogates
from leadline_controller.telemetry.series import Block, Resolution

MEMORY = ":memory:"
_MIB = 1024 * 1024
_JOURNAL_BYTES = 4 * _MIB
_CACHE_KIB = 2048
# A sound file of 64 MiB is checked in a quarter of a second, and in a few on a small board.
_CHECK_S = 5.0
_LIMIT_S = 30.0
# Share of CPU time in a call's time; below it, the call waited for the disk.
_COMPUTING = 0.1
LARGEST_ID = 2**62
_AT_ONCE = 1024  # decisions; reading one takes a hundredth of a millisecond
# Old rows are deleted a little early, because the size of a batch is known only once it is written.
_FULL, _PRUNED_TO = 0.95, 0.9
# A column beyond these bounds was not written by Leadline, and would break its readers.
_MAX_TEXT_READ = 2**16
_MAX_TIMES = 2**32 - 1
_MAX_UP_S = 1e10
_MAX_UNIX_S = 2e11
_RESULT = attrgetter("uid", "node", "why", "strategy", "better", "options")
_SELECT = (
    "SELECT pod, uid, node, why, outcome, times, strategy, better, options, f.boot, first_up_s,"
    " f.started_unix_s, b.boot, up_s, b.started_unix_s, {explanation}, decisions.id FROM decisions"
    " LEFT JOIN rules ON rules.id = rule LEFT JOIN boots AS f ON f.id = first_boot"
    " LEFT JOIN boots AS b ON b.id = decisions.boot {rest}"
)
_BOOT = (
    "INSERT INTO boots (boot, started_unix_s) VALUES (?, ?)"
    " ON CONFLICT (boot) DO UPDATE SET started_unix_s = {started} RETURNING id"
)


class Database:
    """The file at `path`, created if missing, or MEMORY. Methods raise sqlite3.Error; opening
    raises schema.ForeignFileError and OSError as well. unreadable: rows skipped because they are
    damaged."""

    def __init__(self, path: Path | str, max_bytes: int, max_age_s: float) -> None:
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._ids: dict[tuple[object, ...], int] = {}
        self._booted: tuple[object, ...] | None = None  # as the file has the present boot
        self.unreadable = 0
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                check_file(path)
            except FileNotFoundError:
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # for its owner only
        self._connection = connected(path)
        self._series = SeriesTable(self._connection, max_bytes)
        try:
            with self.bounded():
                self._open(path)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, path: Path | str) -> None:
        check_ours(self._connection)
        if isinstance(path, Path):
            path.chmod(0o600)
        for pragma in (
            "auto_vacuum = INCREMENTAL",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"journal_size_limit = {_JOURNAL_BYTES}",
            f"cache_size = -{_CACHE_KIB}",  # the file's own setting may be damaged
        ):
            self._connection.execute(f"PRAGMA {pragma}")
        self._check()
        upgrade(self._connection)
        check_tables(self._connection)
        if self._number("SELECT coalesce(max(id), 0) FROM decisions") > LARGEST_ID:
            raise CorruptFileError("it has no numbers left for new decisions")

    def _check(self) -> None:
        """Run SQLite's integrity check for at most a few seconds. Raises CorruptFileError."""
        try:
            with _interrupted_after(self._connection, _CHECK_S):
                found = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return
        finally:
            # Empty the cache, which would hide later damage of the file.
            self._connection.execute("PRAGMA shrink_memory")
        if found != ("ok",):
            raise CorruptFileError(" ".join(str(found[0]).split())[:200])

    def bounded(self) -> AbstractContextManager[None]:
        """Limit the time of reading or writing: too long raises sqlite3.Error, and CorruptFileError
        if it was not the disk that took so long."""
        return bounded(self._connection, _LIMIT_S)

    def close(self) -> None:
        """Write everything into the file itself, and close it."""
        self._connection.close()

    def checkpoint(self) -> None:
        """Make what was written so far survive a power cut."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    # Writing.

    def write(self, changes: Iterable[Change], now: Moment) -> None:
        """Write all of the changes or none. A record that repeats the last decision about its pod
        replaces it and adds to its count."""
        with self._transaction():
            self._set_boot(now)
            for change in changes:
                if isinstance(change, DecisionRecord):
                    self._add(change)
                else:
                    self._connection.execute(
                        "UPDATE decisions SET outcome = ? WHERE uid = ? AND id ="
                        " (SELECT max(id) FROM decisions WHERE pod = ?)",
                        (change.outcome, change.uid, change.pod),
                    )
            self._prune(now)
        self._shrink()

    def write_series(self, blocks: Iterable[tuple[str, Block]], now: Moment) -> None:
        """Write all of the blocks, each of a board, or none."""
        with self._transaction():
            self._series.write(blocks, now.unix_s(now))
        self._count_unreadable()
        self._shrink()

    def copy(self, records: Iterable[DecisionRecord], rows: Iterable[SeriesRow]) -> None:
        """Append the records of another database, oldest first, and add its rows of series."""
        with self._transaction():
            for record in records:
                self._insert(record)
            self._series.copy(rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
        except BaseException:
            self._ids.clear()
            self._booted = None
            self._series.forget()
            raise

    def _add(self, record: DecisionRecord) -> None:
        last = "WHERE pod = ? ORDER BY decisions.id DESC LIMIT 1"
        for before, number in list(self._select(last, (record.pod,), explanation=False)):
            # The same once more, which was not carried out.
            if _RESULT(before) == _RESULT(record) and before.outcome != "bound":
                self._connection.execute("DELETE FROM decisions WHERE id = ?", (number,))
                times = min(before.times + record.times, _MAX_TIMES)
                record = record._replace(times=times, first=before.first)
        self._insert(record)

    def _insert(self, record: DecisionRecord) -> None:
        rule_id = self._id(
            "INSERT INTO rules (strategy, better, options) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET better = better RETURNING id",
            (record.strategy, record.better, _options_json(tuple(sorted(record.options.items())))),
        )
        self._connection.execute(
            "INSERT INTO decisions SELECT coalesce(max(id), 0) + 1,"
            " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM decisions",
            (
                *(record.pod, record.uid, record.node, record.why, record.outcome, record.times),
                rule_id,
                self._boot_id(record.first),
                record.first.up_s,
                self._boot_id(record.last),
                record.last.up_s,
                record.explanation,
            ),
        )

    def _set_boot(self, now: Moment) -> None:
        """What the clocks say now of the machine's start replaces what they said earlier, also if
        it is what they said before that: a clock that jumped is set back."""
        booted = now.boot, _rounded(now.started_unix_s)
        if booted != self._booted:
            kept = "coalesce(excluded.started_unix_s, started_unix_s)"
            self._number(_BOOT.format(started=kept), booted)
            self._booted = booted

    def _boot_id(self, moment: Moment) -> int:
        """The id of this run of the machine. Of its start, the record knows no more than the
        file."""
        kept = "coalesce(started_unix_s, excluded.started_unix_s)"
        values = moment.boot, _rounded(moment.started_unix_s)
        return self._id(_BOOT.format(started=kept), values)

    def _id(self, sql: str, values: tuple[object, ...]) -> int:
        if values not in self._ids:
            self._ids[values] = self._number(sql, values)
        return self._ids[values]

    # Bounds.

    def _prune(self, now: Moment) -> None:
        """Delete decisions that are too old, and the oldest ones beyond the largest size."""
        # From the oldest row up to the first that is young enough.
        old = 0
        for record, number in self._select("ORDER BY decisions.id", explanation=False):
            if record.last.age_s(now) <= self._max_age_s:
                break
            old = number
        if old:
            self._connection.execute("DELETE FROM decisions WHERE id <= ?", (old,))
        used = self._used_bytes()
        if used > _FULL * self._max_bytes:  # the limit may have been lowered
            self._series.shrink()
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

    def _used_bytes(self) -> int:
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._number("PRAGMA page_size")

    def _shrink(self) -> None:
        """Shrink a file that is too large because its limit was lowered."""
        most = self._max_bytes // self._number("PRAGMA page_size")
        extra = self._number("PRAGMA page_count") - most
        if extra > 0:
            # It frees a page per step, and only executescript runs all steps.
            self._connection.executescript(f"PRAGMA incremental_vacuum({extra})")

    # Reading.

    def about(self, pod: str, limit: int) -> list[DecisionRecord]:
        """The last decisions about a pod, the newest first."""
        rest = "WHERE pod = ? ORDER BY decisions.id DESC LIMIT ?"
        return [record for record, _ in self._select(rest, (pod, limit))]

    def newest_first(self, before: int) -> tuple[list[DecisionRecord], int]:
        """Some of the decisions with lower ids, without their explanations, and the lowest of their
        ids, 0 if there are no more."""
        rest = "WHERE decisions.id < ? ORDER BY decisions.id DESC LIMIT ?"
        found = list(self._rows(rest, (before, _AT_ONCE), explanation=False))
        return [record for record, _ in found if record is not None], found[-1][1] if found else 0

    def all(self) -> Iterator[DecisionRecord]:
        """All decisions, oldest first."""
        return (record for record, _ in self._select("ORDER BY decisions.id"))

    def series(self, board: str, from_s: int, to_s: int) -> list[Block]:
        """The board's blocks that overlap these Unix seconds."""
        found = self._series.blocks(board, from_s, to_s)
        self._count_unreadable()
        return found

    def series_at(
        self, resolution: Resolution, unix_s: int, after: str
    ) -> tuple[list[tuple[str, Block]], str | None]:
        """The blocks that have this Unix second in them, each with its board, of some boards whose
        names come after this one; and the last one's name, None if there are no more."""
        found = self._series.blocks_at(resolution, unix_s, after)
        self._count_unreadable()
        return found

    def first_series_s(self) -> int | None:
        """When the oldest block of a series begins."""
        return self._series.first_s()

    def all_series(self) -> Iterator[SeriesRow]:
        """All rows of series, as they are stored."""
        return self._series.rows()

    def _count_unreadable(self) -> None:
        self.unreadable += self._series.unreadable
        self._series.unreadable = 0

    def _select(
        self, rest: str, values: Sequence[object] = (), *, explanation: bool = True
    ) -> Iterator[tuple[DecisionRecord, int]]:
        rows = self._rows(rest, values, explanation=explanation)
        return ((record, number) for record, number in rows if record is not None)

    def _rows(
        self, rest: str, values: Sequence[object] = (), *, explanation: bool = True
    ) -> Iterator[tuple[DecisionRecord | None, int]]:
        for record, number in select(self._connection, rest, values, explanation=explanation):
            self.unreadable += record is None
            yield record, number

    def _number(self, sql: str, values: Sequence[object] = ()) -> int:
        found = self._connection.execute(sql, values).fetchone()
        if found is None or not isinstance(found[0], int):
            raise CorruptFileError(f"expected a number, got {found!r:.80}")
        return found[0]


def select(
    connection: sqlite3.Connection,
    rest: str,
    values: Sequence[object] = (),
    *,
    explanation: bool = True,
) -> Iterator[tuple[DecisionRecord | None, int]]:
    """Decisions with their ids, None for an unreadable one. rest: the query from WHERE on.
    explanation: whether to read it as well."""
    sql = _SELECT.format(explanation="account" if explanation else "x''", rest=rest)
    for columns in connection.execute(sql, values):
        yield _record_of(columns), columns[-1]


def _record_of(columns: Sequence[Any]) -> DecisionRecord | None:
    """The decision in a row of _SELECT; None where a column holds what Leadline never writes."""
    pod, uid, node, why, outcome, times, strategy, better, options = columns[:9]
    first, last, explanation = Moment(*columns[9:12]), Moment(*columns[12:15]), columns[15]
    texts = (pod, uid, why, outcome, strategy, better, options, first.boot, last.boot)
    sound = (
        all(isinstance(text, str) and len(text) <= _MAX_TEXT_READ for text in texts)
        and (node is None or (isinstance(node, str) and len(node) <= _MAX_TEXT_READ))
        and isinstance(times, int)
        and 0 < times <= _MAX_TIMES
        and _is_between(first.up_s, _MAX_UP_S)
        and _is_between(last.up_s, _MAX_UP_S)
        and (first.started_unix_s is None or _is_between(first.started_unix_s, _MAX_UNIX_S))
        and (last.started_unix_s is None or _is_between(last.started_unix_s, _MAX_UNIX_S))
        and isinstance(explanation, bytes)
    )
    if not sound:
        return None
    return DecisionRecord(
        *(pod, uid, node, why, strategy, "lower" if better == "lower" else "higher"),
        *(_options_of(options), outcome, first, last, times),
        explanation=explanation,
    )


def _rounded(unix_s: float | None) -> int | None:
    return None if unix_s is None else round(unix_s)


def _is_between(value: object, highest: float) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= highest


@lru_cache(maxsize=16)
def _options_json(options: tuple[tuple[str, OptionValue], ...]) -> str:
    return json.dumps(dict(options))


@lru_cache(maxsize=16)
def _options_of(text: str) -> Mapping[str, OptionValue]:
    try:
        return MappingProxyType(
            {
                replace_surrogates(name): value_of_text(replace_surrogates(str(value)))
                for name, value in json.loads(text).items()
            }
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        return MappingProxyType({})


@contextmanager
def bounded(connection: sqlite3.Connection, limit_s: float) -> Iterator[None]:
    """Interrupt the connection after `limit_s`, as a damaged tree of pages can be endless. Raises
    CorruptFileError if SQLite was computing meanwhile and not waiting for a disk, and if its error
    quotes invalid text of the file."""
    began_s = time.thread_time()
    try:
        with _interrupted_after(connection, limit_s):
            yield
    except UnicodeDecodeError:
        raise CorruptFileError("its tables can't be read") from None
    except sqlite3.OperationalError as error:
        was_interrupted = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
        if was_interrupted and time.thread_time() - began_s > _COMPUTING * limit_s:
            raise CorruptFileError("reading it does not come to an end") from None
        raise


@contextmanager
def _interrupted_after(connection: sqlite3.Connection, limit_s: float) -> Iterator[None]:
    def interrupt() -> None:
        with suppress(sqlite3.Error):  # it may be closed by now
            connection.interrupt()

    timer = threading.Timer(limit_s, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
