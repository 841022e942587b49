"""Keeps on replicas which of them a scale-down removes first.

Of a workload that asks for it (`leadline.dev/deletion-order`), the one whose place the strategy
scores worst now. Of a service with a response time, the one created last (Alqahtani, Toosi,
Algorithm 1, lines 20-24). A ReplicaSet does neither by itself: it compares ages by powers of two,
and leaves the rest to chance. It removes the lowest `controller.kubernetes.io/pod-deletion-cost`
first. A replica without the annotation counts as 0, which is less than all of ours.
"""

import asyncio
import json
import logging
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.cluster_objects import NamespaceLabels
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    Cluster,
    ClusterChange,
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Leadership,
    NotFoundError,
    ObjectChanged,
    PodChanged,
    Relisted,
)
from leadline_controller.framework.services import Service, service_of
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.annotations import DELETION_ORDER, AnnotationError, read_flag
from leadline_controller.kubeobjects.manifest import DELETION_COST, GOES_FIRST
from leadline_controller.logs import ErrorLog
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.scheduling.deletion_costs import Replica, costs, is_ours
from leadline_controller.strategies.response_time import ResponseTime
from leadline_controller.waiting import within

log = logging.getLogger(__name__)

PREDICTED_MS = "leadline.dev/predicted-ms"
_MOST_PREDICTIONS = 64
_GATHER_S = 0.2
_RETRY_S = 5.0
# Between two rankings of all workloads, and between two new costs of one replica.
_AGAIN_S = 60.0
# Of rest for each scored board, which takes about a twentieth of it.
_REST_S = 0.01
_MAY = "apply what `leadline kube manifests --deletion-cost` prints"
# The owners whose controllers read deletion costs.
_OWNERS = ("ReplicaSet", "ReplicationController")


def removed_as(state: ClusterState, key: str) -> tuple[int, int]:
    """As which of how many replicas a scale-down removes the pod with this key; zeros if it has no
    cost by which Leadline keeps an order."""
    pods = [pod for pod, _ in state.pods() if is_ours(pod.deletion_cost or 0)]
    service = next((service_of(pod) for pod in pods if pod.key == key), None)
    alike = [] if service is None else [pod for pod in pods if service_of(pod) == service]
    order = [pod.key for pod in sorted(alike, key=lambda pod: pod.deletion_cost or 0)]
    return (order.index(key) + 1, len(order)) if order else (0, 0)


class ReplicaOrder:
    """Annotates replicas while this controller leads. step: whose strategy scores them, as the
    cluster is then. thresholds: whether services with a response time take part unasked.

    A workload of which a replica has a cost that somebody else gave it is left alone.
    """

    def __init__(
        self, cluster: Cluster, step: DecisionStep, leadership: Leadership, *, thresholds: bool
    ) -> None:
        self._cluster = cluster
        self._step = step
        self._state = step.state
        self._leadership = leadership
        self._clock = step.clock
        self._thresholds = thresholds
        self._changed = asyncio.Event()
        self._errors = ErrorLog(log, logging.WARNING)
        self._refused: set[str] = set()  # the uids of the pods that the API server refused
        self._told: set[str] = set()  # sentences about what the last round found
        # What was written within _AGAIN_S, by the pod's uid: when, and the cost.
        self._written: dict[str, tuple[float, int]] = {}
        # What another leader has written may be as young as this one's term.
        self._began_s = self._all_s = self._clock.now_s()
        self._scored = 0

    def observe(self, change: ClusterChange) -> None:
        """Called with every change, after the state has it."""
        match change:
            case Relisted() | ObjectChanged(NamespaceLabels()):
                self._changed.set()
            case PodChanged(pod) if pod.deletion_cost is None and self._service_of(pod):
                self._changed.set()

    async def run(self) -> None:
        """Annotate until cancelled. An error must not end it."""
        while True:
            left_s = self._all_s + _AGAIN_S - self._clock.now_s()
            await within(self._clock, self._changed.wait(), left_s)
            # For the replicas that start together, and so that other work has most of the time.
            await self._clock.sleep(_GATHER_S + self._scored * _REST_S)
            if not self._leadership.leads():
                await self._leadership.wait()
                self._began_s = self._clock.now_s()
            self._changed.clear()
            try:
                again = await self._round()
            except Exception as error:  # such as of a strategy that somebody added
                log.error("replicas are not put in order: %r", error, exc_info=error)
                again = True
            if again:
                await self._clock.sleep(_RETRY_S)
                self._changed.set()

    async def _round(self) -> bool:
        """Annotate the replicas that are due. Returns whether to try again soon."""
        refused, again = set[str](), False
        async for pod, cost in self._due(self._clock.now_s()):
            if not self._leadership.leads():
                return True
            try:
                await self._cluster.annotate(pod, self._annotations(pod, cost))
                self._written[pod.uid] = self._clock.now_s(), cost
                self._errors.succeeded()
            except (ConflictError, NotFoundError):
                continue  # it was deleted
            except InvalidError as error:
                # Another pod may be allowed. A right may come later, a valid pod only by a change.
                refused.add(pod.uid)
                again |= isinstance(error, ForbiddenError)
                if pod.uid not in self._refused:
                    hint = _MAY if isinstance(error, ForbiddenError) else "going on with the others"
                    log.warning("annotating %s: %s; %s", pod.key, error, hint)
            except ClusterError as error:
                self._errors.failed(str(error), "annotating %s: %s; trying again", pod.key)
                self._refused |= refused
                return True
        self._refused = refused
        return again

    async def _due(self, now_s: float) -> AsyncIterator[tuple[Pod, int]]:
        """The replicas to annotate and their costs, those that stay longest first."""
        if is_all := now_s - self._all_s >= _AGAIN_S:
            self._all_s = now_s
        recent = ((uid, each) for uid, each in self._written.items() if now_s - each[0] < _AGAIN_S)
        self._written, self._scored = dict(recent), 0
        services = [
            pods
            for pods in self._services()
            if is_all or any(self._cost(pod) is None for pod in pods)
        ]
        if not services:
            return
        view = self._step.view()
        # Those of this run of decisions stand already.
        view = replace(view, placed_in_run=np.zeros(len(view), dtype=np.int64))
        for pods in services:
            for pod, cost in await self._ranked(view, pods):
                has, shown = self._cost(pod), self._state.pod(pod.uid)
                if shown is None or shown.deletion_cost != pod.deletion_cost:
                    continue  # somebody was faster
                last_s = self._written.get(pod.uid, (self._began_s, 0))[0]
                if has is None or (has != cost and now_s - last_s >= _AGAIN_S):
                    yield pod, cost

    def _services(self) -> list[list[Pod]]:
        """The replicas that take part, by service."""
        services: dict[Service, list[Pod]] = defaultdict(list)
        left_alone, told, moves = set[Service](), set[str](), self._state.reservations
        for pod, _ in self._state.pods():
            if pod.deletion_cost == GOES_FIRST or moves.is_moving(pod.uid):
                continue  # a move takes it away; its replacement stays
            if pod.deletion_cost is not None and moves.replaced_by(pod.uid) is not None:
                continue  # until its move ends, which may take it away again
            if (service := self._service_of(pod, told)) is None:
                continue
            services[service].append(pod)
            if pod.deletion_cost is not None and not is_ours(pod.deletion_cost):
                left_alone.add(service)
                what = f"pod {pod.key} has a deletion cost that is not Leadline's"
                told.add(f"{what}, {pod.deletion_cost}: its workload is left alone")
        for sentence in told - self._told:
            log.warning("%s", sentence)
        self._told = told
        return [pods for service, pods in services.items() if service not in left_alone]

    def _service_of(self, pod: Pod, told: set[str] | None = None) -> Service | None:
        """The service of a replica that takes part, None for other pods. told: gets a sentence
        about a namespace that does not say whether it asks."""
        if pod.node_name is None or pod.finished or pod.terminating:
            return None
        asks, space = pod.annotations.deletion_order, self._state.objects.namespace(pod.namespace)
        if asks is None and space is not None and space.deletion_order:
            try:
                what = f"namespace {pod.namespace}: annotation {DELETION_ORDER}"
                asks = read_flag(what, space.deletion_order)
            except AnnotationError as error:
                if told is not None:
                    told.add(f"{error}; it counts as false")
        if asks and pod.annotations.response_time_ms is None:
            asks = pod.owner is not None and pod.owner.kind in _OWNERS
        if asks is None:
            asks = self._thresholds and pod.annotations.response_time_ms is not None
        return service_of(pod) if asks else None

    def _cost(self, pod: Pod) -> int | None:
        """The cost that a replica has, also if the watch has not shown it yet."""
        written = self._written.get(pod.uid)
        return pod.deletion_cost if written is None else written[1]

    async def _ranked(self, view: ClusterView, pods: Sequence[Pod]) -> list[tuple[Pod, int]]:
        """The replicas of a service with the costs that they should have, the highest first."""
        replicas, tolerance = [self._replica(pod) for pod in pods], 0.0
        if all(pod.annotations.response_time_ms is None for pod in pods):
            replicas, tolerance = await self._scored_now(view, replicas)
        return [(each.pod, cost) for each, cost in costs(replicas, tolerance)]

    def _replica(self, pod: Pod) -> Replica:
        cost, record = self._cost(pod), self._step.decisions.get(pod.key)
        # A replacement has the place of the pod that was moved, and with it that one's age.
        if cost is None and (moved := self._state.reservations.replaced_by(pod.uid)) is not None:
            cost = moved.deletion_cost
        # The number of a record also grows with its outcome, so it counts only in a tie.
        decided = (record.decided_s, record.number) if record else (0.0, 0)
        return Replica(pod, cost, (pod.created_s or 0.0, *decided, pod.name))

    async def _scored_now(
        self, view: ClusterView, replicas: Sequence[Replica]
    ) -> tuple[list[Replica], float]:
        """The replicas with the strategy's scores of their nodes, each as if it were to be placed
        now on one of the nodes that they are on, and by how much nearly equal scores differ. Pods
        come between two scores, which take a millisecond each."""
        strategy, index = self._step.rule.strategy, view.table.index
        found, tolerance = list[Replica](), 0.0
        on = {each.pod.uid: index.get(each.pod.node_name or "", -1) for each in replicas}
        candidates = np.unique([at for at in on.values() if at >= 0])
        known: dict[object, float] = {}
        for each in replicas:
            pod, at = each.pod, on[each.pod.uid]
            alike = at, pod.owner, tuple(sorted(pod.requests.items()))
            if at >= 0 and alike not in known:
                scores = strategy.score(view.without_placement(pod, at), pod, candidates)
                total = float(scores.total[np.searchsorted(candidates, at)])
                known[alike] = -total if strategy.better == "lower" else total
                tolerance = max(tolerance, scores.leeway.tolerance)
                self._scored += 1
                await asyncio.sleep(0)
            score = known.get(alike, math.nan)
            found.append(replace(each, score=-math.inf if math.isnan(score) else score))
        return found, tolerance

    def _annotations(self, pod: Pod, cost: int) -> Mapping[str, str]:
        """The cost, and the predictions for the best nodes as the decision had them."""
        annotations = {DELETION_COST: str(cost)}
        record = self._step.decisions.get(pod.key)
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
