"""What the cluster holds, folded from its changes, with the pods just placed counted in.

A pod that was just bound is not in the watch yet; unless it is counted at once, a burst of
pods piles up on one node. The API server stays the only truth: an assumption ends when the
watch shows the pod, or when the binding failed.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from leadline_controller.cluster.occupancy import Occupancy
from leadline_controller.cluster.resources import ResourceState
from leadline_controller.framework import queueing_hints as queueing_hints
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
from leadline_controller.framework.queueing_hints import ANYTHING, NOTHING, ClusterEvent
from leadline_controller.framework.resources import Claim, Volume
from leadline_controller.framework.storage import VolumePlan
from leadline_controller.framework.view import ClusterView, NodeTable
from leadline_controller.telemetry.state import TelemetryState


class ClusterState:
    """Nodes, pods and what the pods take. Used by one thread."""

    def __init__(self) -> None:
        self.listed = False
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._assumed: dict[str, str] = {}
        self._run: dict[str, str] = {}
        self._placed = np.zeros(0, dtype=np.int64)  # pods of the run on each node of the table
        self._resources = ResourceState()
        self._table = NodeTable(())
        self._occupancy = Occupancy(self._table)
        self._stale = False  # whether a node changed since the table was made

    @property
    def table(self) -> NodeTable:
        """The nodes there are, sorted by name."""
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
        """Every pod with the node it is on or assumed to be on."""
        return ((pod, self._node_of(pod)) for pod in self._pods.values())

    def pod(self, uid: str) -> Pod | None:
        """The pod with this uid, as last seen."""
        return self._pods.get(uid)

    def claim(self, key: str) -> Claim | None:
        """The claim of that namespace/name, as last seen."""
        return self._resources.claim(key)

    def volume(self, name: str) -> Volume | None:
        """The volume of that name, as last seen."""
        return self._resources.volume(name)

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod was placed and the watch has not shown it yet."""
        return uid in self._assumed

    def apply(self, change: ClusterChange) -> ClusterEvent:
        """Fold one change in. What of it may let a pod in that fits nowhere."""
        match change:
            case Relisted(nodes, pods, resources):
                self._replace_all(nodes, pods)
                self._resources.replace_all(resources)
                return ANYTHING
            case NodeChanged(node):
                before = self._nodes.get(node.name)
                self._nodes[node.name] = node
                self._stale |= before != node
                return queueing_hints.of_node(before, node)
            case NodeDeleted(name):
                gone = self._nodes.pop(name, None) is not None
                self._stale |= gone
                return ClusterEvent.NODE_DELETED if gone else NOTHING
            case PodChanged(pod):
                return self._pod_changed(pod)
            case PodDeleted(pod):
                counted = self._counted(pod.uid)
                self._replace(pod.uid, None)
                self._assumed.pop(pod.uid, None)
                self._resources.forget(pod.uid)
                return queueing_hints.of_departure(counted) if counted else NOTHING
            case ResourceChanged(resource):
                return (
                    queueing_hints.of_resource(resource)
                    if self._resources.put(resource)
                    else NOTHING
                )
            case ResourceDeleted(resource):
                return (
                    queueing_hints.of_resource(resource)
                    if self._resources.remove(resource)
                    else NOTHING
                )

    def assume(self, pod: Pod, node: str, volumes: VolumePlan | None = None) -> None:
        """Count a known pod as being on `node` from now on, unless it is on one already, and
        what is being done for its claims as done."""
        if not self._is_free(pod.uid):
            return
        known = self._pods[pod.uid]
        self._count_out(known)
        self._assumed[pod.uid] = node
        self._count_in(known)
        self._count_run(self._run.pop(pod.uid, None), -1)
        self._run[pod.uid] = node
        self._count_run(node, +1)
        if volumes is not None:
            self._resources.assume(pod.uid, volumes)

    def forget(self, pod: Pod) -> ClusterEvent:
        """The binding failed: the pod is where the watch shows it, or nowhere again. What of
        that may let others in."""
        counted, known = self._counted(pod.uid), self._pods.get(pod.uid)
        if known is not None and known.node_name is None:
            self._count_out(known)
            self._resources.forget(pod.uid)
        self._assumed.pop(pod.uid, None)
        self._count_run(self._run.pop(pod.uid, None), -1)
        left = counted is not None and self._counted(pod.uid) is None
        return queueing_hints.of_departure(counted) if counted and left else NOTHING

    def begin_run(self) -> None:
        """A new run of decisions: DACS' zeta starts from 0 (Algorithm 1, lines 1-2)."""
        self._run.clear()
        self._placed[:] = 0

    def view(self, telemetry: TelemetryState, now_s: float) -> ClusterView:
        """The cluster as a decision at `now_s` sees it. The caller may keep it."""
        table = self.table
        if self._occupancy.is_bloated():
            self._recount()
        counted = self._occupancy
        return ClusterView(
            table=table,
            requested=counted.requested(),
            metrics=telemetry.metrics(table, now_s),
            links=telemetry.link_table(table, now_s),
            bandwidth_requested_mbps=counted.bandwidth_requested_mbps(),
            placed_in_run=self._placed.copy(),
            host_ports=counted.host_ports(),
            assigned_pods=counted.assigned_pods_to_keep(),
            mounts=counted.mounts(),
            namespaces=self._resources.namespaces(),
            storage=self._resources.storage(),
        )

    def _counted(self, uid: str) -> Pod | None:
        """The pod, if it takes something of a node."""
        pod = self._pods.get(uid)
        if pod is None or pod.finished or self._node_of(pod) is None:
            return None
        return pod

    def _pod_changed(self, pod: Pod) -> ClusterEvent:
        before, shown = self._counted(pod.uid), self._pods.get(pod.uid)
        place = self._node_of(before) if before else None
        self._replace(pod.uid, pod)
        after = self._counted(pod.uid)
        told = NOTHING
        if before and after and place == self._node_of(after):
            told = queueing_hints.of_assigned_pod(before, after)
        elif before:
            told = queueing_hints.of_departure(before)
        # An assumption is no news: it may still come to nothing.
        if after and after.node_name != (shown.node_name if shown else None):
            told |= queueing_hints.of_arrival(after)
        return told

    def _is_free(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and pod.node_name is None

    def _node_of(self, pod: Pod) -> str | None:
        return pod.node_name or self._assumed.get(pod.uid)

    def _replace_all(self, nodes: tuple[Node, ...], pods: tuple[Pod, ...]) -> None:
        self.listed = True
        self._nodes = {node.name: node for node in nodes}
        self._pods = {pod.uid: pod for pod in pods}
        for uid in [uid for uid in self._assumed if not self._is_free(uid)]:
            del self._assumed[uid]
        self._stale = True
        self._table = NodeTable(())  # so that all is counted anew
        self._occupancy = Occupancy(self._table, self._occupancy)

    def _replace(self, uid: str, pod: Pod | None) -> None:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._count_out(before)
        if pod is not None:
            self._pods[uid] = pod
            if pod.node_name is not None and self._assumed.pop(uid, None) not in (
                None,
                pod.node_name,
            ):
                self._resources.forget(uid)
            self._count_in(pod)

    def _recount(self) -> None:
        self._occupancy = Occupancy(self._table, self._occupancy)
        for pod in self._pods.values():
            self._count_in(pod)
        self._placed = np.zeros(len(self._table), dtype=np.int64)
        for node in self._run.values():
            self._count_run(node, +1)

    def _count_run(self, node: str | None, sign: int) -> None:
        at = None if node is None else self._table.index.get(node)
        if at is not None:
            self._placed[at] += sign

    def _count_in(self, pod: Pod) -> None:
        node = self._node_of(pod)
        if node is not None and not pod.finished:
            self._occupancy.add(pod, node)

    def _count_out(self, pod: Pod) -> None:
        node = self._node_of(pod)
        if node is not None and not pod.finished:
            self._occupancy.remove(pod, node)
