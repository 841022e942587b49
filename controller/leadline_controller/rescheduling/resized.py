"""Acts on pods that were resized in place and whose kubelets cannot do it: DACS, Section 6.2."""

import logging
from collections.abc import Mapping
from contextlib import suppress

from leadline_controller.framework.model import SCHEDULER_NAME, Pod
from leadline_controller.framework.ports import (
    Cluster,
    ClusterChange,
    ClusterError,
    Event,
    Leadership,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.rescheduling.demand import DemandAnswer, answer_demand
from leadline_controller.rescheduling.plan import Plan, PlannedMove
from leadline_controller.rescheduling.rescheduler import Rescheduler
from leadline_controller.scheduling.decision_step import DecisionStep

log = logging.getLogger(__name__)

# A kubelet may say for a moment that it defers a resize which it then carries out.
_SETTLED_S = 2.0
_AGAIN_S = 60.0
_POLL_S = 0.5


class ResizedPods:
    """Decides about each pod whose kubelet cannot carry out a resize, a moment after the watch
    shows it and again every minute. It submits a plan of one move where rescheduling is automatic;
    else an event on the pod says what it would do."""

    def __init__(
        self,
        cluster: Cluster,
        rescheduler: Rescheduler,
        step: DecisionStep,
        leadership: Leadership,
        scheduler_name: str = SCHEDULER_NAME,
    ) -> None:
        self._cluster = cluster
        self._rescheduler = rescheduler
        self._step = step
        self._state = step.state
        self._clock = step.clock
        self._leadership = leadership
        self._scheduler_name = scheduler_name
        self._due_s: dict[str, float] = {}  # by uid
        self._said: dict[str, str] = {}

    def observe(self, change: ClusterChange) -> None:
        """Learn from the watch which pods have a resize that waits."""
        match change:
            case Relisted(pods=pods):
                self._due_s = {uid: due for uid, due in self._due_s.items() if self._waits(uid)}
                for pod in pods:
                    self._observe_pod(pod)
            case PodChanged(pod):
                self._observe_pod(pod)
            case PodDeleted(pod):
                self._forget(pod.uid)

    async def run(self) -> None:
        """Act on what is due, until cancelled. An error with one pod must not end it."""
        while True:
            await self._clock.sleep(_POLL_S)
            if not self._leadership.leads():
                continue
            now_s = self._clock.now_s()
            for uid in [uid for uid, due_s in self._due_s.items() if due_s <= now_s]:
                self._due_s[uid] = now_s + _AGAIN_S
                try:
                    await self._act(uid)
                except Exception as error:
                    log.error("a resized pod could not be looked at: %r", error, exc_info=error)

    def _observe_pod(self, pod: Pod) -> None:
        if pod.resize is None or pod.node_name is None or pod.finished or pod.terminating:
            self._forget(pod.uid)
        elif pod.scheduler_name == self._scheduler_name:
            self._due_s.setdefault(pod.uid, self._clock.now_s() + _SETTLED_S)

    def _forget(self, uid: str) -> None:
        self._due_s.pop(uid, None)
        self._said.pop(uid, None)

    def _waits(self, uid: str) -> bool:
        pod = self._state.pod(uid)
        return pod is not None and pod.resize is not None

    async def _act(self, uid: str) -> None:
        pod = self._state.pod(uid)
        if pod is None:
            self._forget(uid)
            return
        found = answer_demand(self._step.view(pod), pod, self._step.rule)
        if found is None:
            return
        if found.target is None:
            await self._say(pod, f"It stays on {pod.node_name}: {found.why}")
        elif (mode := self._rescheduler.settings.mode) != "automatic":
            why = f"rescheduling is {mode}, not automatic"
            await self._say(pod, f"It would move to {found.target}: {found.why}; {why}")
        elif not self._rescheduler.is_busy:
            await self._move(pod, found)

    async def _move(self, pod: Pod, found: DemandAnswer) -> None:
        source, target = pod.node_name or "", found.target or ""
        move = PlannedMove(found.pod, source, target, found.why)
        strategy = self._step.rule.strategy
        before = {each.uid for each, _ in self._state.pods()}
        (outcome,) = await self._rescheduler.submit(Plan(strategy.name, strategy.better, (move,)))
        if outcome.ending != "moved":
            ended = f"{outcome.ending}: {outcome.why}"
            await self._say(pod, f"It does not move to {target} now ({ended}): {found.why}")
            return
        await self._resize_replacement(pod, target, before)

    async def _resize_replacement(self, pod: Pod, target: str, before: set[str]) -> None:
        """The owner made the replacement as its template says; ask for the new size again."""
        resize = pod.resize
        assert resize is not None  # noqa: S101  # else it had not moved
        for each, node in self._state.pods():
            is_new = each.uid not in before and node == target and each.owner == pod.owner
            if is_new and _has_less(each.requests, resize.wanted):
                try:
                    await self._cluster.resize(each, resize.containers)
                except ClusterError as error:
                    log.warning("resizing %s: %s", each.key, error)
                return

    async def _say(self, pod: Pod, message: str) -> None:
        if self._said.get(pod.uid) == message:
            return
        self._said[pod.uid] = message
        event = Event("Normal", "ChangedDemand", message[:1024])
        with suppress(ClusterError):
            await self._cluster.record_event(pod, event)


def _has_less(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return any(one.get(name, 0) < amount for name, amount in other.items())
