"""The thread between the scheduler and the database.

Deciding must never wait for a disk: the scheduler leaves a decision here in a microsecond, and
what it says of its nodes is worked out in this thread. Half a second of decisions becomes one
transaction, because an SD card wears by the write.

What waits is bounded in bytes. A decision holds the view that it was made from, so where the
thread does not keep up, decisions are kept without their scores and refusals, which are a
hundredth of that; only where that is too much as well are decisions lost. Both are counted.
"""

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from leadline_controller.decisions import times
from leadline_controller.decisions.codec import encode
from leadline_controller.decisions.explanation import explanation
from leadline_controller.decisions.log import PENDING, DecisionRecord, DecisionView
from leadline_controller.decisions.rows import Row, Settled, clipped, rule
from leadline_controller.decisions.settings import HistorySettings
from leadline_controller.decisions.store import Store
from leadline_controller.decisions.times import Moment, Now
from leadline_controller.decisions.weight import weight_of_decision, weight_of_row
from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
KEPT_NODES = 64
_GATHER_S = 0.5
_GATHER_MOST = 256
_MIB = 2**20
# Past half of it the thread is to hurry.
_DETAILED_BYTES = 64 * _MIB
_WAITING_BYTES = 96 * _MIB
_WRITTEN_AT_ONCE = 8192
_DURABLE_AFTER_S = 30.0
_CLOSE_S = 10.0
# A file that can't be read in this time is not waited for at the start.
_RESTORE_S = 20.0
_TOLD_EVERY_S = 60.0
_ABOUT_ONE = 10
_LISTED_MOST = 5_000
_RESTORED = 256


@dataclass(frozen=True, slots=True)
class _Decided:
    """A decision on its way, with the moment it was made."""

    record: DecisionRecord
    now: Now

    def row(self) -> Row:
        """All that is kept of it."""
        made = explanation(self.record.decision, self.record.at_s, KEPT_NODES)
        return self.plain_row()._replace(explanation=encode(made))

    def plain_row(self) -> Row:
        """The same without its account."""
        record, decision = self.record, self.record.decision
        moment = Moment(self.now.boot, self.now.up_s, self.now.started_unix_s)
        return Row(
            pod=clipped(decision.pod.key),
            uid=clipped(decision.pod.uid),
            node=decision.node,
            why=clipped(decision.why),
            outcome=clipped(record.outcome),
            times=1,
            rule=rule(decision.strategy, decision.better, record.options),
            first=moment,
            last=moment,
            explanation=b"",
        )


class Recorder:
    """Keeps decisions and answers for them: state.decisions' Keeper and History. Between
    `start` and `stop` it has a thread; what comes before is written then."""

    def __init__(self, settings: HistorySettings, now: Callable[[], Now] = times.now) -> None:
        self._settings = settings
        self._now = now
        self._waiting: deque[tuple[_Decided | Row | Settled, int]] = deque()
        self._questions: deque[Callable[[Store], None]] = deque()
        self._work = threading.Event()
        self._hurry = threading.Event()
        # How many bytes went in here and came out there; each number has one thread that
        # writes it.
        self._bytes_in = 0
        self._bytes_out = 0
        self._detailed_in = 0
        self._detailed_out = 0
        self._losses = _Losses(settings.path)
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the database, and write from now on."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Write what is waiting, and close the database; not for ever, if the disk hangs."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing = True
        self._wake(hurry=True)
        await asyncio.to_thread(thread.join, _CLOSE_S)
        if thread.is_alive():
            log.warning(
                "the last decisions are not written: %s hangs; %d changes of them wait",
                *(self._settings.path, len(self._waiting)),
            )

    # The event loop's side.

    def decided(self, record: DecisionRecord) -> None:
        """A decision was made."""
        entry, weight = _Decided(record, self._now()), weight_of_decision(record.decision)
        held = self._detailed_in - self._detailed_out + weight
        if held <= _DETAILED_BYTES and self._leave(entry, weight, hurry=held > _DETAILED_BYTES / 2):
            self._detailed_in += weight
            return
        row = entry.plain_row()
        if self._leave(row, weight_of_row(row), hurry=True):
            self._losses.details += 1
        else:
            self._losses.changes += 1

    def settled(self, record: DecisionRecord) -> None:
        """The outcome of the last decision about the record's pod is another now."""
        pod = record.decision.pod
        change = Settled(clipped(pod.key), clipped(pod.uid), clipped(record.outcome))
        if not self._leave(change, weight_of_row(change)):
            self._losses.changes += 1

    async def about(self, pod: str) -> list[DecisionView]:
        """The last decisions about the pod with this key, the newest first."""
        return await self._ask(lambda store: store.about(pod, _ABOUT_ONE))

    async def since(self, age_s: float | None) -> tuple[list[DecisionView], bool]:
        """The last decision about each pod, oldest first, without its account: those younger
        than `age_s`, None for all. True when older ones were left out, being too many."""
        return await self._ask(lambda store: store.since(age_s, _LISTED_MOST))

    async def records(self, now_s: float) -> list[DecisionRecord]:
        """The newest decisions of earlier runs as records of this one, oldest first, and those
        whose outcome was still to come. now_s: on this run's clock. None of them where they
        can't be read in time: never raises, for a controller must start without them too."""
        path = self._settings.path
        try:
            asked = self._ask(lambda store: store.since(None, _LISTED_MOST))
            told, _ = await asyncio.wait_for(asked, _RESTORE_S)
        except TimeoutError:
            log.warning("%s: not read after %.0f s; going on without it", path, _RESTORE_S)
            return []
        except Exception as error:  # noqa: BLE001  # whatever the file holds
            log.warning("%s: can't be read: %r; going on without it", path, error)
            return []
        older = [each for each in told[:-_RESTORED] if each.outcome == PENDING]
        return [_record(each, now_s) for each in (*older, *told[-_RESTORED:])]

    def _leave(self, entry: _Decided | Row | Settled, weight: int, *, hurry: bool = False) -> bool:
        """Whether there was room for it: a disk may hang, but memory is no disk."""
        if self._bytes_in - self._bytes_out + weight > _WAITING_BYTES:
            return False
        self._bytes_in += weight
        self._waiting.append((entry, weight))
        self._wake(hurry=hurry or len(self._waiting) >= _GATHER_MOST)
        return True

    def _wake(self, *, hurry: bool) -> None:
        if hurry and not self._hurry.is_set():
            self._hurry.set()
        if not self._work.is_set():
            self._work.set()

    async def _ask(self, question: Callable[[Store], Answer]) -> Answer:
        future: Future[Answer] = Future()

        def answer(store: Store) -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(question(store))
                except Exception as error:  # noqa: BLE001  # who asks is told
                    future.set_exception(error)

        self._questions.append(answer)
        self._wake(hurry=True)
        try:
            return await asyncio.wrap_future(future)
        finally:
            with suppress(ValueError):  # who is gone needs no answer, however long a disk hangs
                self._questions.remove(answer)

    # The thread's side.

    def _run(self) -> None:
        store = self._opened()
        durable_at_s = math.inf
        while not self._closing or self._waiting or self._questions:
            up_s = self._now().up_s
            if not self._work.wait(None if math.isinf(durable_at_s) else durable_at_s - up_s):
                store.checkpoint()
                durable_at_s = math.inf
                continue
            self._hurry.wait(_GATHER_S)
            self._work.clear()
            self._hurry.clear()
            # What was left before a question was asked is written before it is answered.
            questions = [self._questions.popleft() for _ in range(len(self._questions))]
            if self._write(store):
                durable_at_s = min(durable_at_s, up_s + _DURABLE_AFTER_S)
            for question in questions:
                question(store)
            self._losses.tell(up_s)
        store.close()
        self._losses.tell(math.inf)

    def _opened(self) -> Store:
        try:
            return Store(self._settings, self._now)
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the thread
            log.error("decisions are kept in memory: %r; please report it", error)
            return Store(HistorySettings(None), self._now)

    def _write(self, store: Store) -> bool:
        """Write what is waiting; whether there was anything."""
        left = count = len(self._waiting)
        while left:
            batch = [self._waiting.popleft() for _ in range(min(left, _WRITTEN_AT_ONCE))]
            left -= len(batch)
            try:
                store.write(_joined(self._rows(entry for entry, _ in batch)))
            except Exception as error:  # noqa: BLE001  # a fault of ours must not end the thread
                self._losses.failed(len(batch), error)
            self._bytes_out += sum(weight for _, weight in batch)
            self._detailed_out += sum(w for entry, w in batch if isinstance(entry, _Decided))
        return count > 0

    def _rows(self, batch: Iterable[_Decided | Row | Settled]) -> Iterator[Row | Settled]:
        for entry in batch:
            if isinstance(entry, _Decided):
                try:
                    yield entry.row()
                except Exception as error:  # noqa: BLE001  # none of the others must suffer from it
                    self._losses.failed(1, error)
                    yield entry.plain_row()
            else:
                yield entry


class _Losses:
    """Counts what was not kept, and says so once a minute. details and changes: so far, counted
    by the event loop's thread alone."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.details = 0
        self.changes = 0
        self._told = (0, 0)
        self._failed = 0
        self._error: Exception | None = None
        self._next_s = -math.inf

    def failed(self, count: int, error: Exception) -> None:
        """So many changes could not be written as they are for this error."""
        self._failed += count
        self._error = error

    def tell(self, up_s: float) -> None:
        """Say what there is to say. up_s: the time, math.inf to say it at once."""
        now = (self.details, self.changes)
        if up_s < self._next_s or (now == self._told and not self._failed):
            return
        self._next_s = up_s + _TOLD_EVERY_S
        (details, changes), self._told = self._told, now
        if lost := now[1] - changes:
            log.warning("%s is too slow: %d changes of decisions are lost", self._path, lost)
        if plain := now[0] - details:
            log.warning(
                "%s is too slow: %d decisions are kept without their scores", self._path, plain
            )
        if self._failed:
            log.error(
                "%d changes of decisions are not kept in full, the last of them for %r; please "
                "report it",
                *(self._failed, self._error),
            )
            self._failed = 0


def _joined(waiting: Iterable[Row | Settled]) -> list[Row | Settled]:
    """The changes in their order; what was settled meanwhile is part of the decision's row."""
    changes: list[Row | Settled] = []
    places: dict[tuple[str, str], int] = {}
    for change in waiting:
        place = places.get((change.pod, change.uid))
        if isinstance(change, Row):
            places[change.pod, change.uid] = len(changes)
            changes.append(change)
        elif place is not None and isinstance(row := changes[place], Row):
            changes[place] = row._replace(outcome=change.outcome)
        else:
            changes.append(change)
    return changes


def _record(told: DecisionView, now_s: float) -> DecisionRecord:
    namespace, _, name = told.pod.partition("/")
    pod = Pod(namespace, name, uid=told.uid)
    decision = Decision(pod, told.node, told.why, told.strategy, told.better)
    return DecisionRecord(decision, now_s - told.age_s, told.outcome, told.options, 0)
