"""Keeps on the replicas of response-time services which of them a scale-down removes first.

Alqahtani, Toosi, Algorithm 1, lines 20-24: the replica created last. A ReplicaSet does not do that
by itself: it compares ages by powers of two, and leaves the rest to chance. It removes the lowest
`controller.kubernetes.io/pod-deletion-cost` first, so each new replica gets one less than those
before it. A replica without the annotation counts as 0, which is less than all of ours: the newest
is right even before it is annotated.
"""

import asyncio
import json
import logging
import math
from collections.abc import Iterator, Mapping

from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.framework.model import Pod
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
    PodChanged,
    Relisted,
)
from leadline_controller.kubeobjects.manifest import DELETION_COST, GOES_FIRST
from leadline_controller.logs import ErrorLog
from leadline_controller.strategies.response_time import ResponseTime
from leadline_controller.strategies.shared.services import Service, service_of

log = logging.getLogger(__name__)

PREDICTED_MS = "leadline.dev/predicted-ms"
_FIRST_COST = 1_000_000_000
_LOWEST_COST = -(2**31)
_MOST_PREDICTIONS = 64
_GATHER_S = 0.2
_RETRY_S = 5.0


class ReplicaOrder:
    """Annotates replicas while this controller leads. Each replica is annotated once; a cost that
    somebody else gave it stays."""

    def __init__(
        self,
        cluster: Cluster,
        state: ClusterState,
        decisions: DecisionLog,
        leadership: Leadership,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._decisions = decisions
        self._leadership = leadership
        self._clock = clock
        self._changed = asyncio.Event()
        self._errors = ErrorLog(log, logging.WARNING)
        self._refused: set[str] = set()  # the uids of the pods that the API server refused

    def observe(self, change: ClusterChange) -> None:
        """Called with every change, after the state has it."""
        match change:
            case Relisted():
                self._changed.set()
            case PodChanged(pod) if _wants_cost(pod):
                self._changed.set()

    async def run(self) -> None:
        """Annotate until cancelled. An error must not end it."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(_GATHER_S)  # for the replicas that start together
            if not self._leadership.leads():
                await self._leadership.wait()
            self._changed.clear()
            if await self._annotate_due():
                await self._clock.sleep(_RETRY_S)
                self._changed.set()

    async def _annotate_due(self) -> bool:
        """Annotate the replicas that are due. Returns whether to try again soon."""
        refused, again = set[str](), False
        for pod, cost in due(self._state, self._decisions):
            try:
                await self._cluster.annotate(pod, self._annotations(pod, cost))
                self._errors.succeeded()
            except (ConflictError, NotFoundError):
                continue  # it was deleted
            except InvalidError as error:
                # Another pod may be allowed. A right may come later, a valid pod only by a change.
                refused.add(pod.uid)
                again |= isinstance(error, ForbiddenError)
                if pod.uid not in self._refused:
                    log.warning("annotating %s: %s; going on with the others", pod.key, error)
            except ClusterError as error:
                self._errors.failed(str(error), "annotating %s: %s; trying again", pod.key)
                self._refused |= refused
                return True
        self._refused = refused
        return again

    def _annotations(self, pod: Pod, cost: int) -> Mapping[str, str]:
        """The cost, and the predictions for the best nodes as the decision had them."""
        annotations = {DELETION_COST: str(cost)}
        record = self._decisions.get(pod.key)
        if (
            record is not None
            and (record.uid, record.node) == (pod.uid, pod.node_name)
            and record.strategy == ResponseTime.name
        ):
            explained = record.explain()
            known_ms = [
                (ms, node)
                for ms, node in zip(explained.total.tolist(), explained.nodes, strict=True)
                if not math.isnan(ms)
            ]
            best = sorted(known_ms)[:_MOST_PREDICTIONS]
            annotations[PREDICTED_MS] = json.dumps({node: round(ms, 3) for ms, node in best})
        return annotations


def due(state: ClusterState, decisions: DecisionLog) -> Iterator[tuple[Pod, int]]:
    """The replicas to annotate and their costs, the oldest replica of each service first. Of those
    created in the same second, the one that was decided on first is the older. A service of which
    the watch does not show a binding yet has to wait, because that replica may be an older one."""
    lowest: dict[Service, int] = {}
    unseen: set[Service] = set()
    missing: list[tuple[float, tuple[float, int], str, Pod, Service]] = []
    for pod, node in state.pods():
        service = service_of(pod)
        if service is None or node is None or pod.finished or pod.terminating:
            continue
        if pod.node_name is None:
            unseen.add(service)
            continue
        if pod.deletion_cost == GOES_FIRST:
            continue  # a move takes it away; its replacement stays
        if pod.deletion_cost is not None:
            lowest[service] = min(pod.deletion_cost, lowest.get(service, _FIRST_COST + 1))
        elif _wants_cost(pod):
            record = decisions.get(pod.key)
            # The number of a record also grows with its outcome, so it counts only in a tie.
            decided = (record.decided_s, record.number) if record else (0.0, 0)
            missing.append((pod.created_s or 0.0, decided, pod.name, pod, service))
    for _, _, _, pod, service in sorted(missing, key=lambda each: each[:3]):
        if service in unseen:
            continue
        cost = max(lowest.get(service, _FIRST_COST + 1) - 1, _LOWEST_COST)
        lowest[service] = cost
        yield pod, cost


def _wants_cost(pod: Pod) -> bool:
    return (
        pod.annotations.response_time_ms is not None
        and pod.deletion_cost is None
        and pod.node_name is not None
        and not (pod.finished or pod.terminating)
        and service_of(pod) is not None
    )
