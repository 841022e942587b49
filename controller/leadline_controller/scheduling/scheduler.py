"""The scheduler's loop: watch, decide, assume, provision volumes, bind, record an event; back off
on failure. It has no state to save: after a restart the API server knows which pods are bound.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from leadline_controller.cluster.reservations import Reservation
from leadline_controller.framework.batch import BatchStrategy
from leadline_controller.framework.cluster_objects import VolumePlan
from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import SCHEDULER_NAME, Pod
from leadline_controller.framework.ports import (
    Cluster,
    ClusterChange,
    ClusterError,
    ConflictError,
    Event,
    ForbiddenError,
    InvalidError,
    Leadership,
    NotFoundError,
    NotLeadingError,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.history.log import BOUND
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_controller.scheduling.batches import (
    MOST_IN_BATCH,
    Batch,
    BatchPlanner,
    Moves,
    NoMoves,
)
from leadline_controller.scheduling.decision_step import DecisionStep, warnings_about
from leadline_controller.scheduling.event_recorder import EventRecorder
from leadline_controller.scheduling.preemption import Preemption, Preemptor, Requeue
from leadline_controller.scheduling.queue import QueueStatus, SchedulingQueue
from leadline_controller.scheduling.volumes import VolumeWaits
from leadline_controller.waiting import within

log = logging.getLogger(__name__)

BINDINGS_AT_ONCE = 128
_PODS_A_TURN = 8
_TURN_S = 0.004
_WARM_UP_POLL_S = 0.2
_BANDWIDTH_POLL_S = 1.0
# A move waits for the eviction, the end of the pod and its replacement, 300 s each by default.
_HELD_S = 900.0
# These get no event: most often the watch soon shows that another bound the pod or deleted it.
_WITHOUT_EVENT = (ConflictError, NotLeadingError, NotFoundError)


class Scheduler:
    """Schedules the pods of one schedulerName while it leads. Else it only follows the watch, so
    that it can take over at once.

    on_change: called with every change, after the state has it. batch_window_s: for how long
    pending pods are collected for a batch strategy; 0 decides pod by pod. preemption: whether pods
    are evicted to make room for one of higher priority. observe: told how many seconds a pod took
    in the phase queue, decide, preempt or bind, or a batch in plan. on_preempted: told how many
    victims a preemption evicted.
    """

    def __init__(
        self,
        cluster: Cluster,
        step: DecisionStep,
        leadership: Leadership = SOLE_LEADER,
        on_change: Callable[[ClusterChange], None] = lambda _: None,
        moves: Moves = NoMoves(),  # noqa: B008  # it has no state
        queue: SchedulingQueue | None = None,
        *,
        scheduler_name: str = SCHEDULER_NAME,
        batch_window_s: float = 0.0,
        preemption: bool = False,
        observe: Callable[[str, float], None] = lambda _phase, _s: None,
        on_preempted: Callable[[int], None] = lambda _victims: None,
    ) -> None:
        self._cluster = cluster
        self._step = step
        self._state = step.state
        self._decisions = step.decisions
        self._clock = step.clock
        self._leadership = leadership
        self._on_change = on_change
        self._scheduler_name = scheduler_name
        self._observe = observe
        self._queue = SchedulingQueue() if queue is None else queue
        self._volumes = VolumeWaits(self._state, self._clock)
        self._changed = self._queue.changed
        self._slots = asyncio.Semaphore(BINDINGS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._events = EventRecorder(cluster, self._clock, self._changed.set)
        self._batches: BatchPlanner | None = None
        self._batch_window_s = batch_window_s
        if batch_window_s > 0 and isinstance(step.rule.strategy, BatchStrategy):
            self._batches = BatchPlanner(self._state, step.rule, moves)
        self._preemptor: Preemptor | None = None
        if preemption:
            self._preemptor = Preemptor(
                cluster, step, self._tell, scheduler_name, observe, on_preempted
            )
        self._waits: set[asyncio.Task[None]] = set()  # for moves; they can take minutes
        self._alone: set[str] = set()  # uids of pods that waited for moves in vain

    async def run(self) -> None:
        """Run until cancelled. Then finish the bindings in progress, and leave the pods pending
        whose volumes are not bound yet."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch())
                group.create_task(self._schedule())
                group.create_task(self._watch_bandwidth())
        finally:
            self._volumes.stop()
            for wait in self._waits:
                wait.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._events.flush(self._leadership.leads)

    def queue(self) -> QueueStatus:
        """How many pods are in each state."""
        return self._queue.status()

    def _requeue(self, events: ClusterEvent) -> None:
        self._queue.requeue(events, self._clock.now_s())

    async def _watch(self) -> None:
        async with aclosing(self._cluster.watch()) as changes:
            async for change in changes:
                events = self._state.apply(change)
                self._on_change(change)
                self._decisions.observe(change)
                self._update_queue(change)
                self._volumes.observe(change)
                self._queue.move_to_active_or_backoff(self._clock.now_s(), events)
                self._changed.set()

    async def _watch_bandwidth(self) -> None:
        """Measurements come from another thread and not from the cluster's watch, so poll."""
        seen = self._step.telemetry.bandwidth_changes
        while True:
            await self._clock.sleep(_BANDWIDTH_POLL_S)
            if seen != (seen := self._step.telemetry.bandwidth_changes):
                self._queue.move_to_active_or_backoff(self._clock.now_s(), ClusterEvent.BANDWIDTH)
                self._changed.set()

    def _update_queue(self, change: ClusterChange) -> None:
        match change:
            case Relisted(pods=pods):
                uids = {pod.uid for pod in pods}
                self._queue.keep_only(uids)
                if self._preemptor is not None:
                    self._preemptor.keep_only(uids)
                for pod in pods:
                    self._update_pod(pod)
            case PodChanged(pod):
                self._update_pod(pod)
            case PodDeleted(pod):
                self._queue.remove(pod.uid)
                self._alone.discard(pod.uid)
                if self._preemptor is not None:
                    self._preemptor.observe_deleted(pod.uid)

    def _update_pod(self, pod: Pod) -> None:
        if pod.scheduler_name != self._scheduler_name or not pod.is_pending:
            self._queue.remove(pod.uid)
        elif pod.uid in self._queue or not self._state.is_assumed(pod.uid):
            self._queue.put(pod, self._clock.now_s())

    async def _schedule(self) -> None:
        while not self._state.listed:
            await self._wait_for_change(None)
        while self._step.not_ready_reason() is not None:
            await self._clock.sleep(_WARM_UP_POLL_S)
        started, turn_ends_s = 0, float("-inf")
        while True:
            await self._slots.acquire()
            if not self._leadership.leads():
                self._slots.release()
                await self._leadership.wait()
                continue
            pod = self._queue.pop(self._clock.now_s())
            if pod is not None and self._batches is not None:
                self._slots.release()
                await self._schedule_batch(pod, self._batches)
                continue
            if pod is None or self._events.is_overdue():
                self._events.write()
            if pod is None:
                self._slots.release()
                due_s = self._queue.next_due_s()
                timeout_s = None if due_s is None else due_s - self._clock.now_s()
                await self._wait_for_change(timeout_s)
            else:
                self._start(pod)
                started += 1
                # The watch needs its turn, but each costs system calls, and the bindings of one
                # turn are sent together.
                if started >= _PODS_A_TURN or self._clock.now_s() >= turn_ends_s:
                    await asyncio.sleep(0)
                    started, turn_ends_s = 0, self._clock.now_s() + _TURN_S

    async def _schedule_batch(self, first: Pod, batches: BatchPlanner) -> None:
        """Collect pods for the window, plan them together, and decide on each as planned. A thread
        plans, so each pod is looked at again: the cluster may have changed."""
        uids = [first.uid]
        if self._state.reservations.of(first) is None:  # else its place is planned already
            await self._clock.sleep(self._batch_window_s)
            while len(uids) < MOST_IN_BATCH and (pod := self._queue.pop(self._clock.now_s())):
                uids.append(pod.uid)
        pods = [pod for pod in self._still_in_progress(uids) if pod.uid not in self._alone]
        self._alone.difference_update(uids)
        batch = Batch()
        if self._leadership.leads():
            view, begun_s = self._step.view_in_run(), self._clock.now_s()
            try:
                batch = await batches.plan(view, pods)
                self._observe("plan", self._clock.now_s() - begun_s)
            except Exception as error:  # the pods can be placed one by one
                log.error("planning %d pods failed: %r", len(pods), error, exc_info=error)
        waiting = batch.waiting
        if batch.moved is not None:
            for pod in self._still_in_progress(waiting):
                self._hold(pod, batch)
            task = asyncio.create_task(self._release(waiting, batch.moved, batch.steps))
            self._waits.add(task)
            task.add_done_callback(self._waits.discard)
        for uid in uids:
            await self._slots.acquire()
            pod = self._queue.in_progress(uid)
            if pod is None or not self._leadership.leads():
                self._slots.release()
                self._queue.failed(uid, self._clock.now_s())
            else:
                self._start(pod, batch)
                await asyncio.sleep(0)

    def _still_in_progress(self, uids: Iterable[str]) -> list[Pod]:
        return [pod for uid in uids if (pod := self._queue.in_progress(uid)) is not None]

    def _hold(self, pod: Pod, batch: Batch) -> None:
        """Keep the pod's place, and the pod until the moves have made room there."""
        node, why = batch.nodes[pod.key]
        self._queue.hold(pod.uid)
        self._state.reserve(Reservation(pod, node, None, why))
        message = f"{node} is planned for it, after {batch.steps} moves that make room: {why}"
        self._tell(pod, Event("Normal", "WaitingForMoves", message))

    async def _release(self, uids: Iterable[str], moved: Awaitable[bool], steps: int) -> None:
        """Place the pods when the moves are done; each alone, without the room that was kept for
        it, if one failed or they take too long."""
        is_done = False
        moving = asyncio.ensure_future(moved)
        try:
            is_done = await within(self._clock, moving, _HELD_S * steps) and moving.result()
        finally:
            for uid in uids:
                if uid in self._queue and not is_done:
                    self._alone.add(uid)
                    self._requeue(self._state.unreserve(uid))
                self._queue.end_hold(uid, self._clock.now_s())
            self._changed.set()

    async def _wait_for_change(self, timeout_s: float | None) -> None:
        if timeout_s is None:
            await self._changed.wait()
        elif not self._changed.is_set():
            await within(self._clock, self._changed.wait(), max(timeout_s, 0.0))
        self._changed.clear()

    def _start(self, pod: Pod, batch: Batch | None = None) -> None:
        """Decide, and bind in a task. No await may come between the queue's pop and the
        assumption, so that both are about the same version of the pod."""
        binding = None
        try:
            binding = self._assume(pod, batch)
        except Exception as error:  # noqa: BLE001  # an error with one pod must not stop the others
            self._retry(pod, error)
        if binding is None:
            self._slots.release()
        else:
            task = asyncio.create_task(binding)
            self._tasks.add(task)
            task.add_done_callback(partial(self._finished, pod))

    def _assume(self, pod: Pod, batch: Batch | None) -> Coroutine[Any, Any, None] | None:
        """Decide, and assume the pod on its node. Returns the binding; None without a node."""
        self._observe("queue", self._queue.waited_s(pod.uid))
        begun_s = self._clock.now_s()
        pod = self._state.pod(pod.uid) or pod  # profiles of services may have changed since
        view = self._step.view_in_run(pod)
        planned = batch.nodes.get(pod.key) if batch else None
        if planned is None:
            decision = self._step.decide(view, pod)
        else:
            decision = self._step.decide_as_planned(view, pod, *planned)
        preemption = None
        if decision.node is None and self._preemptor is not None:
            preemption = self._preemptor.plan(decision)
            if preemption is not None:
                decision = replace(decision, why=f"{decision.why}; {preemption.why}")
        self._step.record(decision)
        self._observe("decide", self._clock.now_s() - begun_s)
        for warning in warnings_about(decision):
            self._tell(pod, warning)
        if decision.node is None:
            # The room that moves made for it is no room for it after all.
            self._requeue(self._state.unreserve_own(pod.uid))
            self._tell(pod, Event("Warning", "FailedScheduling", decision.why))
            if preemption is not None and self._preemptor is not None:
                # At once, so that no other pod counts on the room.
                self._requeue(self._state.nominate(pod.uid, preemption.node))
                return self._preempt(self._preemptor, preemption, decision)
            self._queue.mark_unschedulable(pod.uid, self._clock.now_s(), decision.requeue_on)
            return None
        plan = decision.volumes()
        charge = self._step.charge(view, pod, decision.node)
        self._state.assume(pod, decision.node, plan, charge)
        self._requeue(self._state.unreserve_own(pod.uid))  # that may have been on another node
        return self._bind(pod, decision.node, decision, plan)

    async def _preempt(
        self, preemptor: Preemptor, preemption: Preemption, decision: Decision
    ) -> None:
        """Make room for a pod, which stays in progress meanwhile."""
        uid = preemption.pod.uid
        when = Requeue.BACK_OFF
        try:
            when = await preemptor.carry_out(preemption)
        except ForbiddenError as error:  # it would be forbidden again
            when = Requeue.ON_EVENT
            preemptor.refused(preemption.pod)
            self._tell(preemption.pod, Event("Warning", "FailedPreemption", str(error)))
        except ClusterError as error:
            log.warning("preemption for %s: %s", preemption.pod.key, error)
        if self._state.nominations.of(uid) is None:
            # Other pods may have been waiting for room that is kept no longer.
            self._requeue(ClusterEvent.RESOURCES_FREED)
        now_s = self._clock.now_s()
        if when is Requeue.ON_EVENT:
            self._queue.mark_unschedulable(uid, now_s, decision.requeue_on)
        elif when is Requeue.AT_ONCE:
            self._queue.hold(uid)
            self._queue.end_hold(uid, now_s)
        else:
            self._queue.failed(uid, now_s)
        self._changed.set()

    def _tell(self, pod: Pod, event: Event) -> None:
        self._events.put(pod, event)
        self._changed.set()

    def _finished(self, pod: Pod, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()):
            self._retry(pod, error)

    def _retry(self, pod: Pod, error: BaseException) -> None:
        log.error("placing %s failed: %r", pod.key, error, exc_info=error)
        if self._queue.failed(pod.uid, self._clock.now_s()):
            self._forget(pod)
            self._changed.set()

    def _forget(self, pod: Pod) -> None:
        self._queue.move_to_active_or_backoff(self._clock.now_s(), self._state.forget(pod))

    async def _bind(self, pod: Pod, node: str, decision: Decision, plan: VolumePlan | None) -> None:
        try:
            if plan is not None:
                await self._cluster.prepare(plan)
                self._slots.release()  # for the minutes that a volume can take
                try:
                    await self._volumes.until_bound(pod, plan)
                finally:
                    await self._slots.acquire()
            begun_s = self._clock.now_s()
            await self._cluster.bind(pod, node)
            self._observe("bind", self._clock.now_s() - begun_s)
        except ClusterError as error:
            self._binding_failed(pod, error)
        else:
            self._queue.remove(pod.uid)
            self._decisions.set_outcome(pod.key, BOUND)
            message = f"Assigned {pod.key} to {node} by {decision.strategy}: {decision.why}"
            self._tell(pod, Event("Normal", "Scheduled", message))

    def _binding_failed(self, pod: Pod, error: ClusterError) -> None:
        log.warning("binding %s: %s", pod.key, error)
        self._forget(pod)
        if isinstance(error, InvalidError) and not isinstance(error, ForbiddenError):
            self._queue.mark_unschedulable(pod.uid, self._clock.now_s())
        else:
            # Also after a 409 or 404, because the API server answers a binding with 409 for any
            # error of its store. Only the watch removes a pod from the queue.
            self._queue.failed(pod.uid, self._clock.now_s())
        self._changed.set()
        shown = self._state.pod(pod.uid)
        if shown is not None and shown.node_name is not None:
            return  # only the answer was lost, or another scheduler was quicker
        self._decisions.set_outcome(pod.key, f"failed: {error}")
        if pod.uid in self._queue and not isinstance(error, _WITHOUT_EVENT):
            self._tell(pod, Event("Warning", "FailedBinding", str(error)))
