"""Who talks to whom, as messages of the inspection service: what boards counted and what pods
declare, with the nodes of both ends, the round trip between them, and what it takes of the links.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from leadline_wire.v1 import traffic_pb2 as pb

from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import NODE_PEER, DeclaredPeer, Pod
from leadline_controller.framework.peers import declared_end
from leadline_controller.framework.selectors import selects
from leadline_controller.framework.services import Service, workload_name
from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.inspect.order import in_order
from leadline_controller.inspect.parts import Observed
from leadline_controller.traffic.edges import DAY_S, HOUR_S, MINUTE_S, End, Rates, TrafficEdge

# Of an end on more nodes, those with the most of its pods stand for all.
_MOST_NODES = 256
_MOST_COLUMNS = 1024  # of round trips, kept while edges are read


class Links(NamedTuple):
    """The links that an edge's traffic takes: the indexes of both nodes, a < b, and the part of the
    traffic that each carries; all of shape (m,). What stays on one node takes none."""

    a: Ints
    b: Ints
    part: Floats


class _Spread(NamedTuple):
    """Where the pods of an end are: the indexes of m nodes, those with the most first, and the
    share of the pods on each, 1 in sum; shape (m,)."""

    nodes: Ints
    share: Floats


class ReadEdge(NamedTuple):
    """An edge as a message, the links that it takes, and what the edge counts for in the last
    minute, Mbit/s: what was counted, else what is declared."""

    message: pb.TrafficEdge
    links: Links
    mbps: float


@dataclass(slots=True)
class _Declared:
    """What the pods of a workload declare of one peer, together."""

    source: End
    destination: End
    mbps: float = 0.0
    requests_per_s: float | None = None

    def add(self, peer: DeclaredPeer) -> None:
        self.mbps += peer.mbps
        if peer.requests_per_s is not None:
            self.requests_per_s = (self.requests_per_s or 0.0) + peer.requests_per_s


class TrafficReader:
    """Reads the traffic at one snapshot. Made in the event loop; its methods may be called on any
    thread."""

    def __init__(self, source: Observed) -> None:
        self._now_s = source.clock.now_s()
        self._view = source.state.view(source.telemetry, self._now_s)
        self._telemetry = source.telemetry
        self._counted = source.traffic_graph.edges(self._now_s)
        self._ages_s = dict(source.traffic_graph.reporting(self._now_s))
        self._dropped = source.traffic_graph.dropped
        self._pods = [
            (pod, self._view.table.index[node])
            for pod, node in source.state.pods()
            if node is not None and node in self._view.table.index and not pod.finished
        ]
        self._capacity_mbps = self._view.bandwidth_capacity_mbps()
        self._columns: dict[int, Floats] = {}
        self._expected: dict[str, Floats] = {}
        self._spreads: dict[str, _Spread] = {}
        self._peers: dict[tuple[str, str], End] = {}  # by the pod's namespace and the declared name

    def knows(self, of: str) -> bool:
        """Whether there is such a workload, node or address."""
        if self._node(of) is not None:
            return True
        ends = (end for edge in self._edges for end in edge[:2])
        return of in self._workloads or any(end.name == of for end in ends)

    def response(self, of: str = "") -> pb.GetTrafficResponse:
        """All edges, or those in which this takes part; see GetTrafficRequest."""
        found = self.response_head()
        found.edges.extend(each.message for each in self.read(of))
        return found

    def response_head(self) -> pb.GetTrafficResponse:
        """The answer without its edges."""
        return pb.GetTrafficResponse(
            report_age_s=min(self._ages_s.values(), default=None),
            nodes=sorted(self._ages_s, key=in_order),
            dropped=self._dropped,
        )

    def count(self) -> int:
        """How many edges there are."""
        return len(self._edges)

    def read(self, of: str = "", most: int | None = None) -> Iterator[ReadEdge]:
        """The edges in which this takes part, at most so many; see GetTrafficResponse."""
        edges = self._edges
        if of:
            edges = [edge for edge in edges if self._takes_part(of, edge[0], edge[1])]
        for source, destination, counted, declared in edges[:most]:
            yield self._read(source, destination, counted, declared)

    def name(self, node: int) -> str:
        """Of the node with this index."""
        return self._view.nodes[node].name

    def capacity_mbps(self, a: Ints, b: Ints) -> Floats:
        """What the links between m pairs of nodes can do, a < b: as tested, else as the slower node
        can; Mbit/s, NaN if unknown; shape (m,)."""
        found: Floats = np.minimum(self._capacity_mbps[a], self._capacity_mbps[b])
        codes, mbps = self._tested
        if codes.size:
            wanted = a * len(self._view) + b
            at = np.minimum(np.searchsorted(codes, wanted), codes.size - 1)
            found = np.where(codes[at] == wanted, mbps[at], found)
        return found

    @cached_property
    def _tested(self) -> tuple[Ints, Floats]:
        """The pairs with a bandwidth test as a * n + b, sorted, and Mbit/s."""
        index = self._view.table.index
        pairs = self._telemetry.pairs(self._now_s, by_broker=False).tested
        found = sorted(
            (min(index[a], index[b]) * len(index) + max(index[a], index[b]), mbps)
            for (a, b), mbps in pairs.items()
            if a in index and b in index
        )
        codes, mbps = zip(*found, strict=True) if found else ((), ())
        return np.array(codes, dtype=np.int64), np.array(mbps, dtype=np.float64)

    @cached_property
    def _places(self) -> Mapping[Service, Counter[int]]:
        """Workload -> the nodes of its pods, with how many are on each."""
        found: dict[Service, Counter[int]] = {}
        for pod, node in self._pods:
            found.setdefault(workload_of(pod), Counter())[node] += 1
        return found

    @cached_property
    def _workloads(self) -> Mapping[str, End]:
        """The workloads by namespace/name."""
        return {name: End(name, workload_of(pod)) for name, pod in self._named.items()}

    @cached_property
    def _named(self) -> Mapping[str, Pod]:
        """namespace/name of a workload -> one of its pods."""
        return {workload_name(pod): pod for pod, _ in self._pods}

    @cached_property
    def _edges(self) -> list[tuple[End, End, TrafficEdge | None, _Declared | None]]:
        """What is counted, marked where it is declared as well, and then what is only declared."""
        declared: dict[tuple[str, str], _Declared] = {}
        for pod, _ in self._pods:
            for peer in pod.annotations.peers:
                source, destination = self._workloads[workload_name(pod)], self._peer(pod, peer)
                key = source.name, destination.name
                declared.setdefault(key, _Declared(source, destination)).add(peer)
        found: list[tuple[End, End, TrafficEdge | None, _Declared | None]] = []
        known = set()
        for edge in self._counted:
            key = edge.source.name, edge.destination.name
            known.add(key)
            found.append((edge.source, edge.destination, edge, declared.get(key)))
        alone = [each for key, each in declared.items() if key not in known]
        alone.sort(key=lambda each: -each.mbps)
        return found + [(each.source, each.destination, None, each) for each in alone]

    def _peer(self, pod: Pod, peer: DeclaredPeer) -> End:
        """The other end of what a pod declares. A Service is the workload of its pods."""
        key = pod.namespace, peer.name
        if (known := self._peers.get(key)) is not None:
            return known
        end = declared_end(self._view, pod, peer)
        found = None
        if end.selector is not None:
            namespace = end.name.partition("/")[0]
            for name, other in self._named.items():
                if other.namespace == namespace and selects(end.selector, other.labels):
                    found = self._workloads[name]
                    break
        elif not end.node:
            found = self._workloads.get(end.name)
        self._peers[key] = found = found or End(end.name, node=end.node)
        return found

    def _takes_part(self, of: str, *ends: End) -> bool:
        if any(end.name == of for end in ends):
            return True
        node = self._node(of)
        return node is not None and any(node in self._nodes_of(end) for end in ends)

    def _node(self, name: str) -> int | None:
        """The index of what is called "node/name"; None for anything else."""
        if not name.startswith(NODE_PEER):
            return None
        return self._view.table.index.get(name.removeprefix(NODE_PEER))

    def _nodes_of(self, end: End) -> Mapping[int, int]:
        """The nodes of an end, with its pods on each."""
        if end.workload is not None:
            return self._places.get(end.workload, {})
        node = self._view.table.index.get(end.node)
        return {} if node is None else {node: 1}

    def _read(
        self,
        source: End,
        destination: End,
        counted: TrafficEdge | None,
        declared: _Declared | None,
    ) -> ReadEdge:
        nodes = self._nodes_of(source), self._nodes_of(destination)
        made = pb.TrafficEdge(
            source=source.name,
            destination=destination.name,
            declared=declared is not None,
            source_nodes={self.name(node): pods for node, pods in nodes[0].items()},
            destination_nodes={self.name(node): pods for node, pods in nodes[1].items()},
        )
        spreads = self._spread(source), self._spread(destination)
        links, mbps = _links(*spreads, len(self._view)), 0.0
        if declared is not None:
            made.declared_mbps = mbps = declared.mbps
        if counted is not None:
            rates = counted.rates
            made.port, made.one_sided = counted.port, counted.one_sided
            made.age_s = max(0.0, self._now_s - counted.counted_s)
            made.requests_least_per_s, made.requests_most_per_s = counted.requests_per_s
            for name, length_s in (("minute", MINUTE_S), ("hour", HOUR_S), ("day", DAY_S)):
                if length_s in rates:
                    getattr(made, name).CopyFrom(_rates(rates[length_s]))
            mbps = rates[MINUTE_S].mbps if MINUTE_S in rates else 0.0
            if MINUTE_S in rates and all(nodes):
                _set(made, "link_share", self._share(links, mbps))
        if declared is not None and declared.requests_per_s is not None:
            made.requests_least_per_s = made.requests_most_per_s = declared.requests_per_s
        if all(nodes):
            self._set_round_trips(made, source, destination)
        return ReadEdge(made, links, mbps)

    def _share(self, links: Links, mbps: float) -> float:
        """The most that so much traffic takes of a link; 0 if it takes none, NaN if unknown."""
        with np.errstate(divide="ignore", invalid="ignore"):  # a node may state 0
            share = mbps * links.part / self.capacity_mbps(links.a, links.b)
        share = share[np.isfinite(share)]
        if not links.part.size:
            return 0.0
        return min(1.0, float(share.max())) if share.size else math.nan

    def _set_round_trips(self, made: pb.TrafficEdge, source: End, destination: End) -> None:
        moves, stays = source, destination
        if source.workload is None:
            moves, stays = destination, source
        expected_ms, at = self._expected_ms(stays), self._spread(moves)
        _set(made, "rtt_ms", float(at.share @ expected_ms[at.nodes]))
        if moves.workload is None:
            return
        made.moves = moves.name
        open_ms = np.where(self._is_open, expected_ms, np.nan)
        if not np.isnan(open_ms).all():
            # Of equal ones that where most of its pods are; they come first.
            least = np.nanmin(open_ms)
            own = at.nodes[open_ms[at.nodes] == least]
            best = int(own[0]) if own.size else int(np.nanargmin(open_ms))
            made.best_rtt_ms, made.best_node = float(least), self.name(best)

    @cached_property
    def _is_open(self) -> Bools:
        """Whether a node is ready and schedulable, shape (n,)."""
        return np.array([x.ready and not x.unschedulable for x in self._view.nodes], dtype=np.bool_)

    def _spread(self, end: End) -> _Spread:
        found = self._spreads.get(end.name)
        if found is None:
            most = Counter(self._nodes_of(end)).most_common(_MOST_NODES)
            pods = np.array([count for _, count in most], dtype=np.float64)
            nodes = np.array([node for node, _ in most], dtype=np.int64)
            found = self._spreads[end.name] = _Spread(nodes, pods / max(pods.sum(), 1.0))
        return found

    def _expected_ms(self, end: End) -> Floats:
        """The mean round trip from each node to the pods of an end, ms, shape (n,), NaN if any is
        unknown. A pod on the same node takes none."""
        found = self._expected.get(end.name)
        if found is None:
            found = np.zeros(len(self._view))
            for node, share in zip(*(x.tolist() for x in self._spread(end)), strict=True):
                found += share * self._rtt_ms_from(node)
            self._expected[end.name] = found
        return found

    def _rtt_ms_from(self, node: int) -> Floats:
        """As LinkTable has it, and 0 to itself. Estimates take a millisecond."""
        column = self._columns.get(node)
        if column is None:
            column = self._view.links.rtt_ms_from(node)
            column[node] = 0.0
            if len(self._columns) == _MOST_COLUMNS:
                self._columns.clear()
            self._columns[node] = column
        return column


def _links(source: _Spread, destination: _Spread, count: int) -> Links:
    """Each pod of one end exchanges the same with each of the other one. count: of all nodes."""
    a = np.repeat(source.nodes, destination.nodes.size)
    b = np.tile(destination.nodes, source.nodes.size)
    part = np.multiply.outer(source.share, destination.share).ravel()
    code = np.minimum(a, b) * count + np.maximum(a, b)
    found, at = np.unique(code[a != b], return_inverse=True)
    sums: Floats = np.bincount(at, part[a != b], found.size).astype(np.float64)
    return Links(found // count, found % count, sums)


def _rates(rates: Rates) -> pb.TrafficRates:
    return pb.TrafficRates(
        mbps=rates.mbps,
        packets_per_s=rates.packets_per_s,
        connections_per_s=rates.connections_per_s,
    )


def _set(message: pb.TrafficEdge, name: str, value: float) -> None:
    """Set a field, unless the value is unknown."""
    if math.isfinite(value):
        setattr(message, name, value)
