"""The cluster view of one scheduling cycle: columns over the nodes, so that a decision over
thousands of nodes takes a few array operations.

Every array has one entry for each node, in the order of `ClusterView.nodes`. An unknown
measurement is NaN, never zero.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from math import log, sqrt
from types import MappingProxyType
from typing import Protocol

import numpy as np

from leadline_controller.framework.assigned_pods import AssignedPods, Namespaces
from leadline_controller.framework.assumed_load import BoardSize, Expectations
from leadline_controller.framework.callers import Callers
from leadline_controller.framework.cluster_objects import PodSelectors, Storage, VolumePlan
from leadline_controller.framework.image_layers import ImageTable, Pull
from leadline_controller.framework.model import HostPort, Link, Node, Pod
from leadline_controller.framework.node_table import Bools as Bools
from leadline_controller.framework.node_table import Floats as Floats
from leadline_controller.framework.node_table import Ints as Ints
from leadline_controller.framework.node_table import NodeTable as NodeTable
from leadline_controller.framework.traffic import NO_TRAFFIC, PodPeers, Traffic


def deviations_off(count: int) -> float:
    """How many standard deviations another one of `count` readings of the same may be from the best
    of these. That lies at most sqrt(2 ln n) deviations off on average (the maximum of n Gaussian
    variables); and the other one may lie one off to the other side."""
    return 1.0 + sqrt(2.0 * log(count))


# A pod that was killed, or whose board restarted, serves again after so long.
RESTART_S = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class NodeMetrics:
    """The agents' measurements, one column each, shape (n,), NaN if unknown or too old."""

    cpu_percent: Floats
    memory_percent: Floats
    packets_sent_per_s: Floats
    packets_received_per_s: Floats
    disk_bytes_per_s: Floats
    bandwidth_mbps: Floats
    # The time of each measurement, shape (n, m) with a column for each of METRICS, seconds on the
    # clock of the decision; shape (0, 0) without times, as in a snapshot.
    measured_at_s: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    # What the link can do at most; where only a lower bound is measured, the interface's speed, inf
    # if unknown. Shape (0,) if no bandwidth is a bound, as in a snapshot.
    bandwidth_most_mbps: Floats = field(default_factory=lambda: np.zeros(0))
    # Whether a board was too busy, throttled or under voltage in the test, so that the link may do
    # more. Shape (0,) in a snapshot.
    bandwidth_host_limited: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    # The standard deviation of one reading, in the metric's unit, shape (n, m) with a column for
    # each of METRICS, 0 where unknown; shape (0, 0) if none is known, as in most snapshots.
    errors: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    # How many times as long work takes on a board because it is throttled, 1 where it is not or
    # nothing tells, and the standard deviation. Shape (0,) if no board is.
    throttling: Floats = field(default_factory=lambda: np.zeros(0))
    throttling_error: Floats = field(default_factory=lambda: np.zeros(0))
    # What a request waits on average because the board goes away again and again, ms, 0 where it
    # does not or nothing tells. Shape (0,) if no board does.
    absence_ms: Floats = field(default_factory=lambda: np.zeros(0))

    def margins_of(self, metrics: Sequence[str], nodes: Ints) -> Floats | None:
        """How much worse than the best of `nodes` each of them may read in m metrics and still be
        as good, shape (m, len(nodes)); None where errors are not known."""
        if not self.errors.size:
            return None
        columns = self.errors[nodes].T[[METRICS.index(metric) for metric in metrics]]
        return columns * deviations_off(nodes.size)

    def with_values(self, columns: Iterable[Floats]) -> "NodeMetrics":
        """With other values, in the order of METRICS; the rest stays."""
        cpu, memory, sent, received, disk, bandwidth = columns
        return NodeMetrics(
            *(cpu, memory, sent, received, disk, bandwidth),
            *(self.measured_at_s, self.bandwidth_most_mbps),
            *(self.bandwidth_host_limited, self.errors),
            *(self.throttling, self.throttling_error, self.absence_ms),
        )

    @classmethod
    def unknown(cls, count: int) -> "NodeMetrics":
        """No measurements for `count` nodes."""
        return cls.of({name: np.full(count, np.nan) for name in METRICS})

    @classmethod
    def of(cls, columns: Mapping[str, Floats]) -> "NodeMetrics":
        """Of one column for each of METRICS."""
        return cls(**columns, bandwidth_host_limited=np.zeros(0, dtype=np.bool_))


METRICS: tuple[str, ...] = tuple(
    f.name for f in fields(NodeMetrics) if f.default is MISSING and f.default_factory is MISSING
)


# Of so few nodes, the round trips to each are taken one by one; of more, those of a sample are.
_FEW_NODES, _SAMPLED_NODES = 8, 128


class Estimates(Protocol):
    """Round trips between the n nodes of a table that were not measured, ms, NaN if unknown."""

    def rtt_ms_from(self, node: int) -> Floats:
        """From `node` to each, shape (n,)."""
        ...

    def modelled_ms(self, a: Ints, b: Ints) -> Floats:
        """Of m pairs, shape (m,). Quicker than rtt_ms_from, and less precise."""
        ...

    def modelled_ms_to(self, nodes: Ints) -> Floats:
        """From each to m nodes, shape (n, m). As modelled_ms."""
        ...


class LinkTable:
    """Round trips between nodes: the measured ones, sparse, because a full mesh of thousands of
    nodes is not measured, and estimates of the others where there are any. unreachable: the ends of
    links that lose all packets, shape (k, 2)."""

    def __init__(self, index: Mapping[str, int], links: Sequence[Link]) -> None:
        pairs = [
            (index[link.a], index[link.b], link.rtt_ms)
            for link in links
            if link.rtt_ms is not None and link.a in index and link.b in index
        ]
        ends = np.array([(a, b) for a, b, _ in pairs], dtype=np.int64).reshape(-1, 2)
        self._fill(len(index), ends, np.array([rtt for _, _, rtt in pairs], dtype=np.float64))

    @classmethod
    def of_columns(
        cls,
        count: int,
        ends: Ints,
        rtt_ms: Floats,
        at_s: Floats,
        estimates: Estimates | None = None,
        unreachable: Ints | None = None,
    ) -> "LinkTable":
        """A table of m links between `count` nodes. ends: indexes of each link's nodes, shape
        (m, 2). rtt_ms: round trips, ms, shape (m,). at_s: their times, shape (m,).
        estimates: of the other pairs. unreachable: the ends of k links that lose all packets,
        shape (k, 2): they are unknown, and not estimated."""
        table = cls.__new__(cls)
        table._fill(count, ends, rtt_ms, at_s)
        table.estimates = estimates
        if unreachable is not None:
            table.unreachable = unreachable
            for a, b in unreachable.tolist():
                table._unreachable.setdefault(a, []).append(b)
                table._unreachable.setdefault(b, []).append(a)
        return table

    def _fill(self, count: int, ends: Ints, rtt_ms: Floats, at_s: Floats | None = None) -> None:
        self._count = count
        self.estimates: Estimates | None = None
        self.unreachable: Ints = np.zeros((0, 2), dtype=np.int64)
        self._unreachable: dict[int, list[int]] = {}
        self._statistics: tuple[Bools, Floats, Floats] | None = None
        at_s = np.full(rtt_ms.shape, np.nan) if at_s is None else at_s
        self._at_s = np.concatenate((at_s, at_s))
        self._from = np.concatenate((ends[:, 0], ends[:, 1]))
        self._to = np.concatenate((ends[:, 1], ends[:, 0]))
        self._rtt_ms = np.concatenate((rtt_ms, rtt_ms))
        self._order = np.argsort(self._from, kind="stable")
        self._starts = np.searchsorted(self._from[self._order], np.arange(self._count + 1))

    def rtt_ms_from(self, node: int) -> Floats:
        """Round trip from `node` to each node, ms, shape (n,): measured, else estimated, else
        NaN. A node that does not reply is NaN."""
        if self.estimates is None:
            column = np.full(self._count, np.nan)
        else:
            column = self.estimates.rtt_ms_from(node)
        rows = self._order[self._starts[node] : self._starts[node + 1]]
        column[self._to[rows]] = self._rtt_ms[rows]
        column[self._unreachable.get(node, [])] = np.nan
        return column

    def measured(self) -> tuple[Ints, Floats, Floats]:
        """Of the m measured links the ends, shape (m, 2), the round trips, ms, and the times, NaN
        if unknown, shapes (m,), in their order."""
        count = len(self._rtt_ms) // 2
        ends = np.stack((self._from[:count], self._to[:count]), axis=1)
        return ends, self._rtt_ms[:count], self._at_s[:count]

    @cached_property
    def oldest_at_s(self) -> Floats:
        """Time of the oldest measurement of each node's round trips, shape (n,), seconds on the
        clock of the decision; NaN if there is none."""
        oldest = np.full(self._count, np.inf)
        np.fmin.at(oldest, self._from, self._at_s)
        oldest[np.isinf(oldest)] = np.nan
        return oldest

    @cached_property
    def worst_rtt_ms(self) -> float:
        """The longest measured round trip of all links, ms; NaN if there is none."""
        return float(self._rtt_ms.max()) if self._rtt_ms.size else float("nan")

    def rtt_mean_and_deviation_ms(self, among: Bools) -> tuple[Floats, Floats]:
        """Mean and population standard deviation of each node's round trips to the other nodes of
        `among`, ms, shapes (n,), NaN for a node without any (DACS Eq. 12-13). The last result is
        cached, because many decisions share it.

        Pairs that are not measured count as estimated: which pairs are measured first says nothing
        about a node, but would change its mean.
        """
        cached = self._statistics  # once, as another thread may replace it
        if cached is not None and cached[0] is among:
            return cached[1:]
        if self.estimates is None:
            kept = among[self._to]
            found = self._sums(self._from[kept], self._rtt_ms[kept])
        elif among.sum() <= _FEW_NODES:
            nodes = np.flatnonzero(among)
            rows = [self.rtt_ms_from(int(node)) for node in nodes]
            rtt_ms = np.array(rows).reshape(-1, self._count)
            rtt_ms[np.arange(len(nodes)), nodes] = np.nan
            here = np.flatnonzero(~np.isnan(rtt_ms))
            found = self._sums(here % self._count, rtt_ms.ravel()[here])
        else:
            found = self._sums_with_estimates(self.estimates, among)
        count, total, square = found
        with np.errstate(invalid="ignore"):
            mean = total / count
            # Rounding can make the variance of equal values slightly negative.
            deviation = np.sqrt(np.maximum(square / count - mean**2, 0.0))
        self._statistics = among, mean, deviation
        return mean, deviation

    def _sums(self, nodes: Ints, rtt_ms: Floats) -> Floats:
        """For each node the number, the sum and the sum of squares of its values, shape (3, n)."""
        weights = (np.ones(len(nodes)), rtt_ms, rtt_ms**2)
        return np.array([np.bincount(nodes, each, self._count) for each in weights])

    def _sums_with_estimates(self, estimates: Estimates, among: Bools) -> Floats:
        """As _sums, of each node's pairs with `among`, in O(n + m).

        The model's sums are those of a sample of `among`, the same one for all nodes, and each
        measured pair adds its difference from the model: a difference estimator (Cochran,
        "Sampling Techniques", 3rd edition 1977, section 7.9).
        """
        nodes = sample = np.flatnonzero(among)
        if len(nodes) > _SAMPLED_NODES:
            sample = np.random.default_rng(0).choice(nodes, _SAMPLED_NODES, replace=False)
        modelled_ms = estimates.modelled_ms_to(sample)
        modelled_ms[sample, np.arange(len(sample))] = np.nan
        is_known = ~np.isnan(modelled_ms)
        modelled_ms[~is_known] = 0.0
        square = np.einsum("ij,ij->i", modelled_ms, modelled_ms)
        whole = np.array([is_known.sum(axis=1), modelled_ms.sum(axis=1), square])
        whole *= len(nodes) / len(sample)
        kept = among[self._to]
        measured = self._sums(self._from[kept], self._rtt_ms[kept])
        lost = [(a, b) for a, others in self._unreachable.items() for b in others]
        not_modelled = np.concatenate(
            (np.stack((self._from, self._to), axis=1), np.reshape(lost, (-1, 2)).astype(np.int64))
        )
        not_modelled = not_modelled[among[not_modelled[:, 1]]]
        instead_ms = estimates.modelled_ms(*not_modelled.T)
        is_known = ~np.isnan(instead_ms)
        found = whole + measured - self._sums(not_modelled[is_known, 0], instead_ms[is_known])
        # Of a node that hardly any other one can reach, the model says nothing.
        return np.where(found[0] < whole[0] / 2, measured, found)


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
