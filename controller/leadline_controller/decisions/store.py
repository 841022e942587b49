"""The database on disk, and what to do while there is none.

A full disk, one that can't be written, and a file that rotted are all the same to the
controller: it goes on in memory, says so once, and tries the disk again each minute. Nothing
that was good is thrown away: a damaged file is kept aside, and a record that can't be written
costs none of those beside it.
"""

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

from leadline_controller.decisions.database import MEMORY, Database
from leadline_controller.decisions.log import DecisionView
from leadline_controller.decisions.rescue import is_corrupt, put_aside, readable
from leadline_controller.decisions.rows import Row, Settled
from leadline_controller.decisions.schema import CorruptFileError, ForeignFileError
from leadline_controller.decisions.settings import HistorySettings
from leadline_controller.decisions.times import Now

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
_MIB = 1024 * 1024
_DAY_S = 86_400.0
_IN_MEMORY_MB = 8
_RETRY_S = 60.0
_MOST_OWED = 4096
_PROBLEMS = (sqlite3.Error, OSError, ForeignFileError)


# What a record brings about, whatever the disk is like.
_FAULTS_OF_RECORDS = (
    ValueError,
    TypeError,
    OverflowError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


class Store:
    """All decisions that are kept. Used by one thread; no method raises for the disk's sake."""

    def __init__(self, settings: HistorySettings, now: Callable[[], Now]) -> None:
        self._settings = settings
        self._now = now
        self._path = settings.path if settings.max_mb else None
        self._disk: Database | None = None
        self._writable = False
        self._broken: Exception | None = None
        self._retry_s = float("-inf")
        self._rescued_s = float("-inf")
        self._said = False
        self._refused = 0
        self._refusal = ""
        self._told_refusals_s = float("-inf")
        self._owed: deque[Settled] = deque(maxlen=_MOST_OWED)
        self._memory = self._in_memory()
        self._try_disk()

    def close(self) -> None:
        """Write what the disk takes."""
        self._retry_s = float("-inf")
        self._try_disk()
        with suppress(sqlite3.Error):
            if self._disk is not None:
                self._disk.close()
        self._memory.close()

    def write(self, changes: Sequence[Row | Settled]) -> None:
        """Keep these, on disk if that works."""
        self._try_disk()
        if self._disk is not None and self._writable:
            try:
                self._write(self._disk, changes)
            except _PROBLEMS as error:
                self._lose_disk(error)
            else:
                self._check_rows()
                return
        self._remember(changes)
        self._try_disk()

    def checkpoint(self) -> None:
        """See to it that what was written so far survives a power cut."""
        if self._writable:
            self._ask(lambda disk: disk.checkpoint(), None)

    def about(self, pod: str, limit: int) -> list[DecisionView]:
        """The last decisions about the pod with this key, the newest first."""
        rows = self._memory.about(pod, limit)
        rows += self._ask(lambda disk: disk.about(pod, limit), list[Row]())
        return [row.told(self._now()) for row in rows[:limit]]

    def since(self, age_s: float | None, limit: int) -> tuple[list[DecisionView], bool]:
        """The last decision about each pod, oldest first, those younger than `age_s`; True
        when there are more than `limit`."""
        found = self._ask(lambda disk: self._since(disk, age_s, limit), None)
        told = self._since(None, age_s, limit) if found is None else found
        return told[limit - 1 :: -1], len(told) > limit

    def _since(self, disk: Database | None, age_s: float | None, limit: int) -> list[DecisionView]:
        now, oldest_s = self._now(), 0.0
        told: dict[tuple[str, str], DecisionView] = {}
        kept = disk.newest_first() if disk else ()
        for row in chain(self._memory.newest_first(), kept):
            # What was decided before another can't be younger, whatever the clocks said.
            oldest_s = max(oldest_s, row.last.age_s(now))
            if len(told) > limit or (age_s is not None and oldest_s > age_s):
                break
            if (row.pod, row.uid) not in told:
                told[row.pod, row.uid] = replace(row.told(now), age_s=oldest_s)
        return list(told.values())

    def _ask(self, question: Callable[[Database], Answer], otherwise: Answer) -> Answer:
        if self._disk is None:
            return otherwise
        disk = self._disk
        try:
            with disk.bounded():
                answer = question(disk)
        except _PROBLEMS as error:
            self._lose_disk(error)
            return otherwise
        self._check_rows()
        return answer

    def _check_rows(self) -> None:
        """Where the file has rows that can't be read, go on with another that has the rest."""
        if self._disk is not None and self._disk.unreadable:
            self._lose_disk(CorruptFileError("decisions in it can't be read"))
            self._try_disk()

    def _write(self, database: Database, changes: Sequence[Row | Settled]) -> None:
        """Write all that can be written: where a record is at fault, the others without it.
        Raises sqlite3.Error for the disk's sake."""
        try:
            with database.bounded():
                database.write(changes, self._now())
        except _FAULTS_OF_RECORDS as error:
            if not changes:
                raise CorruptFileError(f"nothing can be written to it: {error}") from None
            self._write(database, ())
            if len(changes) == 1:
                self._refuse(error)
                return
            middle = len(changes) // 2
            self._write(database, changes[:middle])
            self._write(database, changes[middle:])

    def _refuse(self, error: Exception) -> None:
        self._refused += 1
        self._refusal = f"{type(error).__name__}: {error}"
        now_s = self._now().up_s
        if now_s - self._told_refusals_s >= _RETRY_S:
            log.error(
                "%d changes of decisions can't be written and are left out, the last of them "
                "for %s; please report it",
                *(self._refused, self._refusal),
            )
            self._refused, self._told_refusals_s = 0, now_s

    # While the disk is away.

    def _in_memory(self) -> Database:
        most = self._settings.max_mb or _IN_MEMORY_MB
        return self._database(MEMORY, min(most, _IN_MEMORY_MB))

    def _database(self, path: Path | str, max_mb: int) -> Database:
        return Database(path, max_mb * _MIB, self._settings.max_age_days * _DAY_S)

    def _remember(self, changes: Sequence[Row | Settled]) -> None:
        for change in changes:
            if isinstance(change, Settled) and not self._memory.about(change.pod, 1):
                self._owed.append(change)  # that decision is on the disk
        self._write(self._memory, changes)

    def _try_disk(self) -> None:
        """Go back to the disk, or to it for the first time, with what came in between."""
        if self._path is None or self._writable or self._now().up_s < self._retry_s:
            return
        try:
            self._disk = self._disk or self._opened(self._path)
            self._write(self._disk, tuple(self._owed))
            with self._disk.bounded():
                self._disk.copy(self._memory.all())
        except _PROBLEMS as error:
            self._lose_disk(error)
            return
        self._writable = True
        self._owed.clear()
        self._memory.close()
        self._memory = self._in_memory()
        if self._said:
            self._said = False
            log.info("decisions are written to %s again", self._path)

    def _lose_disk(self, error: Exception) -> None:
        now_s = self._now().up_s
        self._writable = False
        self._retry_s = now_s + _RETRY_S
        if is_corrupt(error) and self._disk is not None:
            with suppress(sqlite3.Error):
                self._disk.close()
            self._disk, self._broken = None, error
            if now_s - self._rescued_s > _RETRY_S:
                self._retry_s = now_s
                return
        if not self._said:
            self._said = True
            log.warning(
                "%s: %s; decisions are kept in memory until it can be written",
                *(self._path, _plainly(error)),
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
        aside = put_aside(path)
        self._broken, self._rescued_s = None, self._now().up_s
        rows = readable(aside, self._settings.max_mb * _MIB)
        fresh = self._database(path, self._settings.max_mb)
        with fresh.bounded():
            fresh.copy(rows)
        log.warning(
            "%s: no sound database any more (%s): kept aside as %s; %d decisions were rescued",
            *(path, problem, aside.name, len(rows)),
        )
        return fresh


def _plainly(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
