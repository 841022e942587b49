"""kubedsm: batches placed for the edge, and running pods moved between edge and cloud.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters". Its algorithms are in this package: in decision.py 1 immediateSchedule, 2 suggest,
3 makeDecision, 4 bestFit, 5 freeEdgeAsNeeded and 7 applyDecision; in packing.py 6 reorderEdge and
8 match.
"""

from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from leadline_controller.framework.batch import Allowed, BatchPlan, BatchStrategy, Move, Running
from leadline_controller.framework.cycle import Scores, best
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.options import OptionError, choice, option
from leadline_controller.framework.services import service_of
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.kubedsm.decision import (
    AppliedDecision,
    EdgePod,
    EdgeState,
    Quality,
    immediate_schedule,
    pod_size,
    suggest,
)
from leadline_controller.strategies.kubedsm.packing import (
    NO_NODE,
    TOLERANCE,
    Edge,
    fits_in,
    used_product,
)
from leadline_controller.strategies.shared.capacity import is_cloud, scarcer_free_share

EXACT = "every possibility was weighed"
BOUNDED = "bounded search, too many possibilities to weigh them all"


@dataclass(frozen=True, slots=True)
class KubeDsm(BatchStrategy):
    """Edge nodes for as many pods as fit, moving running pods between edge and cloud for it.

    A batch is planned in two steps. First, immediateSchedule places the pending pods without
    migration (Algorithm 1). Then, unless `suggest` is 0, one suggestion may move pods from the
    cloud to the edge, including pods that the first step sent to the cloud, and may migrate
    running pods between edge nodes and to the cloud to make room (Algorithm 2). Without pending
    pods the plan is only a suggestion. With new_pods=never-wait a batch is placed by the first step
    alone, so only plans without pending pods migrate.

    Nodes of tier "cloud" are the cloud, all others the edge. The paper has one cloud node
    without bounds; here a pod that goes to the cloud gets the cloud node with the largest free
    share, and every step must pass the filters. All requested resources must fit; size (Eq. 11)
    and fragmentation count CPU and memory. Pods with the same labels are replicas of one service
    (framework/services.py). Q of a service is the largest `leadline.dev/qos-edge-ratio`
    of its pods, or `qos_target`.

    Algorithm 2 brings pods from the cloud that fit the edge's free room, so Algorithm 5, which
    makes room, never has anything to do, and nothing leaves the edge. With room=capacity the pods
    only have to fit the edge's capacity, and in a shortage others leave it for them (Eq. 12).
    makeDecision checks only sums of resources, so match may then leave out pods for which others
    have left. The paper's program applies such a suggestion anyway; here it is compared with those
    for fewer pods, with those that count only what is free on nodes that can take one of the pods,
    and with the one for which none leaves.

    Two options are the authors' program and not the paper's text: its QoS (qos=program), and that
    one running pod of a service at least does not move in a suggestion (last_replica=stays).

    A single pod, without migration, goes to an edge node before the cloud, to the one whose
    product of used fractions grows most (Eq. 13).

    Needs nothing measured. A node of unknown CPU or memory has no total, and is chosen only if
    no node has one.
    """

    name = "kubedsm"
    better = "higher"
    paper = "KubeDSM, Algorithms 1-8"
    needs = ()

    m_c2e: float = option(
        5, unit="pods", maximum=10, help="moved from cloud to edge in one suggestion, M_C2E"
    )
    m_er: float = option(
        3, unit="pods", maximum=10, help="reordered within the edge in one suggestion, M_ER"
    )
    a: float = option(1.0, maximum=1e6, help="penalty per share missing to the target")
    b: float = option(0.1, maximum=1e6, help="reward per share beyond the target")
    gamma: float = option(10.0, maximum=1e6, help="reward for reaching the target")
    qos_target: float = option(
        1.0, maximum=1.0, help="share of a service that should be on the edge, Q"
    )
    suggest: float = option(1, maximum=1, help="0: only place new pods, 1: suggest migrations too")
    new_pods: str = choice(
        "may-wait",
        "never-wait",
        help="whether new pods may wait for moves that make room for them; never-wait: only "
        "suggestions migrate",
    )
    room: str = choice(
        "free",
        "capacity",
        help="room on the edge that the pods of a suggestion must fit; capacity: in a shortage "
        "others leave the edge for them",
    )
    qos: str = choice("paper", "program", help="QoS of a service: Eq. 3-4, or the authors' program")
    last_replica: str = choice(
        "may-move", "stays", help="whether a suggestion may move all running pods of a service"
    )

    def __post_init__(self) -> None:
        if not self.b < self.a < self.gamma:
            raise OptionError("options a, b, gamma: expected b < a < gamma (Eq. 5)")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """A single pod, without migration: for an edge node 1 plus the growth of its product of
        used fractions, for a cloud node its free share."""
        cloud = is_cloud(view)[candidates]
        capacity, used = _columns(view, (CPU, MEMORY), candidates)
        requests = np.array([pod.requests.get(name, 0) for name in (CPU, MEMORY)])
        growth = used_product(capacity, used + requests) - used_product(capacity, used)
        growth = np.where((capacity > 0).all(axis=1), growth, np.nan)
        total = np.where(cloud, scarcer_free_share(view, candidates), 1 + growth)

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            share = _share_on_edge(view, pod, to_edge=not cloud[at])
            if cloud[at]:
                text = "no edge node can take it; the cloud node with the most room"
                return f"{text}, with {share} on the edge" if share else text
            text = "on the edge, where it leaves the least fragmentation"
            return f"{text}, with {share}" if share else text

        parts = {"edge": np.where(cloud, 0.0, 1.0), "packing_growth": growth}
        return Scores(candidates, total, best(total, self.better), why, parts)

    def plan(
        self,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
    ) -> BatchPlan:
        """Immediate scheduling of the pending pods, then one suggestion, unless only suggestions
        migrate and there are pending pods."""
        migrates = bool(self.suggest) and not (pending and self.new_pods == "never-wait")
        edge_view = _EdgeView(self, view, pending, running, allowed, migrates=migrates)
        placed = immediate_schedule(edge_view.state, edge_view.new)
        if not migrates:
            return edge_view.to_plan([placed])
        waiting = (*placed.to_cloud, *edge_view.in_cloud)
        state = replace(edge_view.state, pods=edge_view.on_edge)
        for pod, node in placed.placed:
            state = state.moved(pod, node)
        return edge_view.to_plan([placed, self._suggestion(state, waiting)])

    def _suggestion(self, state: EdgeState, waiting: Sequence[EdgePod]) -> AppliedDecision:
        """The suggestion within the free room, or the one with the most QoS for which pods leave
        the edge. Of equals the one for which fewer leave, then move."""
        most, limit = int(self.m_c2e), int(self.m_er)
        outcomes = [suggest(state, waiting, most, limit)]
        for by_node in (False, True) if self.room == "capacity" and most else ():
            leaving = replace(state, may_leave=True, by_node=by_node)
            # Where match misses pods for which others leave, fewer may gain more.
            for fewer in range(most, 0, -1):
                outcomes.append(suggest(leaving, waiting, fewer, limit))
                if not (outcomes[-1].freed and outcomes[-1].missed):
                    break
            if not outcomes[1].missed:
                break

        def rank(outcome: AppliedDecision) -> tuple[float, int, int]:
            quality = round(float(state.quality.of(outcome.state.on_edge)), 9)
            migrations = len(outcome.freed) + len(outcome.reordered) + len(outcome.placed)
            return quality, -len(outcome.freed), -migrations

        return max(outcomes, key=rank)


class _EdgeView:
    """A cluster view as the state of the edge, before any pod may be moved, and edge pods: the
    pending ones (new), and the running ones that may be moved, on the edge and in the cloud."""

    def __init__(
        self,
        strategy: KubeDsm,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
        *,
        migrates: bool,
    ) -> None:
        self._view, self._allowed = view, allowed
        self._pods = {pod.key: pod for pod in (*pending, *(pod for pod, _ in running))}
        self._node_of = {pod.key: node for pod, node in running}
        self._cloud = is_cloud(view)
        requested = {name for pod in self._pods.values() for name in pod.requests}
        self._resources = [CPU, MEMORY, *sorted(requested - {CPU, MEMORY})]
        services: dict[Hashable, int] = {}
        self._service = {
            key: services.setdefault(service_of(pod) or key, len(services))
            for key, pod in self._pods.items()
        }
        may_move = [pod for pod, _ in running] if migrates else []
        masks = [allowed(pod) for pod in (*pending, *may_move)]
        allowed_for_any = np.any(masks, axis=0) if masks else view.table.none()
        self._nodes = np.flatnonzero(allowed_for_any & ~self._cloud)
        edge = Edge(*_columns(view, self._resources, self._nodes))
        self._largest = edge.capacity.max(axis=0, initial=0)
        quality, on_edge, running_pods = self._count_services(strategy, len(services))
        self.state = EdgeState(
            edge,
            quality,
            on_edge,
            may_move=running_pods - 1 if strategy.last_replica == "stays" else None,
        )
        self.new = [self._edge_pod(pod) for pod in pending]
        movable = [self._edge_pod(pod) for pod in may_move]
        self.on_edge = tuple(pod for pod in movable if pod.node != NO_NODE)
        self.in_cloud = [pod for pod in movable if self._cloud[self._node_of[pod.key]]]

    def _count_services(self, strategy: KubeDsm, count: int) -> tuple[Quality, Ints, Ints]:
        """The QoS of the services, and the pods of each on the edge, and on any node."""
        total, on_edge, running = np.zeros((3, count), dtype=np.int64)
        stated = np.full(count, np.nan)
        for key, pod in self._pods.items():
            number = self._service[key]
            total[number] += 1
            running[number] += key in self._node_of
            if key in self._node_of and not self._cloud[self._node_of[key]]:
                on_edge[number] += 1
            if pod.annotations.qos_edge_ratio is not None:
                stated[number] = np.fmax(stated[number], pod.annotations.qos_edge_ratio)
        target = np.where(np.isnan(stated), strategy.qos_target, stated)
        is_programs = strategy.qos == "program"
        quality = Quality(
            total, target, strategy.a, strategy.b, strategy.gamma, is_programs=is_programs
        )
        return quality, on_edge, running

    def _edge_pod(self, pod: Pod) -> EdgePod:
        amounts = [pod.requests.get(name, 0) for name in self._resources]
        requests = np.array(amounts, dtype=np.int64)
        allowed, node = self._allowed(pod), self._node_of.get(pod.key)
        index = np.flatnonzero(self._nodes == node) if node is not None else self._nodes[:0]
        return EdgePod(
            pod.key,
            self._service[pod.key],
            requests,
            allowed[self._nodes],
            pod_size(requests, self._largest),
            cloud_feasible=bool((allowed & self._cloud).any()),
            node=int(index[0]) if index.size else NO_NODE,
            is_running=node is not None,
        )

    def to_plan(self, steps: Sequence[AppliedDecision]) -> BatchPlan:
        """Immediate scheduling, and the suggestion if there is one, as one plan; a pod that is
        placed and then moved is only placed."""
        method = EXACT if all(step.exact for step in steps) else BOUNDED
        to_edge = {pod.key: int(self._nodes[n]) for step in steps for pod, n in step.placed}
        capacity, used = _columns(self._view, self._resources, np.arange(len(self._view)))
        for pod, _ in steps[-1].placed:
            if pod.key in self._node_of:
                used[self._node_of[pod.key]] -= pod.requests

        def assign_to_cloud(pod: EdgePod) -> int | None:
            """Charge the pod to the allowed cloud node with the largest free share on which it
            fits; None if it fits on none."""
            free = capacity - used
            allowed = self._allowed(self._pods[pod.key]) & self._cloud
            feasible = allowed & fits_in(pod.requests, np.maximum(free, 0))
            if not feasible.any():
                return None
            share = (free[:, :2] / np.maximum(capacity[:, :2], 1)).min(axis=1)
            node = int(np.argmax(np.where(feasible, share, -np.inf)))
            used[node] += pod.requests
            return node

        moves = self._moves(steps[1], assign_to_cloud) if len(steps) > 1 else ()
        nodes = {pod.key: to_edge.get(pod.key) for pod in self.new}
        for pod in self.new:
            if nodes[pod.key] is None:
                nodes[pod.key] = assign_to_cloud(pod)
        found = {key: node for key, node in nodes.items() if node is not None}
        counts = steps[-1].state.on_edge
        why = {key: self._why(key, node, counts, method) for key, node in found.items()}
        is_worth = partial(self._is_worth, steps[0], set(to_edge), moves)
        return BatchPlan(found, moves, why, method, is_worth)

    def _is_worth(
        self,
        alone: AppliedDecision,
        to_edge: Set[str],
        planned: Sequence[Move],
        steps: Sequence[Move],
    ) -> bool:
        """Whether QoS is higher after the steps than without them, when the new pods are placed
        alone; or they are those of the plan. to_edge: keys of the pods that come to the edge."""
        if {(x.pod.key, x.target) for x in steps} == {(x.pod.key, x.target) for x in planned}:
            return True
        without, on_edge = self.state.on_edge.copy(), self.state.on_edge.copy()
        for pod, _ in alone.placed:
            without[pod.service] += 1
        for pod in self.new:
            on_edge[pod.service] += pod.key in to_edge
        for step in steps:
            left, came = self._cloud[[step.target, step.source]]
            on_edge[self._service[step.pod.key]] += int(came) - int(left)
        quality = self.state.quality
        return float(quality.of(on_edge)) > float(quality.of(without)) + TOLERANCE

    def _why(self, key: str, node: int, on_edge: Ints, method: str) -> str:
        service = self._service[key]
        share = f"{on_edge[service]} of {self.state.quality.total[service]} pods of its service"
        if self._cloud[node]:
            return f"to the cloud, with {share} on the edge; {method}"
        return f"on the edge, with {share}; {method}"

    def _moves(
        self, suggested: AppliedDecision, assign_to_cloud: Callable[[EdgePod], int | None]
    ) -> tuple[Move, ...]:
        """The suggestion's migrations: to the cloud, within the edge, to the edge."""
        room_for = tuple(pod.key for pod, _ in suggested.placed)
        more = f" and {len(room_for) - 3} more" if len(room_for) > 3 else ""
        why = f"makes room on the edge for {', '.join(room_for[:3])}{more}"
        moves = []
        for pod in suggested.freed:
            target = assign_to_cloud(pod)
            if target is None:  # the target will not pass the filters, and the move is dropped
                target = int(np.flatnonzero(self._allowed(self._pods[pod.key]) & self._cloud)[0])
            moves.append(Move(self._pods[pod.key], self._node_of[pod.key], target, why, room_for))
        less, room = "less fragmentation on the edge", "room for it on the edge"
        to_edge = [(pod, node, less) for pod, node in suggested.reordered]
        to_edge += [(p, node, room) for p, node in suggested.placed if p.key in self._node_of]
        for pod, node, why in to_edge:
            source, target = self._node_of[pod.key], int(self._nodes[node])
            moves.append(Move(self._pods[pod.key], source, target, why))
        return tuple(moves)


def _share_on_edge(view: ClusterView, pod: Pod, *, to_edge: bool) -> str:
    """How many of the placed pods of the pod's service are on the edge, itself counted; "" for a
    pod without labels."""
    if (wanted := service_of(pod)) is None:
        return ""
    per_node = view.assigned_pods.replicas(wanted, len(view))
    on_edge = int(per_node[~is_cloud(view)].sum()) + to_edge
    return f"{on_edge} of {int(per_node.sum()) + 1} pods of its service"


def _columns(view: ClusterView, resources: Sequence[str], nodes: Ints) -> tuple[Ints, Ints]:
    """Capacity and use of these nodes, shape (nodes, resources)."""
    capacity = [view.table.allocatable(resource)[nodes] for resource in resources]
    used = [view.requested_of(resource)[nodes] for resource in resources]
    return np.array(capacity).T, np.array(used).T
