"""Between a cluster and KubeDSM's algorithms: a view in their terms, their outcome as a plan."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.batch import Allowed, BatchPlan, Move, Running
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.view import Bools, ClusterView, Ints
from leadline_controller.strategies.kubedsm.edge_state import (
    EdgePod,
    EdgeState,
    Outcome,
    Quality,
    pod_size,
)
from leadline_controller.strategies.kubedsm.packing import NOWHERE, Edge, fits_in
from leadline_controller.strategies.shared.services import service_of
from leadline_controller.strategies.shared.tiers import is_cloud

EXACT = "every possibility was weighed"
BOUNDED = "bounded search, too many possibilities to weigh them all"


class Goals(NamedTuple):
    """The constants of QoS (Eq. 3), and Q of a service whose pods state none."""

    a: float
    b: float
    gamma: float
    target: float


class EdgeView:
    """A cluster in the algorithms' terms, and their outcome in the cluster's."""

    def __init__(
        self,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
        goals: Goals,
        *,
        migrate: bool,
    ) -> None:
        self._view, self._allowed = view, allowed
        self._pods = {pod.key: pod for pod in (*pending, *(pod for pod, _ in running))}
        self._place = {pod.key: node for pod, node in running}
        self._cloud = is_cloud(view)
        asked = {name for pod in self._pods.values() for name in pod.requests}
        self._resources = [CPU, MEMORY, *sorted(asked - {CPU, MEMORY})]
        self._services: dict[Hashable, int] = {}
        self._service = {key: self._number(pod) for key, pod in self._pods.items()}
        candidates = self._pods.values() if migrate else pending
        may = [allowed(pod) for pod in candidates]
        open_to_some = np.any(may, axis=0) if may else view.table.none()
        self._nodes = np.flatnonzero(open_to_some & ~self._cloud)
        self._edge = Edge(*(self._columns(self._nodes)))
        self._largest = self._edge.capacity.max(axis=0, initial=0)
        self.quality, self.on_edge = self._counted(goals)
        self.new = [self._item(pod) for pod in pending]
        there = [self._item(pod) for pod, _ in running] if migrate else []
        self.on_nodes = tuple(item for item in there if item.at != NOWHERE)
        self.in_cloud = [item for item in there if self._cloud[self._place[item.key]]]

    def _number(self, pod: Pod) -> int:
        service: Hashable = service_of(pod) or pod.key
        return self._services.setdefault(service, len(self._services))

    def _columns(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Capacity and use of these nodes, shape (nodes, resources)."""
        table = self._view.table
        capacity = [table.allocatable(resource)[nodes] for resource in self._resources]
        used = [self._view.requested_of(resource)[nodes] for resource in self._resources]
        return np.array(capacity).T, np.array(used).T

    def _counted(self, goals: Goals) -> tuple[Quality, Ints]:
        count = len(self._services)
        total, on_edge = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        stated = np.full(count, np.nan)
        for key, pod in self._pods.items():
            number = self._service[key]
            total[number] += 1
            if key in self._place and not self._cloud[self._place[key]]:
                on_edge[number] += 1
            if pod.hints.qos_edge_ratio is not None:
                stated[number] = np.fmax(stated[number], pod.hints.qos_edge_ratio)
        target = np.where(np.isnan(stated), goals.target, stated)
        return Quality(total, target, goals.a, goals.b, goals.gamma), on_edge

    def _item(self, pod: Pod) -> EdgePod:
        wants = self._wants(pod)
        allowed, place = self._allowed(pod), self._place.get(pod.key)
        at = np.flatnonzero(self._nodes == place) if place is not None else self._nodes[:0]
        return EdgePod(
            pod.key,
            self._service[pod.key],
            wants,
            allowed[self._nodes],
            pod_size(wants, self._largest),
            leaves=bool((allowed & self._cloud).any()),
            at=int(at[0]) if at.size else NOWHERE,
        )

    def _wants(self, pod: Pod) -> Ints:
        return np.array([pod.requests.get(name, 0) for name in self._resources], dtype=np.int64)

    def board(self, *, movable: bool) -> EdgeState:
        """The cluster as it is, with the running pods to move or without."""
        return EdgeState(self._edge, self.quality, self.on_edge, self.on_nodes if movable else ())

    def told(self, placed: Outcome, suggested: Outcome | None) -> BatchPlan:
        """Both outcomes as one plan: a pod that was placed and then moved is only placed."""
        steps = [placed] if suggested is None else [placed, suggested]
        method = EXACT if all(step.exact for step in steps) else BOUNDED
        to_edge = {pod.key: int(self._nodes[n]) for step in steps for pod, n in step.placed}
        rooms = _CloudRooms(self._view, *self._columns(np.arange(len(self._view))))
        for item in (item for item, _ in steps[-1].placed if item.key in self._place):
            rooms.add(self._place[item.key], -item.wants)
        moves = () if suggested is None else self._moves(suggested, rooms)
        nodes = {
            item.key: to_edge[item.key] if item.key in to_edge else self._taken(item, rooms)
            for item in self.new
        }
        found = {key: node for key, node in nodes.items() if node is not None}
        counts = steps[-1].board.on_edge
        why = {key: self._why(key, node, counts, method) for key, node in found.items()}
        return BatchPlan(found, moves, why, method)

    def _why(self, key: str, node: int, on_edge: Ints, method: str) -> str:
        service = self._service[key]
        share = f"{on_edge[service]} of {self.quality.total[service]} pods of its service"
        if self._cloud[node]:
            return f"to the cloud, with {share} on the edge; {method}"
        return f"on the edge, with {share}; {method}"

    def _moves(self, outcome: Outcome, rooms: "_CloudRooms") -> tuple[Move, ...]:
        """The suggestion's migrations: to the cloud, within the edge, to the edge."""
        wanted = tuple(pod.key for pod, _ in outcome.placed)
        makes_room = f"makes room on the edge for {_few(wanted)}"
        less, comes = "less fragmentation on the edge", "room for it on the edge"
        running = [(pod, node) for pod, node in outcome.placed if pod.key in self._place]
        return (
            *(self._to_cloud(pod, rooms, makes_room, wanted) for pod in outcome.freed),
            *(self._to_edge(pod, node, less) for pod, node in outcome.reordered),
            *(self._to_edge(pod, node, comes) for pod, node in running),
        )

    def _to_edge(self, item: EdgePod, node: int, why: str) -> Move:
        pod, source = self._pods[item.key], self._place[item.key]
        return Move(pod, source, int(self._nodes[node]), why)

    def _to_cloud(
        self, item: EdgePod, rooms: "_CloudRooms", why: str, room_for: tuple[str, ...]
    ) -> Move:
        pod, target = self._pods[item.key], self._taken(item, rooms)
        if target is None:  # the filters will say so, and the move is dropped
            target = int(np.flatnonzero(self._allowed(pod) & self._cloud)[0])
        return Move(pod, self._place[item.key], target, why, room_for)

    def _taken(self, item: EdgePod, rooms: "_CloudRooms") -> int | None:
        return rooms.take(item.wants, self._allowed(self._pods[item.key]))


class _CloudRooms:
    """What the cloud nodes have left while a plan sends pods there."""

    def __init__(self, view: ClusterView, capacity: Ints, used: Ints) -> None:
        self._cloud, self._capacity, self._used = is_cloud(view), capacity, used

    def add(self, node: int, wants: Ints) -> None:
        """A pod comes to the node, or leaves it where `wants` is negative."""
        self._used[node] += wants

    def take(self, wants: Ints, allowed: Bools) -> int | None:
        """The allowed cloud node with the largest free share that has room, which is taken."""
        free = self._capacity - self._used
        able = allowed & self._cloud & fits_in(wants, np.maximum(free, 0))
        if not able.any():
            return None
        share = (free[:, :2] / np.maximum(self._capacity[:, :2], 1)).min(axis=1)
        node = int(np.argmax(np.where(able, share, -np.inf)))
        self.add(node, wants)
        return node


def _few(keys: Sequence[str], most: int = 3) -> str:
    left = len(keys) - most
    return ", ".join(keys[:most]) + (f" and {left} more" if left > 0 else "")
