"""Records what decisions depend on, and them.

Whoever learns something only queues it here, and a thread writes it. The queue has a limit: what is
too much is left out, and after it stands how much that was, and the whole cluster.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import ClusterChange, PodChanged, Relisted
from leadline_controller.history.recorded import Began, Changed, Entry, Missed, Recorded
from leadline_controller.history.recording_ring import RecordingSettings, Ring
from leadline_controller.history.recording_start import Start
from leadline_controller.telemetry.state import TimesToLive

log = logging.getLogger(__name__)

# Some 50 MB of pods at most.
_MOST_WAITING = 16_384
_TURN_S = 1.0
_TICKS_A_S = 1024
# While more come in a turn, and there is room for them, bindings need the interpreter more.
_BURST, _LONGEST_BURST = 200, 4
_CLOSE_S = 10.0
_HANGS_S = 30.0


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """How the recording is."""

    folder: Path
    size_bytes: int
    problem: str  # why nothing is recorded, empty if it is
    missed: int  # entries since the start that are not in it


class Recording:
    """What is recorded. Its thread runs between `start` and `stop`. now_s: the clock of decisions.
    leads: whether this controller does; else it only keeps what a recording would begin with.
    began: what a file begins with, of a time on that clock. profiled: a pod with its service's
    profile. shown: the whole cluster. ttl: of measurements. The thread calls `leads` and `began`.

    Cluster changes are told in the event loop, measurements on any thread.
    """

    def __init__(
        self,
        settings: RecordingSettings,
        now_s: Callable[[], float],
        leads: Callable[[], bool],
        began: Callable[[float], Began],
        profiled: Callable[[Pod], Pod],
        shown: Callable[[], Relisted],
        ttl: TimesToLive,
    ) -> None:
        self._now_s, self._leads = now_s, leads
        self._profiled, self._shown = profiled, shown
        self._ring = Ring(settings, began, Start(ttl.rtt_s, ttl.bandwidth_s))
        self._waiting: deque[Entry] = deque()
        self._lock = threading.Lock()  # of the two numbers
        self._missed = self._missed_now = 0
        self._work = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._put_off = 0
        self._busy_s: float | None = None

    def start(self) -> None:
        """Start the thread."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Write what is queued, within ten seconds."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing = True
        self._work.set()
        await asyncio.to_thread(thread.join, _CLOSE_S)
        if thread.is_alive():
            log.warning("%s hangs: the last minute is not recorded", self._ring.folder)

    def status(self) -> RecordingStatus:
        """How it is now."""
        ring, busy_s, problem = self._ring, self._busy_s, self._ring.problem
        if busy_s is not None and (late_s := self._now_s() - busy_s) > _HANGS_S:
            problem = f"the disk has not answered for {late_s:.0f} s"
        return RecordingStatus(ring.folder, ring.size_bytes, problem, self._missed + ring.failed)

    def put(self, what: Recorded, at_s: float | None = None) -> None:
        """Record this. at_s: when it happened, None for now."""
        if len(self._waiting) < _MOST_WAITING:
            # What is finer than a thousandth of a second is noise that takes room.
            ticks = int((self._now_s() if at_s is None else at_s) * _TICKS_A_S)
            self._waiting.append(Entry(ticks / _TICKS_A_S, what))
            return
        with self._lock:
            self._missed += 1
            self._missed_now += 1

    def observe(self, change: ClusterChange) -> None:
        """Record a change, which the state has already."""
        if self._missed_now and len(self._waiting) < _MOST_WAITING // 2:
            self.show_all()
        match change:
            case PodChanged(pod):
                change = PodChanged(self._profiled(pod))
            case Relisted(pods=pods):
                change = replace(change, pods=tuple(map(self._profiled, pods)))
            case _:
                pass
        self.put(Changed(change))

    def show_all(self) -> None:
        """Record the whole cluster, as something else than its changes changed it, or some of them
        are missing."""
        with self._lock:
            missed, self._missed_now = self._missed_now, 0
        if missed:
            self.put(Missed(missed))
        self.put(Changed(self._shown()))

    # Run in the thread.

    def _run(self) -> None:
        before = 0
        while not self._closing:
            self._work.wait(_TURN_S)
            waiting = len(self._waiting)
            is_burst = waiting - before > _BURST and waiting < _MOST_WAITING // 2
            if is_burst and self._put_off < _LONGEST_BURST and not self._closing:
                self._put_off, before = self._put_off + 1, waiting
                continue
            self._put_off = before = 0
            self._turn()
        self._turn()
        self._ring.end(self._now_s())

    def _turn(self) -> None:
        now_s = self._busy_s = self._now_s()
        try:
            self._write(now_s)
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the thread
            log.error("recording failed: %r; please report it", error)
        self._busy_s = None

    def _write(self, now_s: float) -> None:
        ring, leads = self._ring, self._leads()
        # What happened on two threads, in the order of the clock.
        entries = [self._waiting.popleft() for _ in range(len(self._waiting))]
        entries.sort(key=lambda entry: entry.at_s)
        if leads and not ring.is_on:
            ring.begin(min(now_s, entries[0].at_s) if entries else now_s)
        for entry in entries:
            ring.add(entry)
        if ring.is_on and not leads:
            ring.end(now_s)
        ring.tick(now_s)
