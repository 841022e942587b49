"""Decisions and measured series in one SQLite file, bounded in size and age.

With write-ahead logging and synchronous NORMAL a power cut leaves a sound file that lacks at most
what was written since the last checkpoint. Disks can damage files, so the structure is checked
when the file is opened and each row when it is read. A broken file is put aside, and a new one
begins. While the disk can't be written, decisions wait in memory.
"""

import logging
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from leadline_controller.history import schema, series, shadowed
from leadline_controller.history.record import Change, DecisionRecord, OutcomeChange, Stored
from leadline_controller.history.shadowed import ShadowDecision
from leadline_controller.history.times import Moment
from leadline_controller.parsing.settings import absolute_path, setting
from leadline_controller.telemetry.series import COARSE, FINE, Block

log = logging.getLogger(__name__)

Result = TypeVar("Result")
# A query that comes to an end after several turns, between which others have theirs.
Slices = Generator[None, None, Result]
# A decision as a listing shows it; None for one that it leaves out.
Select = Callable[[DecisionRecord], DecisionRecord | None]
_Rows = list[tuple[int, DecisionRecord | None]]
_MIB = 1024 * 1024
_DAY_S = 86_400.0
_IN_MEMORY_MB = 8
_RETRY_S = 60.0
_MOST_WAITING = 4096
# Of the processor, for one operation: more is an endless tree of pages.
_LIMIT_S = 30.0
_STEPS = 100_000  # of SQLite's machine between two looks at the time
# Nothing is written meanwhile.
_LISTING_S = 5.0
_AT_ONCE = 1024  # decisions; reading one takes a hundredth of a millisecond
# Old rows are deleted a little early, because the size of a batch is known only once it is written.
_FULL, _PRUNED_TO = 0.95, 0.9
# Of the file when it is full; the rest is what pages and indexes leave empty. Of the table that
# exceeds its share the most, a tenth is deleted at once.
_SHADOWS = -1  # beside the steps of series, and 0 for decisions
_SHARES = {0: 0.45, FINE.step_s: 0.2, COARSE.step_s: 0.15, _SHADOWS: 0.1}
_MOST_OF_TRAFFIC = 0.1
_SIZES = (
    "SELECT 0, count(*), sum(length(record) + length(explanation) + 2 * length(pod) + 40)"
    " FROM decisions UNION ALL"
    " SELECT -1, count(*), sum(length(record) + ifnull(length(outcome), 0) + 30) FROM shadows"
    " UNION ALL SELECT step_s, count(*),"
    " sum(length(points) + 2 * length(board) + 40) FROM series GROUP BY step_s"
)
_DELETE_DECISIONS = (
    "DELETE FROM decisions WHERE id IN (SELECT id FROM decisions ORDER BY id LIMIT :count)"
)
_DELETE_SHADOWS = (
    "DELETE FROM shadows WHERE id IN (SELECT id FROM shadows ORDER BY id LIMIT :count)"
)
_DELETE_SERIES = (
    "DELETE FROM series WHERE id IN (SELECT id FROM series WHERE step_s = :step_s"
    " ORDER BY start_unix_s LIMIT :count)"
)
_DELETE = {0: _DELETE_DECISIONS, _SHADOWS: _DELETE_SHADOWS}
_DISK_ERRORS = (sqlite3.Error, OSError, schema.ForeignFileError, UnicodeDecodeError)
# Caused by a record and not by the disk.
_RECORD_ERRORS = (ValueError, TypeError, OverflowError)
_SELECT = (
    "SELECT decisions.id, pod, f.boot, first_up_s, f.started_unix_s, b.boot, up_s,"
    " b.started_unix_s, record, {explanation} FROM decisions"
    " LEFT JOIN boots AS f ON f.id = first_boot LEFT JOIN boots AS b ON b.id = decisions.boot"
    " {rest}"
)
_STORED = msgspec.json.Decoder(Stored)


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """How decisions and history are kept."""

    # None keeps them in memory only.
    path: Path | None = setting(
        None,
        "where decisions and [history](network.md#history) are kept; `$STATE_DIRECTORY` overrides "
        "the folder. See [the file](#the-file-of-decisions)",
        read=absolute_path,
        shown="`/var/lib/leadline-controller/decisions.db`",
    )
    max_mb: int = setting(
        64,
        "the file's size, MiB; the oldest decisions and the oldest history are deleted. 0: in "
        "memory only",
        most=1 << 20,
    )
    max_age_days: float = setting(90.0, "older decisions are deleted", most=36_500)


class Store:
    """All stored decisions. For use by one thread; no method raises an error of the disk. failed:
    is told of a change that can't be written. problem: why the disk can't be written now, empty if
    it can."""

    def __init__(
        self,
        settings: HistorySettings,
        now: Callable[[], Moment],
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._now = now
        self._failed = failed
        self._path = settings.path if settings.max_mb else None
        self._max_bytes = (settings.max_mb if self._path else _IN_MEMORY_MB) * _MIB
        self._max_age_s = settings.max_age_days * _DAY_S
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[Change] = []
        self._retry_s = self._replaced_s = float("-inf")
        self._logged_problem = False
        self.problem = ""
        self._asked(lambda _: None, None)

    def usage(self) -> tuple[int, int | None]:
        """Bytes of the file and its journal, and bytes that are free beside it; None if unknown."""
        if self._path is None:
            return 0, None
        size = 0
        for ending in ("", "-wal"):
            with suppress(OSError):
                size += self._path.with_name(self._path.name + ending).stat().st_size
        try:
            return size, shutil.disk_usage(self._path.parent).free
        except OSError:
            return size, None

    def close(self) -> None:
        """Write what waits if the disk works, and close the file."""
        self._retry_s = float("-inf")
        self.write(())
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()

    def write(self, changes: Iterable[Change]) -> int:
        """Store these, and what waits. A record that repeats the last decision about its pod
        replaces it and adds to its count. Returns how many had to be dropped, because the disk
        cannot be written and too many wait."""
        self._waiting = _merged((*self._waiting, *changes))
        if self._waiting:
            self._written(self._flush)
        dropped = len(self._waiting) - _MOST_WAITING
        if dropped > 0:
            del self._waiting[:dropped]
        return max(0, dropped)

    def write_series(self, blocks: Sequence[tuple[str, Block]]) -> bool:
        """Store these blocks, each of a board. False if they are not, as the disk can't be
        written."""

        def put(connection: sqlite3.Connection) -> None:
            now = self._now()
            with self._transaction(connection):
                series.write(connection, blocks, now.unix_s(now))

        return self._written(put)

    def write_shadows(self, decisions: Sequence[ShadowDecision]) -> bool:
        """Store what other strategies would have decided. False if the disk can't be written."""

        def put(connection: sqlite3.Connection) -> None:
            with self._transaction(connection):
                for moment in {each.at.boot: each.at for each in decisions}.values():
                    _put_boot(connection, moment)
                shadowed.write(connection, decisions)
                shadowed.delete_old(connection, self._now(), self._max_age_s)

        return self._written(put)

    def write_traffic(self, document: bytes) -> bool:
        """Store the document of the traffic in place of the one before. False if the disk can't be
        written. One that takes more than a tenth of the file is left out."""
        if len(document) > self._max_bytes * _MOST_OF_TRAFFIC:
            return True

        def put(connection: sqlite3.Connection) -> None:
            with self._transaction(connection):
                connection.execute("INSERT OR REPLACE INTO traffic VALUES (1, ?)", (document,))

        return self._written(put)

    def traffic(self) -> bytes:
        """The document of the traffic; empty if there is none."""

        def read(connection: sqlite3.Connection) -> bytes:
            found = connection.execute("SELECT document FROM traffic").fetchone()
            return found[0] if found and isinstance(found[0], bytes) else b""

        return self._asked(read, b"")

    def measure_shadows(self) -> bool:
        """Store what the series say of both boards after decisions of shadows that are some time
        ago. Returns whether more may be left."""
        more = False

        def put(connection: sqlite3.Connection) -> None:
            nonlocal more
            with self._transaction(connection):
                more = shadowed.measure(connection, self._now(), _was_bound)

        return self._written(put) and more

    def shadows(self, age_s: float, limit: int) -> Slices[tuple[list[ShadowDecision], bool]]:
        """The newest decisions of shadows that are younger than `age_s`, the newest first; True
        when there are more than `limit`, or than can be read in 5 s."""
        now, found = self._now(), list[ShadowDecision]()
        none: list[tuple[int, ShadowDecision | None]] = []
        before = schema.LARGEST_ID + 1
        while before:
            rows = self._asked(partial(shadowed.below, before=before), none)
            before = rows[-1][0] if rows else 0
            for _, each in rows:
                if each is None:
                    continue
                if each.at.age_s(now) > age_s:
                    return found, False
                if len(found) == limit or self._now().up_s - now.up_s > _LISTING_S:
                    return found, True
                found.append(each)
            yield
        return found, False

    def checkpoint(self) -> None:
        """Make what was written so far survive a power cut."""
        statement = "PRAGMA wal_checkpoint(PASSIVE)"
        self._asked(lambda connection: connection.execute(statement).fetchall(), None)

    def about(self, pod: str, limit: int) -> list[DecisionRecord]:
        """The last decisions about the pod with this key, the newest first."""
        rest = "WHERE pod = ? ORDER BY decisions.id DESC LIMIT ?"
        none: _Rows = []
        rows = self._asked(lambda connection: list(_select(connection, rest, pod, limit)), none)
        waiting = [each for each in self._new_records() if each.pod == pod]
        return (waiting + [record for _, record in rows if record is not None])[:limit]

    def series(self, board: str, from_s: int, to_s: int) -> list[Block]:
        """The board's blocks that overlap these Unix seconds."""
        none: list[Block] = []
        return self._asked(lambda connection: series.blocks(connection, board, from_s, to_s), none)

    def series_at(self, unix_s: int) -> Slices[list[tuple[str, Block]]]:
        """The blocks of all boards that have this Unix second in them."""
        found: list[tuple[str, Block]] = []
        none: tuple[list[tuple[str, Block]], str | None] = [], None
        for resolution in (COARSE, FINE):
            after: str | None = ""
            while after is not None:
                query = partial(series.blocks_at, resolution=resolution, unix_s=unix_s, after=after)
                blocks, after = self._asked(query, none)
                found += blocks
                yield
        return found

    def first_series_s(self) -> int | None:
        """When the oldest block begins, Unix seconds; None without one."""
        return self._asked(series.first_s, None)

    def since(
        self, age_s: float | None, limit: int, select: Select = lambda record: record
    ) -> Slices[tuple[list[DecisionRecord], bool]]:
        """The last decision about each pod, oldest first, those younger than `age_s` as `select`
        returns them; True when there are more than `limit`, or than can be read in 5 s."""
        now, oldest_s = self._now(), 0.0
        seen: set[tuple[str, str]] = set()
        found: list[DecisionRecord] = []
        for records in self.newest_first():
            for record in records:
                oldest_s = max(oldest_s, record.last.age_s(now))  # as record.ages_s
                if len(found) > limit or self._now().up_s - now.up_s > _LISTING_S:
                    return found[limit - 1 :: -1], True
                if age_s is not None and oldest_s > age_s:
                    return found[limit - 1 :: -1], len(found) > limit
                key = record.pod, record.uid
                if key not in seen:
                    seen.add(key)
                    if (selected := select(record)) is not None:
                        found.append(selected)
            yield
        return found[limit - 1 :: -1], len(found) > limit

    def newest_first(self) -> Iterator[list[DecisionRecord]]:
        """All decisions, some at a time, without explanations. A later one has a lower id, also in
        a file that replaces this one meanwhile."""
        yield self._new_records()
        none: _Rows = []
        before = schema.LARGEST_ID + 1
        while before:
            rows = self._asked(partial(_below, before=before), none)
            before = rows[-1][0] if rows else 0
            yield [record for _, record in rows if record is not None]

    def _new_records(self) -> list[DecisionRecord]:
        """Those that wait, the newest first."""
        return [each for each in reversed(self._waiting) if isinstance(each, DecisionRecord)]

    # Writing.

    def _flush(self, connection: sqlite3.Connection) -> None:
        now = self._now()
        with self._transaction(connection):
            # What the clocks say now of the machine's start replaces what they said earlier, also
            # if it is what they said before that: a clock that jumped is set back.
            _put_boot(connection, now, is_now=True)
            for change in self._waiting:
                try:
                    _put(connection, change)
                except _RECORD_ERRORS as error:
                    self._failed(error)
            self._delete_old(connection, now)
        self._waiting.clear()

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            self._delete_beyond(connection)
        # The limit may have been lowered.
        extra = _number(connection, "PRAGMA page_count") - self._max_bytes // _number(
            connection, "PRAGMA page_size"
        )
        if extra > 0:
            # It frees a page per step, and only executescript runs all steps.
            connection.executescript(f"PRAGMA incremental_vacuum({extra})")

    def _delete_old(self, connection: sqlite3.Connection, now: Moment) -> None:
        """From the oldest decision up to the first that is young enough."""
        old = 0
        for number, record in _select(connection, "ORDER BY decisions.id", explanation="x''"):
            if record is not None and record.last.age_s(now) <= self._max_age_s:
                break
            old = number
        if old:
            connection.execute("DELETE FROM decisions WHERE id <= ?", (old,))

    def _delete_beyond(self, connection: sqlite3.Connection) -> None:
        """Delete the oldest rows beyond the largest size."""
        size = _number(connection, "PRAGMA page_size")

        def used() -> int:
            free = _number(connection, "PRAGMA freelist_count")
            return (_number(connection, "PRAGMA page_count") - free) * size

        if used() <= _FULL * self._max_bytes:
            return
        while used() > _PRUNED_TO * self._max_bytes:
            tables = [
                (length / share, step_s, count)
                for step_s, count, length in connection.execute(_SIZES)
                if count and (share := _SHARES.get(step_s))
            ]
            if not tables:
                return
            _, step_s, count = max(tables)
            delete = _DELETE.get(step_s, _DELETE_SERIES)
            connection.execute(delete, {"step_s": step_s, "count": 1 + count // 10})

    # The file.

    def _written(self, work: Callable[[sqlite3.Connection], None]) -> bool:
        """Whether this could be written; a file that turns out broken is replaced at once."""

        def done(connection: sqlite3.Connection) -> bool:
            work(connection)
            return True

        for _ in range(2):
            if self._now().up_s >= self._retry_s and self._asked(done, default=False):
                self.problem = ""
                if self._logged_problem:
                    self._logged_problem = False
                    log.info("decisions are written to %s again", self._path)
                return True
        return False

    def _asked(self, work: Callable[[sqlite3.Connection], Result], default: Result) -> Result:
        """What the file says to this, the default where it cannot be used."""
        if self._connection is None and self._now().up_s < self._retry_s:
            return default
        try:
            if self._connection is None:
                self._connection = schema.opened(self._path)
            until_s = time.thread_time() + _LIMIT_S
            self._connection.set_progress_handler(lambda: time.thread_time() > until_s, _STEPS)
            return work(self._connection)
        except _DISK_ERRORS as error:
            self._lose(error)
            return default

    def _lose(self, error: Exception) -> None:
        now_s = self._now().up_s
        said = str((error.strerror if isinstance(error, OSError) else None) or error)
        self.problem = said or type(error).__name__
        self._retry_s = now_s + _RETRY_S
        if schema.is_corrupt(error) and self._path is not None:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None
            if now_s - self._replaced_s > _RETRY_S:
                with suppress(OSError):
                    aside = _put_aside(self._path)
                    log.warning(
                        "%s: no sound database any more (%s): kept aside as %s, and a new one "
                        "begins",
                        *(self._path, self.problem, aside.name),
                    )
                    self._replaced_s, self._retry_s, self.problem = now_s, now_s, ""
                    return
        if not self._logged_problem:
            self._logged_problem = True
            log.warning(
                "%s: %s; decisions are kept in memory until it can be written",
                *(self._path, self.problem),
            )


def _put(connection: sqlite3.Connection, change: Change) -> None:
    """Write one change. Raises _RECORD_ERRORS before anything is written."""
    rest = "WHERE pod = ? ORDER BY decisions.id DESC LIMIT 1"
    number, last = next(_select(connection, rest, change.pod, explanation="x''"), (0, None))
    if isinstance(change, OutcomeChange):
        if last is not None and last.uid == change.uid:
            record = _encoded(last._replace(outcome=change.outcome))
            connection.execute("UPDATE decisions SET record = ? WHERE id = ?", (record, number))
        return
    joined = change.joined(last) if last is not None else None
    record = _encoded(joined or change)
    first, last_time = (joined or change).first, change.last
    for moment in {first, last_time}:
        _put_boot(connection, moment)
    connection.execute(
        "INSERT INTO decisions (pod, first_boot, first_up_s, boot, up_s, record, explanation)"
        " VALUES (?, (SELECT id FROM boots WHERE boot = ?), ?,"
        " (SELECT id FROM boots WHERE boot = ?), ?, ?, ?)",
        (
            *(change.pod, first.boot, first.up_s, last_time.boot, last_time.up_s),
            *(record, change.explanation),
        ),
    )
    if joined is not None:
        connection.execute("DELETE FROM decisions WHERE id = ?", (number,))


def _was_bound(connection: sqlite3.Connection, decision: ShadowDecision) -> bool:
    rest = "WHERE pod = ? ORDER BY decisions.id DESC LIMIT 4"
    return any(
        (record.uid, record.node) == (decision.uid, decision.node)
        and record.outcome in ("bound", "deleted")
        for _, record in _select(connection, rest, decision.pod, explanation="x''")
        if record is not None
    )


def _encoded(record: DecisionRecord) -> str:
    return msgspec.json.encode(Stored.of(record)).decode()


def _select(
    connection: sqlite3.Connection, rest: str, *values: object, explanation: str = "explanation"
) -> Iterator[tuple[int, DecisionRecord | None]]:
    """Decisions with their ids, None for one that Leadline never wrote. rest: the query from WHERE
    on."""
    sql = _SELECT.format(explanation=explanation, rest=rest)
    for number, pod, *columns, record, explained in connection.execute(sql, values):
        try:
            first, last = (msgspec.convert(columns[at : at + 3], Moment) for at in (0, 3))
            yield number, _STORED.decode(record).record(pod, first, last, explained)
        except (ValueError, TypeError):
            yield number, None


def _below(connection: sqlite3.Connection, before: int) -> _Rows:
    """Some of the decisions with lower ids, the newest first, without explanations."""
    rest = "WHERE decisions.id < ? ORDER BY decisions.id DESC LIMIT ?"
    return list(_select(connection, rest, before, _AT_ONCE, explanation="x''"))


def _number(connection: sqlite3.Connection, sql: str) -> int:
    return int(connection.execute(sql).fetchone()[0])


def _put_boot(connection: sqlite3.Connection, moment: Moment, *, is_now: bool = False) -> None:
    """Note when this run of the machine began, unless the file knows it. is_now: also then."""
    started = None if moment.started_unix_s is None else round(moment.started_unix_s)
    connection.execute(
        "INSERT INTO boots (boot, started_unix_s) VALUES (?, ?) ON CONFLICT (boot)"
        " DO UPDATE SET started_unix_s = excluded.started_unix_s"
        " WHERE excluded.started_unix_s IS NOT NULL AND (boots.started_unix_s IS NULL"
        " OR (? AND boots.started_unix_s != excluded.started_unix_s))",
        (moment.boot, started, is_now),
    )


def _merged(changes: Iterable[Change]) -> list[Change]:
    """The changes in their order, an outcome as part of its decision where both are there, and a
    repeated decision as one."""
    merged: dict[int, Change] = {}
    positions: dict[tuple[str, str], int] = {}
    for at, change in enumerate(changes):
        position = positions.get((change.pod, change.uid), -1)
        before = merged.get(position)
        if isinstance(change, OutcomeChange) and isinstance(before, DecisionRecord):
            merged[position] = before._replace(outcome=change.outcome)
            continue
        merged[at] = change
        if isinstance(change, DecisionRecord):
            positions[change.pod, change.uid] = at
            if isinstance(before, DecisionRecord) and (joined := change.joined(before)):
                merged[at] = joined
                del merged[position]
    return list(merged.values())


def _put_aside(path: Path) -> Path:
    """Rename the file and its journals. Returns the new path; raises OSError."""
    aside = path.with_name(f"{path.name}.corrupt")
    # The journals go first: one left behind would be applied to the next file.
    for ending in ("-journal", "-wal", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).replace(aside.with_name(aside.name + ending))
    for each in (path, aside):
        each.with_name(f"{each.name}-shm").unlink(missing_ok=True)
    return aside
