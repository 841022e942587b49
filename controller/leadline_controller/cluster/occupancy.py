"""What the pods take of the nodes, as columns that follow every change.

Adding a pod and taking it away again leaves nothing behind; whoever calls keeps account of which
pods are in.
"""

import numpy as np

from leadline_controller.framework.assigned_pods import AssignedPods, ExistingAntiAffinities, Kinds
from leadline_controller.framework.model import HostPort, Pod
from leadline_controller.framework.view import Floats, Ints, NodeTable

_FEW = 1024
# Columns from which on only resources that a node has are counted.
_MOST_UNOFFERED = 256


class Occupancy:
    """Counts over the nodes of one table. `known` lends it the kinds of pods met before."""

    def __init__(self, table: NodeTable, known: "Occupancy | None" = None) -> None:
        self._index = table.index
        self._offered = table.resources
        self._requested: dict[str, Ints] = {}
        self._bandwidth_bits_per_s: Floats = np.zeros(len(table))  # whole numbers: exact sums
        self._ports: dict[int, tuple[HostPort, ...]] = {}
        self._mounts: dict[int, tuple[Pod, ...]] = {}
        self._uids: list[str] = []
        self._place: dict[str, int] = {}
        self._rows: Ints = np.zeros((4, _FEW), dtype=np.int64)
        self._kinds = Kinds()
        self._aversions = ExistingAntiAffinities()
        if known is not None and not known.is_bloated():
            self._kinds, self._aversions = known._kinds, known._aversions

    def add(self, pod: Pod, node: str) -> None:
        """Count a pod that is not counted yet; nothing happens on a node that isn't known."""
        at = self._index.get(node)
        if at is None:
            return
        self._charge(pod, at, +1)
        if pod.host_ports:
            self._ports[at] = self._ports.get(at, ()) + pod.host_ports
        if pod.claims or pod.disks:
            self._mounts[at] = (*self._mounts.get(at, ()), pod)
        if len(self._uids) == self._rows.shape[1]:
            self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)), axis=1)
        self._rows[:, len(self._uids)] = self.assigned_pods().row(pod, at)
        self._place[pod.uid] = len(self._uids)
        self._uids.append(pod.uid)

    def remove(self, pod: Pod, node: str) -> None:
        """Take away a pod that was added exactly so."""
        at = self._index.get(node)
        if at is None:
            return
        self._charge(pod, at, -1)
        if pod.host_ports:
            held = list(self._ports.pop(at))
            for port in pod.host_ports:
                held.remove(port)
            if held:
                self._ports[at] = tuple(held)
        if pod.claims or pod.disks:
            left = tuple(p for p in self._mounts.pop(at) if p.uid != pod.uid)
            if left:
                self._mounts[at] = left
        # The last row takes the place of the one that goes.
        place, last = self._place.pop(pod.uid), self._uids.pop()
        if last != pod.uid:
            self._rows[:, place] = self._rows[:, len(self._uids)]
            self._uids[place] = last
            self._place[last] = place

    def is_bloated(self) -> bool:
        """Whether most of the remembered kinds are of pods that are long gone."""
        return len(self._kinds) + len(self._aversions) > 4 * len(self._uids) + _FEW

    def requested(self) -> dict[str, Ints]:
        """Base units asked for, by resource; the caller's to keep."""
        return {resource: column.copy() for resource, column in self._requested.items()}

    def bandwidth_requested_mbps(self) -> Floats:
        """Link capacity asked for, Mbit/s, shape (n,); the caller's to keep."""
        return self._bandwidth_bits_per_s / 1e6

    def host_ports(self) -> dict[int, tuple[HostPort, ...]]:
        """Node index -> ports taken there; the caller's to keep."""
        return dict(self._ports)

    def mounts(self) -> dict[int, tuple[Pod, ...]]:
        """Node index -> pods with claims or disks there; the caller's to keep."""
        return dict(self._mounts)

    def assigned_pods(self) -> AssignedPods:
        """The pods that are counted; good until the next change."""
        return AssignedPods(self._kinds, self._aversions, self._rows[:, : len(self._uids)])

    def assigned_pods_to_keep(self) -> AssignedPods:
        """The same for the caller to keep."""
        rows = self._rows[:, : len(self._uids)].copy()
        return AssignedPods(self._kinds, self._aversions, rows)

    def _charge(self, pod: Pod, at: int, sign: int) -> None:
        for resource, amount in pod.requests.items():
            column = self._requested.get(resource)
            if column is None:
                if resource not in self._offered and len(self._requested) >= _MOST_UNOFFERED:
                    continue  # pods make names up, and no node has that
                column = self._requested[resource] = np.zeros(len(self._index), dtype=np.int64)
            column[at] += sign * amount
        self._bandwidth_bits_per_s[at] += sign * round((pod.hints.bandwidth_mbps or 0.0) * 1e6)
