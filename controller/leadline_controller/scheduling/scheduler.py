"""The loop: watch, decide, assume, have volumes made, bind, say why; back off on failure.

It keeps nothing that matters: after a restart the API server says which pods are bound.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import BOUND, PENDING, DecisionLog
from leadline_controller.framework.cycle import Decision, Filter, Strategy, decide
from leadline_controller.framework.model import SCHEDULER_NAME, Pod
from leadline_controller.framework.options import values_of
from leadline_controller.framework.ports import (
    Clock,
    Cluster,
    ClusterChange,
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Leadership,
    NotFoundError,
    NotLeadingError,
    PodChanged,
    PodDeleted,
    PodEvent,
    Relisted,
)
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.storage import VolumePlan
from leadline_controller.leaderelection.lease import SOLE_LEADER
from leadline_controller.scheduling.event_queue import EventQueue
from leadline_controller.scheduling.queue import SchedulingQueue
from leadline_controller.scheduling.volumes import VolumeWaits
from leadline_controller.telemetry.state import TelemetryState

log = logging.getLogger(__name__)

BINDINGS_AT_ONCE = 128
_RUN_GAP_S = 1.0
_WARM_UP_POLL_S = 0.2
_BANDWIDTH_POLL_S = 1.0
_SAYINGS_AT_ONCE = 4
_LAST_WORDS_S = 3.0
# Most often the watch says in a moment that another bound the pod, or that it is gone.
_LEFT_UNSAID = (ConflictError, NotLeadingError, NotFoundError)


@dataclass(frozen=True, slots=True)
class SchedulingProfile:
    """How pods are placed. warm_up_s: how long the first decision may wait for the metrics
    of every ready node, since a controller that has just started knows none."""

    strategy: Strategy
    filters: Mapping[str, Filter]
    random: Random
    scheduler_name: str = SCHEDULER_NAME
    warm_up_s: float = 0.0


class Scheduler:
    """Places the pods of one scheduler name, while it leads. Else it only follows what happens,
    so that it can take over at once. heard: told of every change, after the state."""

    def __init__(  # the parts that it joins
        self,
        cluster: Cluster,
        state: ClusterState,
        telemetry: TelemetryState,
        decisions: DecisionLog,
        placing: SchedulingProfile,
        clock: Clock,
        leadership: Leadership = SOLE_LEADER,
        heard: Callable[[ClusterChange], None] = lambda _: None,
    ) -> None:
        self._heard = heard
        self._cluster = cluster
        self._leadership = leadership
        self._state = state
        self._telemetry = telemetry
        self._decisions = decisions
        self._placing = placing
        self._options = values_of(placing.strategy)
        self._clock = clock
        self._queue = SchedulingQueue()
        self._volumes = VolumeWaits(state, clock)
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(BINDINGS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._event_queue = EventQueue()
        self._speaking: set[asyncio.Task[None]] = set()
        self._last_placed_s = float("-inf")

    async def run(self) -> None:
        """Run until cancelled; bindings that are under way then are finished first, and pods
        whose volumes are being made are left pending."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch())
                group.create_task(self._place())
                group.create_task(self._notice_bandwidth())
        finally:
            self._volumes.stop()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._say_last_words()

    async def _watch(self) -> None:
        async with aclosing(self._cluster.watch()) as changes:
            async for change in changes:
                events = self._state.apply(change)
                self._heard(change)
                self._decisions.observe(change)
                self._queue_up(change)
                self._volumes.notice(change)
                self._queue.move_to_active_or_backoff(self._clock.now_s(), events)
                self._changed.set()

    async def _notice_bandwidth(self) -> None:
        """What was measured comes past the cluster, and by another thread."""
        noticed = self._telemetry.bandwidth_changes
        while True:
            await self._clock.sleep(_BANDWIDTH_POLL_S)
            if noticed != (noticed := self._telemetry.bandwidth_changes):
                self._queue.move_to_active_or_backoff(self._clock.now_s(), ClusterEvent.BANDWIDTH)
                self._changed.set()

    def _queue_up(self, change: ClusterChange) -> None:
        match change:
            case Relisted(pods=pods):
                there = {pod.uid for pod in pods}
                self._queue.keep_only(there)
                for pod in pods:
                    self._consider(pod)
            case PodChanged(pod):
                self._consider(pod)
            case PodDeleted(pod):
                self._queue.remove(pod.uid)

    def _consider(self, pod: Pod) -> None:
        if not self._is_pending(pod):
            self._queue.remove(pod.uid)
        elif pod.uid in self._queue or not self._state.is_assumed(pod.uid):
            self._queue.put(pod)

    def _is_pending(self, pod: Pod) -> bool:
        return (
            pod.scheduler_name == self._placing.scheduler_name
            and pod.node_name is None
            and not (pod.finished or pod.terminating or pod.gated)
        )

    async def _place(self) -> None:
        await self._warm_up()
        while True:
            await self._slots.acquire()
            if not self._leadership.leads():
                self._slots.release()
                await self._leadership.wait()
                continue
            pod = self._queue.pop(self._clock.now_s())
            if pod is None or self._event_queue.is_overdue(self._clock.now_s()):
                self._speak()
            if pod is None:
                self._slots.release()
                due_s = self._queue.next_due_s()
                await self._change_or(None if due_s is None else due_s - self._clock.now_s())
            else:
                self._start(pod)
                # The watch needs its turn between two decisions.
                await asyncio.sleep(0)

    async def _warm_up(self) -> None:
        while not self._state.listed:
            await self._change_or(None)
        deadline_s = self._clock.now_s() + self._placing.warm_up_s
        while (now_s := self._clock.now_s()) < deadline_s:
            nodes = [n for n in self._state.nodes().values() if n.ready and not n.unschedulable]
            if nodes and all(self._telemetry.measurements(node.name, now_s) for node in nodes):
                return
            await self._clock.sleep(_WARM_UP_POLL_S)

    async def _change_or(self, timeout_s: float | None) -> None:
        """Wait for a change in the cluster, at most that long."""
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._changed.wait())]
        if timeout_s is not None:
            waits.append(asyncio.ensure_future(self._clock.sleep(max(timeout_s, 0.0))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._changed.clear()

    def _start(self, pod: Pod) -> None:
        """Decide, and let what follows from it happen beside. Nothing of the watch comes
        between the queue's word and the assumption, so both are about the same pod."""
        try:
            work = self._begin(pod)
        except Exception as error:  # noqa: BLE001  # one pod's trouble must not stop the others
            self._slots.release()
            self._give_back(pod, error)
            return
        if work is None:
            self._slots.release()
        else:
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(partial(self._finished, pod))

    def _begin(self, pod: Pod) -> Coroutine[Any, Any, None] | None:
        decision = self._decide(pod)
        if decision.node is None:
            self._queue.mark_unschedulable(pod.uid, self._clock.now_s(), decision.requeue_on)
            self._say(pod, PodEvent("Warning", "FailedScheduling", decision.why))
            return None
        plan = decision.volumes()
        self._state.assume(pod, decision.node, plan)
        return self._bind(pod, decision.node, decision, plan)

    def _finished(self, pod: Pod, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()):
            self._give_back(pod, error)

    def _give_back(self, pod: Pod, error: BaseException) -> None:
        log.error("placing %s failed: %r", pod.key, error, exc_info=error)
        if self._queue.failed(pod.uid, self._clock.now_s()):
            self._give_room_back(pod)
            self._changed.set()

    def _give_room_back(self, pod: Pod) -> None:
        self._queue.move_to_active_or_backoff(self._clock.now_s(), self._state.forget(pod))

    async def _bind(self, pod: Pod, node: str, decision: Decision, plan: VolumePlan | None) -> None:
        try:
            if plan is not None:
                await self._cluster.prepare(plan)
                async with self._without_slot():
                    await self._volumes.until_bound(pod, plan)
            await self._cluster.bind(pod, node)
        except ClusterError as error:
            self._not_bound(pod, error)
        else:
            self._queue.remove(pod.uid)
            self._decisions.set_outcome(pod.key, BOUND)
            message = f"Assigned {pod.key} to {node} by {decision.strategy}: {decision.why}"
            self._say(pod, PodEvent("Normal", "Scheduled", message))

    @asynccontextmanager
    async def _without_slot(self) -> AsyncIterator[None]:
        """A volume can take minutes, in which others may bind."""
        self._slots.release()
        try:
            yield
        finally:
            await self._slots.acquire()

    def _not_bound(self, pod: Pod, error: ClusterError) -> None:
        log.warning("binding %s: %s", pod.key, error)
        self._give_room_back(pod)
        if isinstance(error, InvalidError) and not isinstance(error, ForbiddenError):
            self._queue.mark_unschedulable(pod.uid, self._clock.now_s())
        else:
            # Also after a 409 or 404: the API server says 409 of every trouble that it has with
            # its store while it binds. Only the watch lets a pod go.
            self._queue.failed(pod.uid, self._clock.now_s())
        self._changed.set()
        shown = self._state.pod(pod.uid)
        if shown is not None and shown.node_name is not None:
            return  # only the answer was lost, or another was quicker
        self._decisions.set_outcome(pod.key, f"failed: {error}")
        if pod.uid in self._queue and not isinstance(error, _LEFT_UNSAID):
            self._say(pod, PodEvent("Warning", "FailedBinding", str(error)))

    def _decide(self, pod: Pod) -> Decision:
        now_s = self._clock.now_s()
        if now_s - self._last_placed_s > _RUN_GAP_S:
            self._state.begin_run()
        self._last_placed_s = now_s
        view = self._state.view(self._telemetry, now_s)
        placing = self._placing
        decision = decide(view, pod, placing.filters, placing.strategy, placing.random)
        self._decisions.add(decision, now_s, PENDING, self._options)
        return decision

    def _say(self, pod: Pod, event: PodEvent) -> None:
        self._event_queue.put(pod, event, self._clock.now_s())
        self._changed.set()

    def _speak(self) -> None:
        """Begin to write what is to be said, a few at once."""
        while self._event_queue and len(self._speaking) < _SAYINGS_AT_ONCE:
            task = asyncio.create_task(self._write(*self._event_queue.pop()))
            self._speaking.add(task)
            task.add_done_callback(self._spoken)

    def _spoken(self, task: "asyncio.Task[None]") -> None:
        self._speaking.discard(task)
        self._changed.set()

    async def _write(self, pod: Pod, event: PodEvent) -> None:
        try:
            await self._cluster.record_event(pod, event)
        except ClusterError as error:
            log.warning("event on %s: %s", pod.key, error)

    async def _say_last_words(self) -> None:
        """What was bound in the end is told of as well, unless that takes long."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + _LAST_WORDS_S
        while self._leadership.leads() and (self._event_queue or self._speaking):
            self._speak()
            # Not asyncio.timeout: up to Python 3.11.2 it fails in a task that was cancelled.
            if (left_s := until_s - now_s()) <= 0:
                break
            await asyncio.wait(self._speaking, timeout=left_s)
        for task in self._speaking:
            task.cancel()
        await asyncio.gather(*self._speaking, return_exceptions=True)
