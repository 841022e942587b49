"""Who talks to whom: the boards' reports, joined with the cluster, and what decisions read of that.

Counts belong to workloads and not to pods, so a new replica has the traffic of those before it.
`update` runs on a thread; what it finds may be read from any other one meanwhile.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from threading import Lock

import numpy as np

from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.services import Service
from leadline_controller.framework.traffic import NO_TRAFFIC, PeerTraffic, Traffic
from leadline_controller.telemetry.traffic import BoardTraffic, TrafficReports
from leadline_controller.traffic import stored
from leadline_controller.traffic.counts import BoardCounts
from leadline_controller.traffic.edges import DAY_S, HOUR_S, End, TrafficEdge
from leadline_controller.traffic.join import Addresses, Key, credited
from leadline_controller.traffic.joined import MANY_PORTS, Joined, join

_MOST_EDGES = 4096
_MOST_PEERS = 32  # of one workload, for decisions
_GONE_S = 600.0  # a restart of all replicas takes less


class TrafficGraph:
    """The graph of the traffic. reports: where the boards' reports wait. unix_offset_s: from the
    clock of the decisions to the wall clock, None while that is not set. is_kept: whether something
    in the cluster may make pods like this one again, so that the counts of its workload stay.

    reports: how many reports it has taken in. dropped: how many edges were dropped, as there were
    more than 4,096.
    """

    def __init__(
        self,
        reports: TrafficReports,
        unix_offset_s: Callable[[], float | None] = lambda: None,
        is_kept: Callable[[Pod], bool] = lambda _: False,
    ) -> None:
        self.reports = self.dropped = 0
        self._lock = Lock()  # of the counts
        self._waiting, self._unix_offset_s, self._is_kept = reports, unix_offset_s, is_kept
        self._addresses = Addresses(unix_offset_s)
        self._boards: dict[str, BoardCounts] = {}
        self._nodes: Mapping[str, Node] = {}
        self._joined = Joined()
        self._counted_s: dict[str, float] = {}  # by board
        self._pods: dict[Service, int] = {}  # that run

    def is_idle(self) -> bool:
        """Whether no board has reported any traffic, so that there is nothing to update."""
        return not self._boards and self._waiting.is_empty()

    def update(self, pods: Iterable[Pod], nodes: Mapping[str, Node], now_s: float) -> None:
        """Take in the reports that wait. pods, nodes: all of the cluster, now; nodes by name."""
        with self._lock:
            self._nodes = nodes
            self._addresses.update(pods, nodes, now_s)
            for report in self._waiting.take(now_s):
                if report.node in nodes:
                    self.reports += 1
                    self._count(report)
            self._forget(now_s)
            names = self._addresses.names
            self._joined = join(self._boards, self._is_over, names, now_s, _MOST_EDGES)
            self._drop()
        self._pods = {who: sum(on.values()) for who, on in self._addresses.running.items()}
        self._counted_s = {node: board.counted_s for node, board in self._boards.items()}

    def edges(self, now_s: float) -> list[TrafficEdge]:
        """What is known of the traffic, of the last day; those with the most bytes of the last
        hour first."""
        return [each for each in self._joined.edges if now_s - each.counted_s <= DAY_S]

    def reporting(self, now_s: float) -> dict[str, float]:
        """The boards that have reported traffic in the last day, with the seconds since."""
        ages_s = {node: now_s - counted_s for node, counted_s in self._counted_s.items()}
        return {node: age_s for node, age_s in ages_s.items() if age_s <= DAY_S}

    def traffic(self, now_s: float) -> Traffic:
        """What a decision reads: the means of the last hour, of each pod."""
        joined = self._joined
        peers: defaultdict[Service, dict[Service | str, PeerTraffic]] = defaultdict(dict)
        for edge in joined.edges:
            if now_s - edge.counted_s > HOUR_S:
                continue
            for end, other in (
                (edge.source, edge.destination),
                (edge.destination, edge.source),
            ):
                if end.workload is not None:
                    of = peers[end.workload]
                    key: Service | str = other.workload or other.name
                    of[key] = _with(of.get(key), other, edge, self._pods.get(end.workload, 1))
        if not peers:
            return NO_TRAFFIC
        return Traffic(
            {
                who: tuple(sorted(of.values(), key=lambda x: (-x.mbps, x.name))[:_MOST_PEERS])
                for who, of in peers.items()
            },
            joined.entries,
            joined.flowing_mbps,
        )

    def document(self, now_s: float) -> bytes:
        """All of it, for `load`."""
        with self._lock:
            return stored.encode(self._boards, self._addresses.names, now_s, self._unix_s(now_s))

    def load(self, document: bytes, now_s: float) -> None:
        """Begin with what was stored before, as long as no board has reported. Raises ValueError,
        and stays as it is then."""
        boards, names = stored.decode(document, now_s, self._unix_s(now_s))
        if self._boards:
            return
        self._boards = {
            node: board for node, board in boards.items() if now_s - board.counted_s <= DAY_S
        }
        self._addresses.names.update(names)
        # Their pods may not run yet.
        self._addresses.seen_s.update(dict.fromkeys(_workloads(self._boards), now_s))

    def _unix_s(self, now_s: float) -> float | None:
        offset_s = self._unix_offset_s()
        return None if offset_s is None else now_s + offset_s

    def _count(self, report: BoardTraffic) -> None:
        end_s = report.counted_s
        begin_s = end_s - report.duration_s
        counts: dict[Key, list[float]] = {}
        least_bytes = np.inf
        for flow in report.flows:
            amounts = [
                float(flow.bytes_sent + flow.bytes_received),
                float(flow.packets_sent + flow.packets_received),
                float(flow.connections),
                float(min(flow.packets_sent, flow.packets_received)),
            ]
            least_bytes = min(least_bytes, amounts[0])
            key = credited(flow, report.node, self._addresses, begin_s, end_s)
            if key is not None:
                before = counts.get(key)
                counts[key] = (
                    amounts
                    if before is None
                    else [a + b for a, b in zip(before, amounts, strict=True)]
                )
        omitted_bytes = min(float(report.omitted_bytes), least_bytes)
        board = self._boards.setdefault(report.node, BoardCounts())
        board.add(counts, omitted_bytes, end_s, report.duration_s)

    def _is_over(self, node: str, key: Key) -> bool:
        own = key.source if key.source.node == node else key.destination
        if isinstance(own.who, str):
            return node not in self._nodes
        return node not in self._addresses.running.get(own.who, {})

    def _forget(self, now_s: float) -> None:
        """Forget nodes and workloads that are gone."""
        addresses = self._addresses
        gone = set[Service]()
        for who, seen_s in list(addresses.seen_s.items()):
            if seen_s < now_s:
                pod = addresses.pods.get(who) or Pod(who[0], "", labels=dict(who[1]))
                if now_s - seen_s <= _GONE_S or self._is_kept(pod):
                    continue
                gone.add(who)
                addresses.forget_workload(who)
        for node, board in list(self._boards.items()):
            if node not in self._nodes and now_s - board.counted_s > _GONE_S:
                del self._boards[node]
            elif gone:
                board.retain(
                    [
                        key
                        for key in board.keys
                        if key.source.who not in gone and key.destination.who not in gone
                    ]
                )

    def _drop(self) -> None:
        """Drop the edges beyond the limit, with all that is counted of them."""
        kept, dropped = self._joined.keys[:_MOST_EDGES], set(self._joined.keys[_MOST_EDGES:])
        self.dropped += len(dropped)
        if not dropped:
            return
        # Where many ports count together, there is no other edge between the two.
        whole = {edge[:2] for edge in dropped if edge[2] == MANY_PORTS}
        whole -= {edge[:2] for edge in kept}
        for board in self._boards.values():
            board.retain(
                [
                    key
                    for key in board.keys
                    if (key.source.who, key.destination.who, key.port) not in dropped
                    and (key.source.who, key.destination.who) not in whole
                ]
            )


def _with(before: PeerTraffic | None, other: End, edge: TrafficEdge, pods: int) -> PeerTraffic:
    """What one of `pods` exchanges with this peer, with what an edge adds to it."""
    least, most = (each / pods for each in edge.requests_per_s)
    mbps = edge.rates[HOUR_S].mbps / pods
    if before is not None:
        mbps += before.mbps
        least += before.least_requests_per_s
        most += before.most_requests_per_s
    return PeerTraffic(other.workload or other.node, other.name, mbps, least, most)


def _workloads(boards: Mapping[str, BoardCounts]) -> Iterable[Service]:
    for board in boards.values():
        for key in board.keys:
            for place in (key.source, key.destination):
                if not isinstance(place.who, str):
                    yield place.who
