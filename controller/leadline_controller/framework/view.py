"""The cluster view of one scheduling cycle: columns over the nodes, so that a decision over
thousands of nodes takes a few array operations.

Every array has one entry for each node, in the order of `ClusterView.nodes`. An unknown
measurement is NaN, never zero.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from leadline_controller.framework.assigned_pods import AssignedPods, Namespaces
from leadline_controller.framework.assumed_load import BoardSize, Expectations
from leadline_controller.framework.callers import Callers
from leadline_controller.framework.cluster_objects import PodSelectors, Storage, VolumePlan
from leadline_controller.framework.image_layers import ImageTable, Pull
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import HostPort, Node, Pod
from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.node_table import Bools as Bools
from leadline_controller.framework.node_table import Floats as Floats
from leadline_controller.framework.node_table import Ints as Ints
from leadline_controller.framework.node_table import NodeTable as NodeTable
from leadline_controller.framework.services import service_of
from leadline_controller.framework.traffic import NO_TRAFFIC, PodPeers, Traffic

# A pod that was killed, or whose board restarted, serves again after so long.
RESTART_S = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class AssumedLoad:
    """That a view's metrics are the sum of what was measured and what is assumed of pods that the
    measurements do not contain yet."""

    # Without what is assumed.
    measured: NodeMetrics
    expected: Expectations
    # Of the pods that are assumed, those whose packets or disk nothing tells, so that nothing is
    # assumed of these, on each node; shape (n,).
    rates_unknown: Ints


@dataclass(frozen=True, eq=False)
class ClusterView:
    """All inputs of a decision, immutable: placing a pod returns a new view."""

    table: NodeTable
    requested: Mapping[str, Ints]  # resource -> requested base units on each node, shape (n,)
    metrics: NodeMetrics  # what strategies read; with `assumed`, more than was measured
    links: LinkTable
    bandwidth_requested_mbps: Floats  # requested link capacity, Mbit/s, shape (n,)
    placed_in_run: Ints  # pods that this run has placed on each node, shape (n,) (DACS' zeta)
    # Node index -> host ports in use.
    host_ports: Mapping[int, tuple[HostPort, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    assigned_pods: AssignedPods = field(default_factory=AssignedPods)
    # Node index -> assigned pods with claims or disks.
    mounts: Mapping[int, tuple[Pod, ...]] = field(default_factory=lambda: MappingProxyType({}))
    namespaces: Namespaces = field(default_factory=Namespaces)
    pod_selectors: PodSelectors = field(default_factory=PodSelectors)
    storage: Storage = field(default_factory=Storage)
    # The layers of images, and the nodes' download queues.
    images: ImageTable = field(default_factory=ImageTable)
    # Resource -> base units on each node that the strategy charges the run's pods beyond their
    # requests, shape (n,) (DACS' A). Strategies see them in `free`; filters do not.
    charged_in_run: Mapping[str, Ints] = field(default_factory=lambda: MappingProxyType({}))
    # Pending pods for which room was made, each with the index of that node; they count in no
    # column.
    nominated: tuple[tuple[Pod, int], ...] = ()
    # Pods on each node that came since its agent's last report began to be true, shape (n,),
    # whoever placed them; shape (0,) where none are known.
    recently_placed: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    assumed: AssumedLoad | None = None  # None for what was measured alone, as the papers have it
    traffic: Traffic = NO_TRAFFIC
    # What assigned pods declare of others, by the other's namespace and name.
    callers: Callers = field(default_factory=lambda: MappingProxyType({}))
    # The pod whose peers were asked for last, with these: filters, strategy and preferences ask in
    # turn, see `peers_of`. A view that is derived from this one begins without.
    last_peers: list[tuple[Pod, PodPeers]] = field(init=False, repr=False, default_factory=list)

    @property
    def measured(self) -> NodeMetrics:
        """What was measured, without what is assumed."""
        return self.metrics if self.assumed is None else self.assumed.measured

    def assuming_load(self, expected: Expectations | None = None) -> "ClusterView":
        """The view in which pods that are placed from now on add what they are expected to use to
        the metrics."""
        unknown = np.zeros(len(self), dtype=np.int64)
        assumed = AssumedLoad(self.metrics, expected or Expectations(), unknown)
        return replace(self, assumed=assumed)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in the order of every column."""
        return self.table.nodes

    def __len__(self) -> int:
        return len(self.table)

    def requested_of(self, resource: str) -> Ints:
        """Requested base units of `resource` on each node, shape (n,)."""
        column = self.requested.get(resource)
        return np.zeros(len(self), dtype=np.int64) if column is None else column

    def unrequested(self, resource: str) -> Ints:
        """Allocatable less requested base units of `resource` on each node, shape (n,): what the
        kubelet would still admit."""
        return self.table.allocatable(resource) - self.requested_of(resource)

    def free(self, resource: str) -> Ints:
        """`unrequested` less what this run's pods are charged beyond their requests, shape (n,):
        what a strategy may still count on."""
        charged = self.charged_in_run.get(resource)
        left = self.unrequested(resource)
        return left if charged is None else left - charged

    def recently_placed_pods(self) -> Ints:
        """`recently_placed` with an entry for each node, shape (n,)."""
        known = self.recently_placed
        return known if known.size else np.zeros(len(self), dtype=np.int64)

    def replicas_of(self, pod: Pod) -> Ints:
        """How many pods of the pod's service each node has, shape (n,); 0 if it is of none."""
        if (service := service_of(pod)) is None:
            return np.zeros(len(self), dtype=np.int64)
        return self.assigned_pods.replicas(service, len(self))

    def user_node(self, pod: Pod) -> int | None:
        """Index of the node of the pod's user; None if it names none that the cluster has."""
        name = pod.annotations.user_node
        return None if name is None else self.table.index.get(name)

    def bandwidth_capacity_mbps(self) -> Floats:
        """Capacity (stated, else measured) of each node's link, Mbit/s, shape (n,), NaN if
        unknown."""
        stated = self.table.bandwidth_mbps
        return np.where(np.isnan(stated), self.measured.bandwidth_mbps, stated)

    def bandwidth_free_mbps(self) -> Floats:
        """`bandwidth_capacity_mbps` less what is requested, Mbit/s, shape (n,), NaN if unknown."""
        return self.bandwidth_capacity_mbps() - self.bandwidth_requested_mbps

    def bandwidth_possible_mbps(self) -> Floats:
        """Like `bandwidth_free_mbps`, but with the most that a link may do where only a lower bound
        of its capacity is measured."""
        most = self.measured.bandwidth_most_mbps
        if not most.size:
            return self.bandwidth_free_mbps()
        stated = self.table.bandwidth_mbps
        return np.where(np.isnan(stated), most, stated) - self.bandwidth_requested_mbps

    def bandwidth_host_limited(self) -> Bools:
        """Whether the bandwidth of each node's link is known only from tests in which a board was
        too busy, throttled or under voltage, shape (n,). A stated capacity is not measured."""
        limited = self.measured.bandwidth_host_limited
        if not limited.size:
            return np.zeros(len(self), dtype=np.bool_)
        return limited & np.isnan(self.table.bandwidth_mbps)

    def registry_mbps(self) -> Floats:
        """Bandwidth from the registry to each node, Mbit/s, shape (n,): stated, else as its pulls
        had it, else the measured bandwidth of the node's link, else NaN."""
        pulls = self.images.pull_mbps_of(self.table)
        pulls = np.where(np.isnan(pulls), self.measured.bandwidth_mbps, pulls)
        stated = self.table.registry_mbps
        return np.where(np.isnan(stated), pulls, stated)

    def pull(self, pod: Pod) -> Pull:
        """What the pod's images mean for each node."""
        return self.images.pull(self.table, pod, self.registry_mbps())

    def with_placement(
        self,
        pod: Pod,
        node: int,
        charge: Mapping[str, int] | None = None,
        volumes: VolumePlan | None = None,
    ) -> "ClusterView":
        """The view with `pod` on the node with index `node`. charge: what the strategy charges it
        within the run, by default its requests. volumes: the plan for its claims."""
        bandwidth = self.bandwidth_requested_mbps
        if pod.annotations.bandwidth_mbps:
            bandwidth = bandwidth.copy()
            bandwidth[node] += pod.annotations.bandwidth_mbps
        placed = self.placed_in_run.copy()
        placed[node] += 1
        recently = self.recently_placed_pods().copy()
        recently[node] += 1
        ports = self.host_ports
        if pod.host_ports:
            ports = {**ports, node: ports.get(node, ()) + pod.host_ports}
        mounts = self.mounts
        if pod.claims or pod.disks:
            mounts = {**mounts, node: (*mounts.get(node, ()), pod)}
        metrics, assumed = self._with_load([(pod, node)], +1)
        return replace(
            self,
            metrics=metrics,
            assumed=assumed,
            requested=self._with_amounts(self.requested, node, pod.requests),
            charged_in_run=self._with_amounts(
                self.charged_in_run, node, beyond_requests(pod, charge)
            ),
            bandwidth_requested_mbps=bandwidth,
            placed_in_run=placed,
            recently_placed=recently,
            host_ports=ports,
            assigned_pods=self.assigned_pods.with_pods([(pod, node)]),
            mounts=mounts,
            storage=self.storage if volumes is None else self.storage.assuming(volumes),
            images=self.images.with_pull(self.table, pod, node),
        )

    def _with_load(
        self, placed: Sequence[tuple[Pod, int]], sign: int
    ) -> tuple[NodeMetrics, AssumedLoad | None]:
        """Metrics and what is assumed, with (+1) or without (-1) what these pods are expected to
        use. No value falls below 0, also where a pod uses less than was expected."""
        assumed = self.assumed
        if assumed is None or not placed:
            return self.metrics, assumed
        columns = [getattr(self.metrics, name) for name in METRICS]
        unknown = assumed.rates_unknown
        for pod, node in placed:
            use = assumed.expected.of(pod)
            if sign > 0 and use.lacks_rates:
                unknown = unknown.copy()
                unknown[node] += 1
            more = BoardSize.of(self.table, node).added_by(use)
            more.append(-(pod.annotations.bandwidth_mbps or 0.0))
            for at, each in enumerate(more):
                if each:
                    column = columns[at] = columns[at].copy()
                    value = column[node] + sign * each
                    column[node] = 0.0 if value < 0.0 else value  # unknown stays unknown
        return self.metrics.with_values(columns), AssumedLoad(
            assumed.measured, assumed.expected, unknown
        )

    def _with_amounts(
        self, columns: Mapping[str, Ints], node: int, amounts: Mapping[str, int]
    ) -> Mapping[str, Ints]:
        if not amounts:
            return columns
        changed = dict(columns)
        for resource, amount in amounts.items():
            if amount:  # pods can request any name; each would need a column
                column = changed.get(resource)
                column = np.zeros(len(self), dtype=np.int64) if column is None else column.copy()
                column[node] += amount
                changed[resource] = column
        return changed

    def for_another_thread(self) -> "ClusterView":
        """The same view for another thread; see AssignedPods.for_another_thread."""
        return replace(self, assigned_pods=self.assigned_pods.for_another_thread())

    def without_placement(self, pod: Pod, node: int) -> "ClusterView":
        """The view without `pod` on the node with index `node`, which gets the pod's requests
        back. `placed_in_run` stays."""
        return self.without_placements([(pod, node)])

    def without_placements(self, placed: Sequence[tuple[Pod, int]]) -> "ClusterView":
        """The view without these pods, each with the index of its node. `placed_in_run` stays."""
        return self._counting(placed, -1, self.assigned_pods.without(placed))

    def with_assigned(self, placed: Sequence[tuple[Pod, int]]) -> "ClusterView":
        """The view with these pods, each with the index of its node, as pods that run there: none
        is part of the run or has images to pull."""
        return self._counting(placed, +1, self.assigned_pods.with_pods(placed))

    def _counting(
        self, placed: Sequence[tuple[Pod, int]], sign: int, assigned_pods: AssignedPods
    ) -> "ClusterView":
        names = {name for pod, _ in placed for name, amount in pod.requests.items() if amount}
        requested = {**self.requested, **{name: self.requested_of(name).copy() for name in names}}
        bandwidth = self.bandwidth_requested_mbps.copy()
        ports, mounts = dict(self.host_ports), dict(self.mounts)
        for pod, node in placed:
            for resource in names & pod.requests.keys():
                requested[resource][node] += sign * pod.requests[resource]
            if more_mbps := pod.annotations.bandwidth_mbps:
                bandwidth[node] = max(bandwidth[node] + sign * more_mbps, 0.0)
            if pod.host_ports:
                held = ports.get(node, ())
                ports[node] = held + pod.host_ports if sign > 0 else _without(held, pod.host_ports)
            if pod.claims or pod.disks:
                kept = tuple(each for each in mounts.get(node, ()) if each.key != pod.key)
                mounts[node] = (*kept, pod) if sign > 0 else kept
        metrics, assumed = self._with_load(placed, sign)
        return replace(
            self,
            metrics=metrics,
            assumed=assumed,
            requested=requested,
            bandwidth_requested_mbps=bandwidth,
            host_ports=ports,
            assigned_pods=assigned_pods,
            mounts=mounts,
        )


def _without(held: Iterable[HostPort], freed: Iterable[HostPort]) -> tuple[HostPort, ...]:
    left = list(held)
    for port in freed:
        if port in left:
            left.remove(port)
    return tuple(left)


def beyond_requests(pod: Pod, charge: Mapping[str, int] | None) -> Mapping[str, int]:
    """What a charge takes beyond the pod's requests, resource -> base units; empty without one."""
    if charge is None or charge is pod.requests:
        return {}
    names = dict.fromkeys((*charge, *pod.requests))
    more = {name: charge.get(name, 0) - pod.requests.get(name, 0) for name in names}
    return {name: amount for name, amount in more.items() if amount}
