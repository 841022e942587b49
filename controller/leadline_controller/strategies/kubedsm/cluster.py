"""Converts a cluster view to the state of KubeDSM's algorithms, and their decisions to a plan."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.batch import Allowed, BatchPlan, Move, Running
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.view import Bools, ClusterView, Ints
from leadline_controller.strategies.kubedsm.edge_state import (
    AppliedDecision,
    EdgePod,
    EdgeState,
    Quality,
    pod_size,
)
from leadline_controller.strategies.kubedsm.packing import NO_NODE, Edge, fits_in
from leadline_controller.strategies.shared.services import service_of
from leadline_controller.strategies.shared.tiers import is_cloud

EXACT = "every possibility was weighed"
BOUNDED = "bounded search, too many possibilities to weigh them all"


class QosGoals(NamedTuple):
    """The constants of QoS (Eq. 3), and Q of services without an annotation."""

    a: float
    b: float
    gamma: float
    target: float


class EdgeView:
    """A cluster view as edge states and edge pods. new, on_edge_pods, in_cloud: pending pods,
    running pods on the edge, and running pods in the cloud."""

    def __init__(
        self,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
        goals: QosGoals,
        *,
        migrate: bool,
    ) -> None:
        self._view, self._allowed = view, allowed
        self._pods = {pod.key: pod for pod in (*pending, *(pod for pod, _ in running))}
        self._node_of = {pod.key: node for pod, node in running}
        self._cloud = is_cloud(view)
        requested = {name for pod in self._pods.values() for name in pod.requests}
        self._resources = [CPU, MEMORY, *sorted(requested - {CPU, MEMORY})]
        self._services: dict[Hashable, int] = {}
        self._service = {key: self._service_number(pod) for key, pod in self._pods.items()}
        candidates = self._pods.values() if migrate else pending
        masks = [allowed(pod) for pod in candidates]
        allowed_for_any = np.any(masks, axis=0) if masks else view.table.none()
        self._nodes = np.flatnonzero(allowed_for_any & ~self._cloud)
        self._edge = Edge(*(self._columns(self._nodes)))
        self._largest = self._edge.capacity.max(axis=0, initial=0)
        self.quality, self.on_edge = self._count_services(goals)
        self.new = [self._edge_pod(pod) for pod in pending]
        movable = [self._edge_pod(pod) for pod, _ in running] if migrate else []
        self.on_edge_pods = tuple(pod for pod in movable if pod.node != NO_NODE)
        self.in_cloud = [pod for pod in movable if self._cloud[self._node_of[pod.key]]]

    def _service_number(self, pod: Pod) -> int:
        service: Hashable = service_of(pod) or pod.key
        return self._services.setdefault(service, len(self._services))

    def _columns(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Capacity and use of these nodes, shape (nodes, resources)."""
        table = self._view.table
        capacity = [table.allocatable(resource)[nodes] for resource in self._resources]
        used = [self._view.requested_of(resource)[nodes] for resource in self._resources]
        return np.array(capacity).T, np.array(used).T

    def _count_services(self, goals: QosGoals) -> tuple[Quality, Ints]:
        count = len(self._services)
        total, on_edge = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        stated = np.full(count, np.nan)
        for key, pod in self._pods.items():
            number = self._service[key]
            total[number] += 1
            if key in self._node_of and not self._cloud[self._node_of[key]]:
                on_edge[number] += 1
            if pod.annotations.qos_edge_ratio is not None:
                stated[number] = np.fmax(stated[number], pod.annotations.qos_edge_ratio)
        target = np.where(np.isnan(stated), goals.target, stated)
        return Quality(total, target, goals.a, goals.b, goals.gamma), on_edge

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
        )

    def state(self, *, movable: bool) -> EdgeState:
        """The current state. movable: whether running pods may be moved."""
        pods = self.on_edge_pods if movable else ()
        return EdgeState(self._edge, self.quality, self.on_edge, pods)

    def to_plan(self, placed: AppliedDecision, suggested: AppliedDecision | None) -> BatchPlan:
        """Both steps as one plan; a pod that is placed and then moved is only placed."""
        steps = [placed] if suggested is None else [placed, suggested]
        method = EXACT if all(step.exact for step in steps) else BOUNDED
        to_edge = {pod.key: int(self._nodes[n]) for step in steps for pod, n in step.placed}
        cloud = _CloudCapacity(self._view, *self._columns(np.arange(len(self._view))))
        for pod, _ in steps[-1].placed:
            if pod.key in self._node_of:
                cloud.add(self._node_of[pod.key], -pod.requests)
        moves = () if suggested is None else self._moves(suggested, cloud)
        nodes = {
            pod.key: to_edge[pod.key] if pod.key in to_edge else self._assign_to_cloud(pod, cloud)
            for pod in self.new
        }
        found = {key: node for key, node in nodes.items() if node is not None}
        counts = steps[-1].state.on_edge
        why = {key: self._why(key, node, counts, method) for key, node in found.items()}
        return BatchPlan(found, moves, why, method)

    def _why(self, key: str, node: int, on_edge: Ints, method: str) -> str:
        service = self._service[key]
        share = f"{on_edge[service]} of {self.quality.total[service]} pods of its service"
        if self._cloud[node]:
            return f"to the cloud, with {share} on the edge; {method}"
        return f"on the edge, with {share}; {method}"

    def _moves(self, suggested: AppliedDecision, cloud: "_CloudCapacity") -> tuple[Move, ...]:
        """The suggestion's migrations: to the cloud, within the edge, to the edge."""
        room_for = tuple(pod.key for pod, _ in suggested.placed)
        more = f" and {len(room_for) - 3} more" if len(room_for) > 3 else ""
        why = f"makes room on the edge for {', '.join(room_for[:3])}{more}"
        moves = []
        for pod in suggested.freed:
            target = self._assign_to_cloud(pod, cloud)
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

    def _assign_to_cloud(self, pod: EdgePod, cloud: "_CloudCapacity") -> int | None:
        return cloud.assign(pod.requests, self._allowed(self._pods[pod.key]))


class _CloudCapacity:
    """The free resources of the cloud nodes while a plan is made."""

    def __init__(self, view: ClusterView, capacity: Ints, used: Ints) -> None:
        self._cloud, self._capacity, self._used = is_cloud(view), capacity, used

    def add(self, node: int, requests: Ints) -> None:
        """Charge requests to a node; negative requests are given back."""
        self._used[node] += requests

    def assign(self, requests: Ints, allowed: Bools) -> int | None:
        """Charge requests to the allowed cloud node with the largest free share on which they fit.
        Returns the node, or None if they fit on none."""
        free = self._capacity - self._used
        feasible = allowed & self._cloud & fits_in(requests, np.maximum(free, 0))
        if not feasible.any():
            return None
        share = (free[:, :2] / np.maximum(self._capacity[:, :2], 1)).min(axis=1)
        node = int(np.argmax(np.where(feasible, share, -np.inf)))
        self.add(node, requests)
        return node
