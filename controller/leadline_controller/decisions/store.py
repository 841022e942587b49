"""The database on disk, with memory as the fallback.

While the disk is full, read-only or broken, the store keeps decisions in memory, logs that once,
and tries the disk again every minute. It loses nothing that is sound: it keeps a damaged file
beside the new one, and a record that can't be written does not affect the others.
"""

import logging
import shutil
import sqlite3
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from leadline_controller.decisions.database import LARGEST_ID, MEMORY, Database, bounded, select
from leadline_controller.decisions.explanation import decode
from leadline_controller.decisions.record import Change, DecisionRecord, OutcomeChange
from leadline_controller.decisions.schema import (
    CorruptFileError,
    ForeignFileError,
    connected,
    is_corrupt,
)
from leadline_controller.decisions.series import SeriesRow
from leadline_controller.decisions.series import select as select_series
from leadline_controller.decisions.times import Moment
from leadline_controller.telemetry.series import COARSE, FINE, Block

log = logging.getLogger(__name__)

Result = TypeVar("Result")
# A query that comes to an end after several turns, between which others have theirs.
Slices = Generator[None, None, Result]
# A decision as a listing shows it; None for one that it leaves out.
Select = Callable[[DecisionRecord], DecisionRecord | None]
_MIB = 1024 * 1024
_DAY_S = 86_400.0
_IN_MEMORY_MB = 8
_RETRY_S = 60.0
_READING_S = 5.0  # from each end of a broken file
# Nothing is written meanwhile, and a query of bounded() that does not end counts as a broken file.
_LISTING_S = 5.0
_MAX_OUTCOMES = 4096
_DISK_ERRORS = (sqlite3.Error, OSError, ForeignFileError)


# Caused by a record and not by the disk.
_RECORD_ERRORS = (
    ValueError,
    TypeError,
    OverflowError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """path: the database file; None keeps decisions in memory only. max_mb: its largest size in
    MiB; 0 keeps decisions in memory only. max_age_days: older decisions are deleted."""

    path: Path | None = None
    max_mb: int = 64
    max_age_days: float = 90.0


class Store:
    """All stored decisions. For use by one thread; no method raises an error of the disk. problem:
    why the disk can't be written now, empty if it can."""

    def __init__(self, settings: HistorySettings, now: Callable[[], Moment]) -> None:
        self._settings = settings
        self._now = now
        self._path = settings.path if settings.max_mb else None
        self._disk: Database | None = None
        self._writable = False
        self._broken: Exception | None = None
        self._retry_s = float("-inf")
        self._rescued_s = float("-inf")
        self._outage_logged = False
        self.problem = ""
        self._rejected = 0
        self._rejected_logged_s = float("-inf")
        # Of decisions that are on the disk, while it can't be written.
        self._outcomes: deque[OutcomeChange] = deque(maxlen=_MAX_OUTCOMES)
        self._memory = self._in_memory()
        self._try_disk()

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
        """Write what is in memory if the disk works, and close the file."""
        self._retry_s = float("-inf")
        self._try_disk()
        with suppress(sqlite3.Error):
            if self._disk is not None:
                self._disk.close()
        self._memory.close()

    def write(self, changes: Sequence[Change]) -> None:
        """Store these, on disk if that works."""
        self._try_disk()
        if self._disk is not None and self._writable:
            try:
                self._write_sound(self._disk, changes)
            except _DISK_ERRORS as error:
                self._lose_disk(error)
            else:
                self._replace_unreadable()
                return
        for change in changes:
            if isinstance(change, OutcomeChange) and not self._memory.about(change.pod, 1):
                self._outcomes.append(change)
        self._write_sound(self._memory, changes)
        self._try_disk()

    def write_series(self, blocks: Sequence[tuple[str, Block]]) -> None:
        """Store these blocks, each of a board, on disk if that works."""
        self._try_disk()
        if self._disk is not None and self._writable:
            try:
                with self._disk.bounded():
                    self._disk.write_series(blocks, self._now())
            except _DISK_ERRORS as error:
                self._lose_disk(error)
            else:
                self._replace_unreadable()
                return
        self._memory.write_series(blocks, self._now())

    def checkpoint(self) -> None:
        """Make what was written so far survive a power cut."""
        if self._writable:
            self._from_disk(lambda disk: disk.checkpoint(), None)

    def about(self, pod: str, limit: int) -> list[DecisionRecord]:
        """The last decisions about the pod with this key, the newest first."""
        records = self._memory.about(pod, limit)
        records += self._from_disk(lambda disk: disk.about(pod, limit), list[DecisionRecord]())
        return records[:limit]

    def series(self, board: str, from_s: int, to_s: int) -> list[Block]:
        """The board's blocks that overlap these Unix seconds. Of the same block the later
        counts."""
        blocks = self._from_disk(lambda disk: disk.series(board, from_s, to_s), list[Block]())
        return blocks + self._memory.series(board, from_s, to_s)

    def series_at(self, unix_s: int) -> Slices[list[tuple[str, Block]]]:
        """The blocks of all boards that have this Unix second in them. Of the same block the later
        counts."""
        found: list[tuple[str, Block]] = []
        none: tuple[list[tuple[str, Block]], str | None] = [], None
        for read in (self._from_disk, self._from_memory):
            for resolution in (COARSE, FINE):
                after: str | None = ""
                while after is not None:
                    query = partial(Database.series_at, resolution=resolution, unix_s=unix_s)
                    blocks, after = read(partial(query, after=after), none)
                    found += blocks
                    yield
        return found

    def first_series_s(self) -> int | None:
        """When the oldest block begins, Unix seconds; None without one."""
        kept = [
            self._from_disk(lambda disk: disk.first_series_s(), None),
            self._memory.first_series_s(),
        ]
        return min((first for first in kept if first is not None), default=None)

    def since(
        self, age_s: float | None, limit: int, select: Select = lambda record: record
    ) -> Slices[tuple[list[DecisionRecord], bool]]:
        """The last decision about each pod, oldest first, those younger than `age_s` as `select`
        returns them; True when there are more than `limit`, or than can be read in 5 s."""
        now, oldest_s = self._now(), 0.0
        seen: set[tuple[str, str]] = set()
        found: list[DecisionRecord] = []
        for records in self._newest_first():
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

    def _newest_first(self) -> Iterator[list[DecisionRecord]]:
        """All decisions, some at a time. A later one has a lower id, also in a file that replaces
        this one meanwhile."""
        for read in (self._from_memory, self._from_disk):
            before = LARGEST_ID + 1
            while before:
                query = partial(Database.newest_first, before=before)
                records, before = read(query, (list[DecisionRecord](), 0))
                yield records

    def _from_memory(self, query: Callable[[Database], Result], _: Result) -> Result:
        return query(self._memory)

    def _from_disk(self, query: Callable[[Database], Result], default: Result) -> Result:
        if self._disk is None:
            return default
        disk = self._disk
        try:
            with disk.bounded():
                result = query(disk)
        except _DISK_ERRORS as error:
            self._lose_disk(error)
            return default
        self._replace_unreadable()
        return result

    def _replace_unreadable(self) -> None:
        """If the file has unreadable rows, continue with a new one that has the rest."""
        if self._disk is not None and self._disk.unreadable:
            self._lose_disk(CorruptFileError("decisions in it can't be read"))
            self._try_disk()

    def _write_sound(self, database: Database, changes: Sequence[Change]) -> None:
        """Write the changes without those that can't be written. Raises sqlite3.Error for an
        error of the disk."""
        try:
            with database.bounded():
                database.write(changes, self._now())
        except _RECORD_ERRORS as error:
            if not changes:
                raise CorruptFileError(f"nothing can be written to it: {error}") from None
            self._write_sound(database, ())
            if len(changes) == 1:
                self._log_rejected(error)
                return
            middle = len(changes) // 2
            self._write_sound(database, changes[:middle])
            self._write_sound(database, changes[middle:])

    def _log_rejected(self, error: Exception) -> None:
        """At most once a minute."""
        self._rejected += 1
        now_s = self._now().up_s
        if now_s - self._rejected_logged_s >= _RETRY_S:
            log.error(
                "%d changes of decisions can't be written and are left out, the last of them "
                "for %s: %s; please report it",
                *(self._rejected, type(error).__name__, error),
            )
            self._rejected, self._rejected_logged_s = 0, now_s

    # Memory and disk.

    def _in_memory(self) -> Database:
        max_mb = self._settings.max_mb or _IN_MEMORY_MB
        return self._database(MEMORY, min(max_mb, _IN_MEMORY_MB))

    def _database(self, path: Path | str, max_mb: int) -> Database:
        return Database(path, max_mb * _MIB, self._settings.max_age_days * _DAY_S)

    def _try_disk(self) -> None:
        """Open the disk if it is time to, and move what is in memory to it."""
        if self._path is None or self._writable or self._now().up_s < self._retry_s:
            return
        try:
            self._disk = self._disk or self._opened(self._path)
            self._write_sound(self._disk, tuple(self._outcomes))
            with self._disk.bounded():
                self._disk.copy(self._memory.all(), self._memory.all_series())
        except _DISK_ERRORS as error:
            self._lose_disk(error)
            return
        self._writable, self.problem = True, ""
        self._outcomes.clear()
        self._memory.close()
        self._memory = self._in_memory()
        if self._outage_logged:
            self._outage_logged = False
            log.info("decisions are written to %s again", self._path)

    def _lose_disk(self, error: Exception) -> None:
        now_s = self._now().up_s
        self._writable = False
        said = str((error.strerror if isinstance(error, OSError) else None) or error)
        self.problem = said or type(error).__name__
        self._retry_s = now_s + _RETRY_S
        if is_corrupt(error) and self._disk is not None:
            with suppress(sqlite3.Error):
                self._disk.close()
            self._disk, self._broken = None, error
            if now_s - self._rescued_s > _RETRY_S:
                self._retry_s = now_s
                return
        if not self._outage_logged:
            self._outage_logged = True
            log.warning(
                "%s: %s; decisions are kept in memory until it can be written",
                *(self._path, self.problem),
            )

    def _opened(self, path: Path) -> Database:
        problem = self._broken
        if problem is None:
            try:
                return self._database(path, self._settings.max_mb)
            except sqlite3.Error as error:
                if not is_corrupt(error):
                    raise
                problem = error
        aside = _put_aside(path)
        self._broken, self._rescued_s = None, self._now().up_s
        records = _readable(aside, self._settings.max_mb * _MIB)
        rows = _readable_series(aside, self._settings.max_mb * _MIB // 2)
        fresh = self._database(path, self._settings.max_mb)
        with fresh.bounded():
            fresh.copy(records, rows)
        log.warning(
            "%s: no sound database any more (%s): kept aside as %s; %d decisions were rescued",
            *(path, problem, aside.name, len(records)),
        )
        return fresh


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


def _readable(path: Path, max_bytes: int) -> list[DecisionRecord]:
    """Every decision of a broken file that can be read from its beginning or from its end,
    oldest first, as many as fit into `max_bytes` and can be read in a few seconds."""
    found: dict[int, DecisionRecord] = {}
    with suppress(sqlite3.Error), closing(connected(path)) as connection:
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error), bounded(connection, _READING_S):
                for record, number in select(connection, f"ORDER BY decisions.id {order}"):
                    if number in found or max_bytes < 0:
                        break
                    if record is None:
                        continue
                    with suppress(ValueError):
                        # An explanation has a checksum of its own.
                        _ = record.explanation and decode(record.explanation)
                        found[number] = record
                        max_bytes -= len(record.explanation) + len(record.why)
    return [found[number] for number in sorted(found)]


def _readable_series(path: Path, max_bytes: int) -> list[SeriesRow]:
    """Every block of series in a broken file, as `_readable`."""
    found: dict[int, SeriesRow] = {}
    with suppress(sqlite3.Error), closing(connected(path)) as connection:
        for order in ("DESC", "ASC"):  # the newest first
            with suppress(sqlite3.Error), bounded(connection, _READING_S):
                for row, number in select_series(connection, order):
                    if number in found or max_bytes < 0:
                        break
                    with suppress(ValueError):
                        row.block()
                        found[number] = row
                        max_bytes -= len(row.points)
    return [found[number] for number in sorted(found)]
