"""The cluster's state, updated from its changes and from the pods that were just placed.

The watch shows a binding only later, so the pod is assumed on its node at once; otherwise a burst
of pods would pile up on one node. The API server stays the only truth: an assumption ends when
the watch shows the pod or the binding fails.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from leadline_controller.cluster.images import ImageState
from leadline_controller.cluster.occupancy import Occupancy
from leadline_controller.cluster.resources import ResourceState
from leadline_controller.framework import queueing_hints
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    NodeChanged,
    NodeDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
    ResourceChanged,
    ResourceDeleted,
)
from leadline_controller.framework.queueing_hints import ANY_EVENT, NO_EVENT, ClusterEvent
from leadline_controller.framework.resources import Claim, Volume, VolumePlan
from leadline_controller.framework.view import ClusterView, NodeTable
from leadline_controller.telemetry.state import TelemetryState


class ClusterState:
    """Nodes, pods, and the resources that pods use. Used by one thread. images: what the nodes have
    of the pods' images."""

    def __init__(self) -> None:
        self.listed = False
        self.images = ImageState()
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._assumed: dict[str, str] = {}
        self._placed_by_uid: dict[str, str] = {}  # pods placed in this run of decisions
        self._placed_in_run = np.zeros(0, dtype=np.int64)  # their number on each node of the table
        self._resources = ResourceState()
        self._table = NodeTable(())
        self._occupancy = Occupancy(self._table)
        self._stale = False  # whether a node changed since the table was built

    @property
    def table(self) -> NodeTable:
        """The nodes, sorted by name."""
        if self._stale:
            self._stale = False
            before = self._table
            self._table = NodeTable([self._nodes[name] for name in sorted(self._nodes)])
            if (self._table.names, self._table.resources) != (before.names, before.resources):
                self._recount()
        return self._table

    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._nodes

    def pods(self) -> Iterator[tuple[Pod, str | None]]:
        """Every pod with its node, also an assumed one."""
        return ((pod, self._node_of(pod)) for pod in self._pods.values())

    def pod(self, uid: str) -> Pod | None:
        """The pod with this uid, as last seen."""
        return self._pods.get(uid)

    def claim(self, key: str) -> Claim | None:
        """The claim of this namespace/name, as last seen."""
        return self._resources.claim(key)

    def volume(self, name: str) -> Volume | None:
        """The volume of this name, as last seen."""
        return self._resources.volume(name)

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod was placed and the watch has not shown that yet."""
        return uid in self._assumed

    def apply(self, change: ClusterChange) -> ClusterEvent:
        """Apply one change. Returns the events that may make an unschedulable pod schedulable."""
        match change:
            case Relisted(nodes, pods, resources):
                self.listed = True
                self._nodes = {node.name: node for node in nodes}
                self._pods = {pod.uid: pod for pod in pods}
                self.images.relisted(nodes)
                for uid in [uid for uid in self._assumed if not self._is_free(uid)]:
                    del self._assumed[uid]
                self._stale = True
                self._table = NodeTable(())  # so that `table` counts all pods again
                self._occupancy = Occupancy(self._table, self._occupancy)
                self._resources.replace_all(resources)
                return ANY_EVENT
            case NodeChanged(node):
                before = self._nodes.get(node.name)
                self._nodes[node.name] = node
                if before != node:
                    self._stale = True
                    self.images.node_changed(node)
                return queueing_hints.node_changed(before, node)
            case NodeDeleted(name):
                known = self._nodes.pop(name, None) is not None
                self._stale |= known
                self.images.node_deleted(name)
                return ClusterEvent.NODE_DELETED if known else NO_EVENT
            case PodChanged(pod):
                return self._pod_changed(pod)
            case PodDeleted(pod):
                counted = self._counted(pod.uid)
                self._replace(pod.uid, None)
                self._assumed.pop(pod.uid, None)
                self._resources.forget(pod.uid)
                return queueing_hints.pod_removed(counted) if counted else NO_EVENT
            case ResourceChanged(resource):
                changed = self._resources.put(resource)
                return queueing_hints.resource_changed(resource) if changed else NO_EVENT
            case ResourceDeleted(resource):
                known = self._resources.remove(resource)
                return queueing_hints.resource_changed(resource) if known else NO_EVENT

    def assume(self, pod: Pod, node: str, volumes: VolumePlan | None = None) -> None:
        """Count a known pod as running on `node`, and its volume plan as carried out. A pod that is
        on a node already stays there."""
        if not self._is_free(pod.uid):
            return
        known = self._pods[pod.uid]
        self._count_out(known)
        self._assumed[pod.uid] = node
        self._count_in(known)
        self._count_placed(self._placed_by_uid.pop(pod.uid, None), -1)
        self._placed_by_uid[pod.uid] = node
        self._count_placed(node, +1)
        if volumes is not None:
            self._resources.assume(pod.uid, volumes)

    def forget(self, pod: Pod) -> ClusterEvent:
        """End an assumption after a failed binding: the pod is where the watch shows it. Returns
        the events that may make other pods schedulable."""
        counted, known = self._counted(pod.uid), self._pods.get(pod.uid)
        if known is not None and known.node_name is None:
            self._count_out(known)
            self._resources.forget(pod.uid)
        self._assumed.pop(pod.uid, None)
        self._count_placed(self._placed_by_uid.pop(pod.uid, None), -1)
        left = counted is not None and self._counted(pod.uid) is None
        return queueing_hints.pod_removed(counted) if counted and left else NO_EVENT

    def bandwidth_requested_mbps(self) -> dict[str, float]:
        """The bandwidth that the pods of each node request, by node, where they request any."""
        names, requested_mbps = self.table.names, self._occupancy.bandwidth_requested_mbps()
        return {names[i]: float(requested_mbps[i]) for i in np.flatnonzero(requested_mbps)}

    def begin_run(self) -> None:
        """Start a new run of decisions: DACS' zeta is 0 again (Algorithm 1, lines 1-2)."""
        self._placed_by_uid.clear()
        self._placed_in_run[:] = 0

    def view(self, telemetry: TelemetryState, now_s: float) -> ClusterView:
        """The cluster for a decision at `now_s`; a copy."""
        table = self.table
        if self._occupancy.is_bloated():
            self._recount()
        counted = self._occupancy
        return ClusterView(
            table=table,
            requested={name: column.copy() for name, column in counted.requested.items()},
            metrics=telemetry.metrics(table, now_s),
            links=telemetry.link_table(table, now_s),
            bandwidth_requested_mbps=counted.bandwidth_requested_mbps(),
            placed_in_run=self._placed_in_run.copy(),
            host_ports=dict(counted.host_ports),
            assigned_pods=counted.assigned_pods(),
            mounts=dict(counted.mounts),
            namespaces=self._resources.namespaces,
            storage=self._resources.storage(),
            images=self.images.table(table),
        )

    def _counted(self, uid: str) -> Pod | None:
        """The pod, if it uses resources of a node."""
        pod = self._pods.get(uid)
        if pod is None or pod.finished or self._node_of(pod) is None:
            return None
        return pod

    def _pod_changed(self, pod: Pod) -> ClusterEvent:
        before, shown = self._counted(pod.uid), self._pods.get(pod.uid)
        node = self._node_of(before) if before else None
        self._replace(pod.uid, pod)
        after = self._counted(pod.uid)
        event = NO_EVENT
        if before and after and node == self._node_of(after):
            event = queueing_hints.pod_changed(before, after)
        elif before:
            event = queueing_hints.pod_removed(before)
        # An assumption is no event yet: the binding may still fail.
        if after and after.node_name != (shown.node_name if shown else None):
            event |= queueing_hints.pod_assigned(after)
        return event

    def _is_free(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and pod.node_name is None

    def _node_of(self, pod: Pod) -> str | None:
        return pod.node_name or self._assumed.get(pod.uid)

    def _replace(self, uid: str, pod: Pod | None) -> None:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._count_out(before)
        if pod is not None:
            self._pods[uid] = pod
            if pod.node_name is not None:
                assumed = self._assumed.pop(uid, None)
                if assumed not in (None, pod.node_name):
                    self._resources.forget(uid)
            self._count_in(pod)

    def _recount(self) -> None:
        self._occupancy = Occupancy(self._table, self._occupancy)
        for pod in self._pods.values():
            self._count_in(pod)
        self._placed_in_run = np.zeros(len(self._table), dtype=np.int64)
        for node in self._placed_by_uid.values():
            self._count_placed(node, +1)

    def _count_placed(self, node: str | None, sign: int) -> None:
        at = None if node is None else self._table.index.get(node)
        if at is not None:
            self._placed_in_run[at] += sign

    def _count_in(self, pod: Pod) -> None:
        node = self._node_of(pod)
        if node is not None and not pod.finished:
            self._occupancy.add(pod, node)
            self.images.add(pod, node)

    def _count_out(self, pod: Pod) -> None:
        node = self._node_of(pod)
        if node is not None and not pod.finished:
            self._occupancy.remove(pod, node)
            self.images.remove(pod, node)


def with_given_nodes(
    view: ClusterView, given: Mapping[str, Node], telemetry: TelemetryState, now_s: float
) -> ClusterView:
    """`view` with these nodes (by name) in place of its own. Unknown nodes come last and hold no
    pods. The same object when the nodes are equal to the view's.

    kube-scheduler may send its extender whole nodes, which are at least as new as those of our own
    watch. The pods on them and the measurements stay ours.
    """
    index = view.table.index
    if all(name in index and view.nodes[index[name]] == node for name, node in given.items()):
        return view
    new = [node for name, node in given.items() if name not in index]
    table = NodeTable([*(given.get(node.name, node) for node in view.nodes), *new])
    zeros = np.zeros(len(new), dtype=np.int64)
    return replace(
        view,
        table=table,
        requested={name: np.append(col, zeros) for name, col in view.requested.items()},
        metrics=telemetry.metrics(table, now_s),
        links=telemetry.link_table(table, now_s),
        bandwidth_requested_mbps=np.append(view.bandwidth_requested_mbps, zeros),
        placed_in_run=np.append(view.placed_in_run, zeros),
    )
