"""Leadline's answers to KEDA: how many replicas of a service its requests need, and never more
than can be placed."""

import asyncio
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from leadline_controller.framework.cycle import Decision, Rule, decide_in_turn
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.strategies.response_time import ResponseTime, replicas_needed

REQUEST_RATE = "request-rate"
RESPONSE_TIME = "response-time"
# Each is a decision of its own; KEDA's maxReplicaCount is 100 by default.
MOST_REPLICAS = 200
_KEPT_S = 1.0
_MOST_KEPT = 256
_LABEL = re.compile(r"([\w./-]{1,317})=([\w.-]{0,63})", re.ASCII)


# Who asks, from wide to narrow: an address, a connection, a namespace.
Client = tuple[Hashable, ...]


class TriggerError(ValueError):
    """The metadata of a trigger can't be used; str() names the field and what was expected."""


class NotReadyError(Exception):
    """There is no answer now; str() is one line for a person."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """What a ScaledObject asks for."""

    namespace: str
    labels: Mapping[str, str]  # of the service's pods
    metric: str  # request-rate or response-time
    requests: str  # the counter of its requests
    target_per_s: float = 1.0  # requests per second for each replica, only with request-rate

    @property
    def target(self) -> float:
        """What one replica is to have of the metric."""
        return self.target_per_s if self.metric == REQUEST_RATE else 1.0


def read_trigger(namespace: str, metadata: Mapping[str, str]) -> Trigger:
    """The trigger of a ScaledObject in this namespace. Raises TriggerError. KEDA adds fields of its
    own to the metadata, so unknown ones are no error."""
    labels = {}
    for pair in metadata.get("pods", "").split(","):
        found = _LABEL.fullmatch(pair.strip())
        if found is None:
            raise TriggerError(
                "pods: expected labels of the service's pods such as app=web,tier=edge"
            )
        labels[found[1]] = found[2]
    metric = metadata.get("metric", REQUEST_RATE)
    if metric not in (REQUEST_RATE, RESPONSE_TIME):
        raise TriggerError(f"metric: expected {REQUEST_RATE} or {RESPONSE_TIME}")
    if not metadata.get("requests"):
        raise TriggerError('requests: expected a counter such as requests_total{service="web"}')
    if metric == RESPONSE_TIME:
        return Trigger(namespace, labels, metric, metadata["requests"])
    try:
        target_per_s = float(metadata.get("target", ""))
    except ValueError:
        target_per_s = math.nan
    if not 1e-6 <= target_per_s <= 1e9:
        raise TriggerError("target: expected requests per second for each replica, such as 50")
    return Trigger(namespace, labels, metric, metadata["requests"], target_per_s)


class ScalerService:
    """Answers triggers from the state of the cluster. requests_per_s: the rate of a counter for
    a client; what it raises if there is none is for the caller. Any controller can answer, whether
    it leads or not: nothing is changed."""

    def __init__(
        self,
        step: DecisionStep,
        requests_per_s: Callable[[str, Client], float],
    ) -> None:
        self._step = step
        self._state = step.state
        self._requests_per_s = requests_per_s
        # One at a time, because each takes up to 200 decisions and the scheduler needs its turns.
        self._placing = asyncio.Lock()
        self._kept: dict[tuple[object, ...], tuple[float, Sequence[Decision]]] = {}

    def is_active(self, trigger: Trigger, client: Client = ()) -> bool:
        """Whether the service is requested at all. client: who asks."""
        return self._rate_per_s(trigger, client) > 0

    def _rate_per_s(self, trigger: Trigger, client: Client) -> float:
        return self._requests_per_s(trigger.requests, (*client, trigger.namespace))

    async def value(self, trigger: Trigger, client: Client = ()) -> float:
        """The metric: with request-rate, requests per second, at most the target for each replica
        that can be placed; with response-time, the number of replicas. client: who asks. Raises
        TriggerError, NotReadyError."""
        if not self._state.listed:
            raise NotReadyError("the API server has not listed its nodes and pods yet")
        rate_per_s = self._rate_per_s(trigger, client)
        if trigger.metric == REQUEST_RATE:
            most = math.ceil(min(rate_per_s / trigger.target_per_s, MOST_REPLICAS))
            placed = await self._placed(trigger, most)
            if placed is None:
                return rate_per_s
            return min(rate_per_s, len(placed) * trigger.target_per_s)
        if not isinstance(self._step.rule.strategy, ResponseTime):
            raise TriggerError(
                f"metric: {RESPONSE_TIME} needs the strategy response-time, and the controller "
                f"has {self._step.rule.strategy.name}; set strategy.name, or use {REQUEST_RATE}"
            )
        placed = await self._placed(trigger, MOST_REPLICAS)
        if placed is None:
            raise NotReadyError("the service has no pod yet whose annotations could be read")
        return float(_needed(placed, rate_per_s))

    async def _placed(self, trigger: Trigger, most: int) -> Sequence[Decision] | None:
        """The decisions about the service's replicas, at most `most`, if there were none yet: those
        that can be placed. None if the service has no pod, so that its demands are unknown."""
        async with self._placing:
            chosen = [
                (pod, node)
                for pod, node in self._state.pods()
                if pod.namespace == trigger.namespace
                and trigger.labels.items() <= pod.labels.items()
                and not (pod.finished or pod.terminating)
            ]
            if not chosen:
                return None
            now_s = self._step.clock.now_s()
            key = (trigger.namespace, *sorted(trigger.labels.items()), most)
            if key in self._kept and now_s - self._kept[key][0] < _KEPT_S:
                return self._kept[key][1]
            # The newest has the present demands, if the service is being updated.
            newest = max(chosen, key=lambda each: (each[0].created_s or 0.0, each[0].name))[0]
            # Its replicas may take the room that is kept for one of them.
            view = self._step.view(newest)
            for pod, node in chosen:
                if (at := view.table.index.get(node or "")) is not None:
                    view = view.without_placement(pod, at)
            placed = await asyncio.to_thread(self._in_turn, view, newest, most)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = now_s, placed
            return placed

    def _in_turn(self, view: ClusterView, pod: Pod, most: int) -> Sequence[Decision]:
        replicas = (
            replace(pod, name=f"replica-{number}", uid=f"replica-{number}", node_name=None)
            for number in range(most)
        )
        # Ties are broken alike each time, so that KEDA gets the same answer.
        rule, placed = Rule(self._step.rule.strategy, self._step.rule.filters), []
        for decision, _ in decide_in_turn(view.for_another_thread(), replicas, rule):
            if decision.node is None:
                break
            placed.append(decision)
        return placed


def _needed(placed: Sequence[Decision], rate_per_s: float) -> int:
    """See replicas_needed; all that can be placed if they are not enough, and one at least."""
    if not placed:
        return 1
    threshold_ms = placed[0].pod.annotations.response_time_ms
    parts = [(each.node or "", each.scores()[each.node or ""][1]) for each in placed]
    if threshold_ms is None or any("profiling_ms" not in each for _, each in parts):
        raise NotReadyError(
            "the service's pods have no annotation leadline.dev/response-time-ms, or no profile"
        )
    replicas = (
        (node, each["ping_ms"], each["profiling_ms"], each.get("sharing_ms", 0.0))
        for node, each in parts
    )
    return replicas_needed(replicas, rate_per_s, threshold_ms) or len(placed)
