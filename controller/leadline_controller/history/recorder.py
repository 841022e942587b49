"""The thread between the scheduler and the database.

The scheduler must not wait for a disk, so it only queues its decisions here; this thread encodes
their explanations and writes them. It writes half a second of decisions in one transaction,
because each write wears an SD card. A burst of decisions is written after it, or once it has lasted
for five seconds or takes half of the memory: the thread takes time of the processor and the
interpreter that bindings need.

The queue is bounded in bytes. A decision holds the view that it was made from, so when the thread
falls behind, decisions are queued without their scores and refusals, which takes a hundredth of
the memory; when that is too much as well, decisions are lost. Both losses are counted and logged.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import sub
from pathlib import Path
from typing import TypeVar

from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod
from leadline_controller.history import times
from leadline_controller.history.log import PENDING
from leadline_controller.history.record import Change, DecisionRecord, OutcomeChange
from leadline_controller.history.shadowed import ShadowDecision
from leadline_controller.history.store import HistorySettings, Select, Slices, Store
from leadline_controller.history.times import Moment
from leadline_controller.telemetry.series import Block

log = logging.getLogger(__name__)

Result = TypeVar("Result")
KEPT_NODES = 64
_GATHER_S = 0.5
_GATHER_MAX = 8192
# A burst has ended when nothing was queued for so long.
_PAUSE_S = 0.1
_LONGEST_BURST_S = 5.0
_MIB = 2**20
# Past half of it the thread stops gathering and writes at once.
_DETAILED_BYTES = 64 * _MIB
_WAITING_BYTES = 96 * _MIB
# Estimates, as measuring takes longer than deciding. They are those of all filters over views that
# share nothing (measured: up to 20 kB, and 240 to 560 bytes a node), so many decisions about an
# unchanged cluster take less.
_DECISION_BYTES = 22 * 1024
_NODE_BYTES = 580
_DEMAND_BYTES = 400
_RECORD_BYTES = 800
_MAX_BATCH = 8192
_DURABLE_AFTER_S = 30.0
_CLOSE_S = 10.0
_MEASURE_S = 1.0
_LATER_EVERY_S = 60.0
_RESTORE_S = 20.0
_LOG_EVERY_S = 60.0
_MAX_ABOUT_ONE = 10
_MAX_LISTED = 5_000
_MAX_RESTORED = 256
# Blocks of series, a few kB each: those of the largest cluster, or hours of a small one.
_MAX_BLOCKS = 20_000
_BLOCKS_AT_ONCE = 128
# Of what other strategies would have decided, some hundred bytes each.
_MAX_SHADOWS = 8192
_MAX_COMPARED = 50_000


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """How the database is."""

    path: Path | None = None  # None if decisions are kept in memory only
    max_bytes: int = 0  # its largest size
    # Of the file and its disk when the thread worked last.
    size_bytes: int = 0
    free_bytes: int | None = None
    problem: str = ""  # why it can't be written
    late_s: float = 0.0  # for how long the thread has been at it
    lost: int = 0  # changes since the start


class Recorder:
    """The decisions of this run and of earlier ones. Its thread runs between `start` and `stop`;
    what is added before `start` is written then."""

    def __init__(self, settings: HistorySettings, now: Callable[[], Moment] = times.now) -> None:
        self._settings = settings
        self._now = now
        # Each change with its weight, and whether it counts as detailed.
        self._waiting: deque[tuple[Change, int, bool]] = deque()
        self._queries: deque[Callable[[Store], None]] = deque()
        self._blocks: deque[tuple[str, Block]] = deque(maxlen=_MAX_BLOCKS)
        self._shadows: deque[ShadowDecision] = deque(maxlen=_MAX_SHADOWS)
        self._traffic: deque[bytes] = deque(maxlen=1)
        self._work = threading.Event()
        self._hurry = threading.Event()
        # Bytes queued and bytes written; one thread writes each of these numbers.
        self._bytes_in = 0
        self._bytes_out = 0
        self._put_s = -math.inf
        self._detailed_in = 0
        self._detailed_out = 0
        # How many changes are lost, are without their scores, and cannot be written in full.
        self._lost = self._brief = self._failed = 0
        self._error: Exception | None = None
        self._reported = (0, 0, 0)
        self._report_s = -math.inf
        self._closing = False
        self._thread: threading.Thread | None = None
        # Set by the thread: what it measured last, and since when it works on what it took.
        path = settings.path if settings.max_mb else None
        self._measured = DatabaseStatus(path, settings.max_mb * _MIB if path else 0)
        self._busy_s: float | None = None
        self._later_s = -math.inf  # when nothing of shadows was due any more

    def start(self) -> None:
        """Start the thread, which opens the database."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Write what is queued and close the database, within ten seconds."""
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

    def waiting_bytes(self) -> int:
        """What waits to be written, about. On any thread."""
        return self._bytes_in - self._bytes_out

    def losses(self) -> dict[str, int]:
        """How many changes are lost, how many decisions are without their scores, and how many
        changes could not be written in full. On any thread."""
        return {"changes": self._lost, "scores": self._brief, "errors": self._failed}

    def put_shadows(self, decisions: Iterable[ShadowDecision]) -> None:
        """Queue what other strategies would have decided. The oldest are lost if a disk hangs. On
        any thread."""
        self._shadows.extend(decisions)
        if self._shadows:
            self._wake(hurry=False)

    def put_traffic(self, document: bytes) -> None:
        """Queue the document of the traffic in place of the one before. On any thread."""
        self._traffic.append(document)
        self._wake(hurry=False)

    # Called in the event loop.

    def status(self) -> DatabaseStatus:
        """How the database is."""
        busy_s = self._busy_s
        late_s = 0.0 if busy_s is None else max(0.0, self._now().up_s - busy_s)
        return replace(self._measured, late_s=late_s, lost=self._lost + self._failed)

    def put(self, change: Change) -> None:
        """Queue a new decision, or the new outcome of an earlier one. The sink of the log."""
        is_brief = False
        if isinstance(change, DecisionRecord) and change.decision is not None:
            weight = weight_of_decision(change.decision)
            held = self._detailed_in - self._detailed_out + weight
            hurry = held > _DETAILED_BYTES / 2
            if held <= _DETAILED_BYTES and self._put(change, weight, detailed=True, hurry=hurry):
                self._detailed_in += weight
                return
            change, is_brief = change._replace(decision=None), True
        if not self._put(change, _weight_of_change(change), hurry=is_brief):
            self._lost += 1
        elif is_brief:
            self._brief += 1

    def put_series(self, blocks: Iterable[tuple[str, Block]]) -> None:
        """Queue blocks of measured series, each of a board. The oldest are lost if a disk hangs."""
        self._blocks.extend(blocks)
        if self._blocks:
            self._wake(hurry=False)

    async def series(self, board: str, from_s: int, to_s: int) -> list[Block]:
        """The stored blocks of a board that overlap these Unix seconds, and those that wait for the
        disk. Of the same block the later one counts."""
        found = await self._query(lambda store: store.series(board, from_s, to_s))
        return found + [block for name, block in list(self._blocks) if name == board]

    async def series_at(self, unix_s: int) -> list[tuple[str, Block]]:
        """The stored blocks of all boards that have this Unix second in them, each with its
        board."""
        return await self._in_slices(lambda store: store.series_at(unix_s)) + list(self._blocks)

    async def first_series_s(self) -> int | None:
        """When the oldest stored block begins, Unix seconds; None without one."""
        return await self._query(lambda store: store.first_series_s())

    async def shadows(self, age_s: float) -> tuple[list[ShadowDecision], bool]:
        """What other strategies would have decided in the last `age_s` seconds, the newest first.
        True when there is more than can be read in 5 s, which is left out."""
        return await self._in_slices(lambda store: store.shadows(age_s, _MAX_COMPARED))

    async def measure(self) -> None:
        """Have the thread look at the file and its disk now, for `status`; for up to a second, as
        the disk may hang."""
        if self._thread is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_MEASURE_S):
                    await self._query(self._measure)

    async def about(self, pod: str) -> list[DecisionRecord]:
        """The last decisions about the pod with this key, the newest first; none before `start`."""
        if self._thread is None:
            return []
        return await self._query(lambda store: store.about(pod, _MAX_ABOUT_ONE))

    async def since(
        self,
        age_s: float | None,
        limit: int = _MAX_LISTED,
        select: Select = lambda record: record,
    ) -> tuple[list[DecisionRecord], bool]:
        """The last decision about each pod, oldest first, without its explanation: those younger
        than `age_s`, None for all, as `select` returns them; it is called in another thread. True
        when there are more than `limit`, or than can be read in 5 s, which are left out."""
        limit = min(limit, _MAX_LISTED)
        return await self._in_slices(lambda store: store.since(age_s, limit, select))

    async def restored(self) -> list[DecisionRecord]:
        """The newest decisions of earlier runs and all that are pending, oldest first. Empty when
        they can't be read in time. Never raises, as a controller must start without them too."""
        path = self._settings.path
        try:
            async with asyncio.timeout(_RESTORE_S):
                records, _ = await self._in_slices(lambda store: store.since(None, _MAX_LISTED))
        except TimeoutError:
            log.warning("%s: not read after %.0f s; going on without it", path, _RESTORE_S)
            return []
        except Exception as error:  # noqa: BLE001  # whatever the file holds
            log.warning("%s: can't be read: %r; going on without it", path, error)
            return []
        older = [record for record in records[:-_MAX_RESTORED] if record.outcome == PENDING]
        return [*older, *records[-_MAX_RESTORED:]]

    async def traffic(self) -> bytes:
        """The stored document of the traffic; empty if there is none, or if it can't be read in
        time. Never raises."""
        if self._thread is None:
            return b""
        with suppress(Exception):
            async with asyncio.timeout(_RESTORE_S):
                return await self._query(lambda store: store.traffic())
        return b""

    def _put(
        self, change: Change, weight: int, *, detailed: bool = False, hurry: bool = False
    ) -> bool:
        """Whether there was room for it: a disk may hang, and memory must not fill up."""
        if self._bytes_in - self._bytes_out + weight > _WAITING_BYTES:
            return False
        self._bytes_in += weight
        self._put_s = time.monotonic()
        self._waiting.append((change, weight, detailed))
        self._wake(hurry=hurry or len(self._waiting) >= _GATHER_MAX)
        return True

    def _wake(self, *, hurry: bool) -> None:
        if hurry and not self._hurry.is_set():
            self._hurry.set()
        if not self._work.is_set():
            self._work.set()

    async def _query(self, query: Callable[[Store], Result]) -> Result:
        future: Future[Result] = Future()

        def run(store: Store) -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(query(store))
                except Exception as error:  # noqa: BLE001  # the caller gets it
                    future.set_exception(error)

        self._queries.append(run)
        self._wake(hurry=True)
        try:
            return await asyncio.wrap_future(future)
        finally:
            with suppress(ValueError):  # a cancelled query leaves the queue, even if a disk hangs
                self._queries.remove(run)

    async def _in_slices(self, begin: Callable[[Store], Slices[Result]]) -> Result:
        """As `_query`, with what is queued between the slices: nobody waits for a long query."""
        slices: Slices[Result] | None = None

        def advance(store: Store) -> tuple[Result] | None:
            nonlocal slices
            slices = begin(store) if slices is None else slices
            try:
                return next(slices)
            except StopIteration as ended:
                return (ended.value,)

        while (ended := await self._query(advance)) is None:
            pass
        return ended[0]

    # Run in the thread.

    def _run(self) -> None:
        self._busy_s = self._now().up_s
        store = self._opened()
        self._measure(store)
        self._busy_s = None
        durable_at_s = math.inf
        queues = (self._waiting, self._queries, self._blocks, self._shadows, self._traffic)
        while not self._closing or any(queues):
            up_s = self._now().up_s
            if not self._work.wait(None if math.isinf(durable_at_s) else durable_at_s - up_s):
                self._busy_s = self._now().up_s
                store.checkpoint()
                self._busy_s, durable_at_s = None, math.inf
                continue
            self._hurry.wait(_GATHER_S)
            burst_ends_s = time.monotonic() + _LONGEST_BURST_S
            while (left_s := min(burst_ends_s, self._put_s + _PAUSE_S) - time.monotonic()) > 0:
                if self._hurry.wait(left_s):
                    break
            self._work.clear()
            self._hurry.clear()
            self._busy_s = self._now().up_s
            # What was queued before a query is written before it runs.
            queries = [self._queries.popleft() for _ in range(len(self._queries))]
            wrote = self._write(store)
            while self._write_series(store):
                wrote = True
                if not queries:
                    break  # decisions have their turn
            wrote |= self._write_shadows(store)
            wrote |= self._write_traffic(store)
            if wrote:
                durable_at_s = min(durable_at_s, self._now().up_s + _DURABLE_AFTER_S)
            for query in queries:
                query(store)
            self._measure(store)
            self._busy_s = None
            self._report_losses(up_s)
        store.close()
        self._report_losses(math.inf)

    def _measure(self, store: Store) -> None:
        size, free = store.usage()
        self._measured = replace(
            self._measured, size_bytes=size, free_bytes=free, problem=store.problem
        )

    def _opened(self) -> Store:
        try:
            return Store(self._settings, self._now, self._fail)
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the thread
            log.error("decisions are kept in memory: %r; please report it", error)
            return Store(HistorySettings(None), self._now, self._fail)

    def _fail(self, error: Exception) -> None:
        """A change cannot be written in full; the others must not suffer."""
        self._failed, self._error = self._failed + 1, error

    def _write(self, store: Store) -> bool:
        """Write what is queued; whether there was anything."""
        left = count = len(self._waiting)
        while left:
            batch = [self._waiting.popleft() for _ in range(min(left, _MAX_BATCH))]
            left -= len(batch)
            try:
                self._lost += store.write(self._encoded(change) for change, _, _ in batch)
            except Exception as error:  # noqa: BLE001  # a fault of ours must not end the thread
                self._fail(error)
            self._bytes_out += sum(weight for _, weight, _ in batch)
            self._detailed_out += sum(weight for _, weight, detailed in batch if detailed)
        return count > 0

    def _write_series(self, store: Store) -> bool:
        """Write some of the blocks that are queued; whether any were. Those that cannot be written
        stay where they were."""
        batch = [self._blocks.popleft() for _ in range(min(len(self._blocks), _BLOCKS_AT_ONCE))]
        wrote = False
        if batch:
            try:
                wrote = store.write_series(batch)
            except Exception as error:  # noqa: BLE001  # a fault of ours must not end the thread
                self._fail(error)
            else:
                if not wrote and not self._closing:
                    self._blocks.extendleft(reversed(batch[: _MAX_BLOCKS - len(self._blocks)]))
        if wrote and self._blocks:
            self._wake(hurry=False)
        return wrote

    def _write_shadows(self, store: Store) -> bool:
        """Write what is queued, and measure what is due; whether there was anything to write."""
        batch = [self._shadows.popleft() for _ in range(len(self._shadows))]
        try:
            if batch and not store.write_shadows(batch):
                room = _MAX_SHADOWS - len(self._shadows)
                kept = [] if self._closing else batch[max(0, len(batch) - room) :]
                self._shadows.extendleft(reversed(kept))
                return False
            if self._now().up_s >= self._later_s + _LATER_EVERY_S:
                if store.measure_shadows():
                    self._wake(hurry=False)
                else:
                    self._later_s = self._now().up_s
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the thread
            self._fail(error)
        return bool(batch)

    def _write_traffic(self, store: Store) -> bool:
        """Write the document that is queued; whether there was one. It is small, and another one
        comes: one that cannot be written is lost."""
        try:
            return bool(self._traffic) and store.write_traffic(self._traffic.popleft())
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the thread
            self._fail(error)
            return False

    def _encoded(self, change: Change) -> Change:
        if isinstance(change, OutcomeChange):
            return change
        try:
            return change.encoded(KEPT_NODES)
        except Exception as error:  # noqa: BLE001  # the other changes must not suffer
            self._fail(error)
            return change._replace(decision=None)

    def _report_losses(self, up_s: float) -> None:
        """Log what was lost since the last time, if that is a minute ago. up_s: the time,
        math.inf to log it now."""
        losses = (self._lost, self._brief, self._failed)
        if up_s < self._report_s or losses == self._reported:
            return
        lost, brief, failed = map(sub, losses, self._reported)
        self._report_s, self._reported = up_s + _LOG_EVERY_S, losses
        path = self._settings.path
        if lost:
            log.warning("%s is too slow: %d changes of decisions are lost", path, lost)
        if brief:
            log.warning("%s is too slow: %d decisions are kept without their scores", path, brief)
        if failed:
            log.error(
                "%d changes of decisions are not kept in full, the last of them for %r; please "
                "report it",
                *(failed, self._error),
            )


def weight_of_decision(decision: Decision) -> int:
    """Bytes of a decision with its view and its pod, about."""
    view = decision.basis()[0]
    nodes = 0 if view is None else len(view)
    return _DECISION_BYTES + nodes * _NODE_BYTES + _demands(decision.pod) * _DEMAND_BYTES


def _weight_of_change(change: Change) -> int:
    """Bytes of a record without its decision and explanation, or of an outcome, about."""
    why = change.why if isinstance(change, DecisionRecord) else ""
    return _RECORD_BYTES + len(change.pod) + len(change.outcome) + len(why)


def _demands(pod: Pod) -> int:
    """The number of small objects in the pod."""
    others = (*pod.affinity, *pod.anti_affinity)
    selectors = (
        *(pod.required_affinity or ()),
        *(each.selector or () for each in others),
        *(each.selector or () for each in pod.spread),
        *(each.namespace_selector or () for each in others),
    )
    columns = (
        *(pod.labels, pod.node_selector, pod.tolerations, pod.host_ports, pod.claims, pod.disks),
        *(pod.images, pod.features, pod.annotations.profile_ms, pod.annotations.peers, selectors),
    )
    values = (1 + len(each.values) for selector in selectors for each in selector)
    return sum(map(len, columns)) + sum(values)
