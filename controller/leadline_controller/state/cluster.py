"""What the cluster holds, folded from its changes, with the pods just placed counted in.

A pod that was just bound is not in the watch yet; unless it is counted at once, a burst of
pods piles up on one node. The API server stays the only truth: an assumption ends when the
watch shows the pod, or when the binding failed.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from leadline_controller.core.model import HostPort, Node, Pod
from leadline_controller.core.ports import (
    ClusterChange,
    Listed,
    NodeChanged,
    NodeGone,
    PodChanged,
    PodGone,
)
from leadline_controller.core.view import ClusterView, Floats, Ints, NodeTable
from leadline_controller.state.telemetry import TelemetryState


class ClusterState:
    """Nodes, pods and what the pods take. Used by one thread."""

    def __init__(self) -> None:
        self.listed = False
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._assumed: dict[str, str] = {}
        self._run: dict[str, str] = {}
        self._table: NodeTable | None = None
        self._requested: dict[str, Ints] = {}
        self._bandwidth_bits_per_s: Floats = np.zeros(0)  # whole numbers, so sums are exact
        self._ports: dict[int, tuple[HostPort, ...]] = {}

    @property
    def table(self) -> NodeTable:
        """The nodes there are, sorted by name."""
        if self._table is None:
            self._rebuild()
        assert self._table is not None  # noqa: S101  # _rebuild has made it
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

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod was placed and the watch has not shown it yet."""
        return uid in self._assumed

    def apply(self, change: ClusterChange) -> bool:
        """Fold one change in. True when it may have made room for a pod that had none."""
        match change:
            case Listed(nodes, pods):
                self.listed = True
                self._nodes = {node.name: node for node in nodes}
                self._pods = {pod.uid: pod for pod in pods}
                self._assumed = {
                    uid: node for uid, node in self._assumed.items() if self._is_free(uid)
                }
                self._table = None
                return True
            case NodeChanged(node):
                changed = self._nodes.get(node.name) != node
                if changed:
                    self._nodes[node.name] = node
                    self._table = None
                return changed
            case NodeGone(name):
                if self._nodes.pop(name, None) is not None:
                    self._table = None
                return False
            case PodChanged(pod):
                before = self._pods.get(pod.uid)
                self._replace(pod.uid, pod)
                return before is not None and _takes_less(pod, before)
            case PodGone(pod):
                before = self._pods.get(pod.uid)
                self._replace(pod.uid, None)
                on_node = pod.uid in self._assumed or (before or pod).node_name is not None
                self._assumed.pop(pod.uid, None)
                return on_node

    def assume(self, pod: Pod, node: str) -> None:
        """Count a known pod as being on `node` from now on, unless it is on one already."""
        if not self._is_free(pod.uid):
            return
        known = self._pods[pod.uid]
        self._take(known, -1)
        self._assumed[pod.uid] = node
        self._take(known, +1)
        self._run[pod.uid] = node

    def forget(self, pod: Pod) -> None:
        """The binding failed: the pod is where the watch shows it, or nowhere again."""
        known = self._pods.get(pod.uid)
        if known is not None and known.node_name is None:
            self._take(known, -1)
        self._assumed.pop(pod.uid, None)
        self._run.pop(pod.uid, None)

    def begin_run(self) -> None:
        """A new run of decisions: DACS' zeta starts from 0 (Algorithm 1, lines 1-2)."""
        self._run.clear()

    def view(self, telemetry: TelemetryState, now_s: float) -> ClusterView:
        """The cluster as a decision at `now_s` sees it. The caller may keep it."""
        table = self.table
        placed = np.zeros(len(table), dtype=np.int64)
        for name in self._run.values():
            if name in table.index:
                placed[table.index[name]] += 1
        return ClusterView(
            table=table,
            requested={resource: column.copy() for resource, column in self._requested.items()},
            metrics=telemetry.metrics(table, now_s),
            links=telemetry.link_table(table, now_s),
            bandwidth_requested_mbps=self._bandwidth_bits_per_s / 1e6,
            placed_in_run=placed,
            host_ports=dict(self._ports),
        )

    def _is_free(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and pod.node_name is None

    def _node_of(self, pod: Pod) -> str | None:
        return pod.node_name or self._assumed.get(pod.uid)

    def _replace(self, uid: str, pod: Pod | None) -> None:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._take(before, -1)
        if pod is not None:
            self._pods[uid] = pod
            if pod.node_name is not None:
                self._assumed.pop(uid, None)
            self._take(pod, +1)

    def _rebuild(self) -> None:
        self._table = NodeTable([self._nodes[name] for name in sorted(self._nodes)])
        self._requested = {}
        self._bandwidth_bits_per_s = np.zeros(len(self._table))
        self._ports = {}
        for pod in self._pods.values():
            self._take(pod, +1)

    def _take(self, pod: Pod, sign: int) -> None:
        """Add (+1) what a pod takes on its node, or take it away (-1)."""
        node = self._node_of(pod)
        if self._table is None or node is None or pod.finished or node not in self._table.index:
            return
        at = self._table.index[node]
        for resource, amount in pod.requests.items():
            column = self._requested.get(resource)
            if column is None:
                column = self._requested[resource] = np.zeros(len(self._table), dtype=np.int64)
            column[at] += sign * amount
        self._bandwidth_bits_per_s[at] += sign * round((pod.hints.bandwidth_mbps or 0.0) * 1e6)
        if pod.host_ports:
            held = list(self._ports.get(at, ()))
            for port in pod.host_ports:
                held.append(port) if sign > 0 else held.remove(port)
            self._ports[at] = tuple(held)
            if not held:
                del self._ports[at]


def _takes_less(pod: Pod, before: Pod) -> bool:
    if pod.finished != before.finished:
        return pod.finished
    return any(pod.requests.get(name, 0) < amount for name, amount in before.requests.items())
