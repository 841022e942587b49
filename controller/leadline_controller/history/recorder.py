"""The thread between the scheduler and the database.

Deciding must never wait for a disk: the scheduler leaves a decision here in a microsecond, and
what it says of its nodes is worked out in this thread. Half a second of decisions becomes one
transaction, because an SD card wears by the write.
"""

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from leadline_controller.core.account import account
from leadline_controller.core.cycle import Decision
from leadline_controller.core.model import Pod
from leadline_controller.history import times
from leadline_controller.history.codec import encode
from leadline_controller.history.rows import Row, Settled, clipped, rule
from leadline_controller.history.settings import HistorySettings
from leadline_controller.history.store import Store
from leadline_controller.history.times import Moment, Now
from leadline_controller.state.decisions import PENDING, Record, Told

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
KEPT_NODES = 64
_GATHER_S = 0.5
_GATHER_MOST = 256
# A decision that waits holds its view, about 200 bytes a node. Past so many nodes the thread is
# to hurry; past twice as many it does not keep up, and decisions are worked out at once.
_HELD_NODES = 100_000
_WAITING_MOST = 20_000
_DURABLE_AFTER_S = 30.0
_CLOSE_S = 10.0
_ABOUT_ONE = 10
_LISTED_MOST = 5_000
_RESTORED = 256


@dataclass(frozen=True, slots=True)
class _Decided:
    """A decision on its way, with the moment it was made."""

    record: Record
    now: Now

    def nodes(self) -> int:
        """How many nodes the view has that it holds."""
        view = self.record.decision.basis()[0]
        return 0 if view is None else len(view)

    def row(self) -> Row:
        record, decision = self.record, self.record.decision
        moment = Moment(self.now.boot, self.now.up_s, self.now.started_unix_s)
        return Row(
            pod=decision.pod.key,
            uid=decision.pod.uid,
            node=decision.node,
            why=clipped(decision.why),
            outcome=clipped(record.outcome),
            times=1,
            rule=rule(decision.strategy, decision.better, record.options),
            first=moment,
            last=moment,
            account=encode(account(decision, record.at_s, KEPT_NODES)),
        )


class Recorder:
    """Keeps decisions and answers for them: state.decisions' Keeper and History. Between
    `start` and `stop` it has a thread; what comes before is written then."""

    def __init__(self, settings: HistorySettings, now: Callable[[], Now] = times.now) -> None:
        self._settings = settings
        self._now = now
        self._waiting: deque[_Decided | Row | Settled] = deque()
        self._questions: deque[Callable[[Store], None]] = deque()
        self._work = threading.Event()
        self._hurry = threading.Event()
        # How many nodes the views had that went in here and came out there; each number has one
        # thread that writes it.
        self._nodes_in = 0
        self._nodes_out = 0
        self._lost = 0
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
            log.warning("the last decisions are not written: %s hangs", self._settings.path)

    # The event loop's side.

    def decided(self, record: Record) -> None:
        """A decision was made."""
        news = _Decided(record, self._now())
        held = self._nodes_in - self._nodes_out
        if held >= 2 * _HELD_NODES:
            self._leave(news.row(), hurry=True)
        elif self._leave(news, hurry=held >= _HELD_NODES):
            self._nodes_in += news.nodes()

    def settled(self, record: Record) -> None:
        """The outcome of the last decision about the record's pod is another now."""
        pod = record.decision.pod
        self._leave(Settled(pod.key, pod.uid, clipped(record.outcome)))

    async def about(self, pod: str) -> list[Told]:
        """The last decisions about the pod with this key, the newest first."""
        return await self._ask(lambda store: store.about(pod, _ABOUT_ONE))

    async def since(self, age_s: float | None) -> tuple[list[Told], bool]:
        """The last decision about each pod, oldest first, without its account: those younger
        than `age_s`, None for all. True when older ones were left out, being too many."""
        return await self._ask(lambda store: store.since(age_s, _LISTED_MOST))

    async def records(self, now_s: float) -> list[Record]:
        """The newest decisions of earlier runs as records of this one, oldest first, and those
        whose outcome was still to come. now_s: on this run's clock."""
        told, _ = await self._ask(lambda store: store.since(None, _LISTED_MOST))
        older = [each for each in told[:-_RESTORED] if each.outcome == PENDING]
        return [_record(each, now_s) for each in (*older, *told[-_RESTORED:])]

    def _leave(self, news: _Decided | Row | Settled, *, hurry: bool = False) -> bool:
        """Whether there was room for it: a disk may hang, but memory is no disk."""
        if len(self._waiting) >= _WAITING_MOST:
            self._lost += 1
            return False
        self._waiting.append(news)
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
        return await asyncio.wrap_future(future)

    # The thread's side.

    def _run(self) -> None:
        store = Store(self._settings, self._now)
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
        store.close()

    def _write(self, store: Store) -> bool:
        """Write what is waiting; whether there was anything."""
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            if waiting:
                store.write(_joined(waiting))
        except Exception:  # a fault of ours must not end the thread
            log.exception("%d changes of decisions are lost", len(waiting))
        self._nodes_out += sum(x.nodes() for x in waiting if isinstance(x, _Decided))
        if self._lost:
            log.warning("%s is too slow: %d changes of decisions are lost", *self._told_loss())
        return bool(waiting)

    def _told_loss(self) -> tuple[object, int]:
        lost, self._lost = self._lost, 0
        return self._settings.path, lost


def _joined(waiting: Iterable[_Decided | Row | Settled]) -> list[Row | Settled]:
    """The changes in their order; what was settled meanwhile is part of the decision's row."""
    changes: list[Row | Settled] = []
    places: dict[tuple[str, str], int] = {}
    for news in waiting:
        change = news.row() if isinstance(news, _Decided) else news
        place = places.get((change.pod, change.uid))
        if isinstance(change, Row):
            places[change.pod, change.uid] = len(changes)
            changes.append(change)
        elif place is not None and isinstance(row := changes[place], Row):
            changes[place] = row._replace(outcome=change.outcome)
        else:
            changes.append(change)
    return changes


def _record(told: Told, now_s: float) -> Record:
    namespace, _, name = told.pod.partition("/")
    pod = Pod(namespace, name, uid=told.uid)
    decision = Decision(pod, told.node, told.why, told.strategy, told.better)
    return Record(decision, now_s - told.age_s, told.outcome, told.options, 0)
