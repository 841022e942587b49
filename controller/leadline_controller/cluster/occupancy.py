"""The resources, ports and volumes that pods use on each node, updated with every change.

Removing a pod undoes exactly what adding it did. The caller remembers which pods are counted.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from leadline_controller.framework.assigned_pods import ROWS, AssignedPods
from leadline_controller.framework.callers import Caller, Callers, count
from leadline_controller.framework.model import HostPort, Pod
from leadline_controller.framework.view import Floats, Ints, NodeTable

_MIN_ROWS = 1024
# With this many columns, resources that no node has are no longer counted.
_MAX_UNOFFERED = 256


def counts_alike(before: Pod, after: Pod) -> bool:
    """Whether two versions of a pod use the same of a node, so that nothing needs to be counted
    again."""
    return (
        before.requests == after.requests
        and before.labels == after.labels
        and before.terminating == after.terminating
        and before.priority == after.priority
        and before.annotations.bandwidth_mbps == after.annotations.bandwidth_mbps
        and before.annotations.peers == after.annotations.peers
        and before.host_ports == after.host_ports
        and before.claims == after.claims
        and before.disks == after.disks
        and before.affinity == after.affinity
        and before.anti_affinity == after.anti_affinity
        and before.preferences == after.preferences
    )


class Occupancy:
    """Counts over the nodes of one table. previous: its kinds of pods are used again.

    requested: base units, by resource. host_ports: node index -> host ports in use. mounts: node
    index -> pods with claims or disks. They change; a view needs copies.
    """

    def __init__(self, table: NodeTable, previous: "Occupancy | None" = None) -> None:
        self._index = table.index
        self._offered = table.resources
        self.requested: dict[str, Ints] = {}
        self._bandwidth_bits_per_s: Floats = np.zeros(len(table))  # whole numbers: exact sums
        self.host_ports: dict[int, tuple[HostPort, ...]] = {}
        self.mounts: dict[int, tuple[Pod, ...]] = {}
        self._callers: dict[tuple[str, str], Mapping[Caller, int]] = {}
        self._callers_are_shared = False
        self._uids: list[str] = []
        self._row_of: dict[str, int] = {}
        self._rows: Ints = np.zeros((ROWS, _MIN_ROWS), dtype=np.int64)
        self._is_shared = False  # by views, which must not change
        self._no_pods = AssignedPods()  # the kinds of pods, without rows
        if previous is not None and not previous.is_bloated():
            self._no_pods = previous._no_pods

    def add(self, pod: Pod, node: str) -> None:
        """Count a pod that is not counted yet; an unknown node is ignored."""
        at = self._index.get(node)
        if at is None:
            return
        self._charge(pod, at, +1)
        if pod.host_ports:
            self.host_ports[at] = self.host_ports.get(at, ()) + pod.host_ports
        if pod.claims or pod.disks:
            self.mounts[at] = (*self.mounts.get(at, ()), pod)
        self._count_callers(pod, +1)
        if len(self._uids) == self._rows.shape[1]:
            self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)), axis=1)
        self._rows[:, len(self._uids)] = self._no_pods.row(pod, at)
        self._row_of[pod.uid] = len(self._uids)
        self._uids.append(pod.uid)

    def remove(self, pod: Pod, node: str) -> None:
        """Uncount a pod that was added with exactly these arguments."""
        at = self._index.get(node)
        if at is None:
            return
        self._charge(pod, at, -1)
        if pod.host_ports:
            held = list(self.host_ports.pop(at))
            for port in pod.host_ports:
                held.remove(port)
            if held:
                self.host_ports[at] = tuple(held)
        if pod.claims or pod.disks:
            left = tuple(p for p in self.mounts.pop(at) if p.uid != pod.uid)
            if left:
                self.mounts[at] = left
        self._count_callers(pod, -1)
        # The last row replaces the removed one.
        row, last = self._row_of.pop(pod.uid), self._uids.pop()
        if self._is_shared:
            self._rows, self._is_shared = self._rows.copy(), False
        if last != pod.uid:
            self._rows[:, row] = self._rows[:, len(self._uids)]
            self._uids[row] = last
            self._row_of[last] = row

    def is_bloated(self) -> bool:
        """Whether most of the remembered kinds belong to pods that are gone."""
        pods = self._no_pods
        remembered = len(pods.kinds) + len(pods.anti_affinities) + len(pods.attractions)
        return remembered > 4 * len(self._uids) + _MIN_ROWS

    def bandwidth_requested_mbps(self) -> Floats:
        """Link capacity requested, Mbit/s, shape (n,); a copy."""
        return self._bandwidth_bits_per_s / 1e6

    def assigned_pods(self) -> AssignedPods:
        """The counted pods, as they are now: a pod that is added later has a row of its own, and
        before one is removed the rows are copied."""
        self._is_shared = True
        return replace(self._no_pods, rows=self._rows[:, : len(self._uids)])

    def callers(self) -> Callers:
        """What the counted pods declare of others, as it is now."""
        self._callers_are_shared = True
        return self._callers

    def _count_callers(self, pod: Pod, more: int) -> None:
        if pod.annotations.peers and self._callers_are_shared:
            self._callers, self._callers_are_shared = dict(self._callers), False
        count(self._callers, pod, more)

    def _charge(self, pod: Pod, at: int, sign: int) -> None:
        for resource, amount in pod.requests.items():
            column = self.requested.get(resource)
            if column is None:
                if resource not in self._offered and len(self.requested) >= _MAX_UNOFFERED:
                    continue  # pods may name any resource, and no node has this one
                column = self.requested[resource] = np.zeros(len(self._index), dtype=np.int64)
            column[at] += sign * amount
        self._bandwidth_bits_per_s[at] += sign * round(
            (pod.annotations.bandwidth_mbps or 0.0) * 1e6
        )
