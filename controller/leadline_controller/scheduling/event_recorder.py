"""Writes events on pods without delaying bindings.

A pod that waits for a node must not wait for events on other pods. So the scheduler writes events
while it has no pod to place, and, as a busy cluster may never leave it such a gap, once the oldest
event has waited for five seconds.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import Clock, Cluster, ClusterError, Event

log = logging.getLogger(__name__)

OVERDUE_S = 5.0
_MAX_QUEUED = 10_000
_MAX_WRITES = 4
_MAX_MESSAGE = 1024  # what the API server takes
_FLUSH_S = 3.0


class EventRecorder:
    """A queue of events, of which at most four are being written. on_written: called after each.
    Past 10,000 events it drops the oldest; repeated ones, as of a pod that stays pending, come
    again."""

    def __init__(self, cluster: Cluster, clock: Clock, on_written: Callable[[], None]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._on_written = on_written
        self._queue: deque[tuple[float, Pod, Event]] = deque(maxlen=_MAX_QUEUED)
        self._writing: set[asyncio.Task[None]] = set()

    def put(self, pod: Pod, event: Event) -> None:
        """Queue an event."""
        short = replace(event, message=event.message[:_MAX_MESSAGE])
        self._queue.append((self._clock.now_s(), pod, short))

    def is_overdue(self) -> bool:
        """Whether the oldest event has waited for OVERDUE_S."""
        return bool(self._queue) and self._clock.now_s() - self._queue[0][0] >= OVERDUE_S

    def write(self) -> None:
        """Start to write queued events, oldest first, as many as may be written at once."""
        while self._queue and len(self._writing) < _MAX_WRITES:
            _, pod, event = self._queue.popleft()
            task = asyncio.get_running_loop().create_task(self._write(pod, event))
            self._writing.add(task)
            task.add_done_callback(self._written)

    async def flush(self, may_write: Callable[[], bool]) -> None:
        """Write what is queued for three seconds, as long as `may_write` says so, and then cancel
        what is left."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + _FLUSH_S
        while may_write() and (self._queue or self._writing):
            self.write()
            # Not asyncio.timeout: up to Python 3.11.2 it fails in a task that was cancelled.
            if (left_s := until_s - now_s()) <= 0:
                break
            await asyncio.wait(self._writing, timeout=left_s)
        self._queue.clear()
        for task in self._writing:
            task.cancel()
        await asyncio.gather(*self._writing, return_exceptions=True)

    async def _write(self, pod: Pod, event: Event) -> None:
        try:
            await self._cluster.record_event(pod, event)
        except ClusterError as error:
            log.warning("event on %s: %s", pod.key, error)

    def _written(self, task: "asyncio.Task[None]") -> None:
        self._writing.discard(task)
        self._on_written()
