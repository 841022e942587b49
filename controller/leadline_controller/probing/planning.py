"""Plans which nodes probe the network, when, and how much. No I/O.

Only one bandwidth test runs at a time in the cluster, because two tests would disturb each other
(perfSONAR's rule: throughput tests are exclusive, latency tests run in the background).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from leadline_wire.v1 import telemetry_pb2 as pb

# The longest delivery of a lease: the expiry of its message on the wire.
DELIVERY_S = 5.0
# All pairs of 200 nodes, which take some milliseconds.
MAX_PAIRS_SCANNED = 20_000


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """Limits on the cost of probing.

    interval_s: seconds between the starts of two bandwidth tests. ping_peers: the most peers of a
    node. The others limit one test or one round of pings.
    """

    interval_s: float = 15.0
    duration_ms: int = 2000
    max_bytes: int = 30_000_000
    ttl_ms: int = 5000
    port: int = 5201
    ping_peers: int = 5
    ping_interval_s: int = 10
    ping_count: int = 3
    ping_ttl_s: int = 60


@dataclass(frozen=True, slots=True)
class RunningLease:
    """The bandwidth lease in progress, and the latest time at which it ends."""

    client: str
    server: str
    lease_id: str
    ends_s: float


def pairs(
    nodes: Sequence[str], anchors: Sequence[str], after: tuple[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """The (client, server) pairs to test: each node with each anchor (n tests per anchor for n
    nodes), or all pairs (n²/2) without anchors.

    A generator, because n²/2 pairs are too many to store. It starts with the pairs of the node, or
    of the anchor, of the pair `after`, and then wraps around.
    """
    names = sorted(nodes)
    there = frozenset(names)
    present = [anchor for anchor in dict.fromkeys(anchors) if anchor in there]
    if present:
        at = present.index(after[1]) if after and after[1] in present else 0
        for i in (*range(at, len(present)), *range(at)):
            earlier = frozenset(present[: i + 1])
            yield from ((node, present[i]) for node in names if node not in earlier)
        return
    at = bisect_left(names, after[0]) if after else 0
    for i in (*range(at, len(names)), *range(at)):
        yield from ((names[i], names[j]) for j in range(i + 1, len(names)))


class RoundRobin:
    """Grants one bandwidth lease at a time, to the pair that has waited longest.

    It scans and remembers MAX_PAIRS_SCANNED pairs. These are all pairs of 200 nodes, or of more
    nodes with few anchors; otherwise they are the next pairs in turn.
    """

    def __init__(self, limits: ProbeLimits) -> None:
        self._limits = limits
        self._last_s: dict[tuple[str, str], float] = {}  # the latest last
        self._running: RunningLease | None = None
        self._next_s = float("-inf")
        self._count = 0

    @property
    def running(self) -> RunningLease | None:
        """The lease in progress."""
        return self._running

    def finish(self, lease_id: str) -> bool:
        """The client reported. False when that lease is not in progress."""
        if self._running is None or self._running.lease_id != lease_id:
            return False
        self._running = None
        return True

    def pause(self, now_s: float) -> None:
        """Grant nothing while a lease of the previous leader may still run."""
        self._next_s = max(self._next_s, now_s + self._max_lease_s())

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for the next lease and none is in progress."""
        if self._running is not None and now_s >= self._running.ends_s:
            self._running = None
        return self._running is None and now_s >= self._next_s

    def next(
        self,
        now_s: float,
        wanted: Iterable[tuple[str, str]],
        addresses: Mapping[str, str],
        nonce: str,
    ) -> tuple[tuple[str, pb.BandwidthLease], tuple[str, pb.BandwidthLease]] | None:
        """The next lease as ((server, its lease), (client, its lease)); None when it is not due or
        no wanted pair has both addresses."""
        if not self.is_due(now_s):
            return None
        ready = (pair for pair in wanted if pair[0] in addresses and pair[1] in addresses)
        pair = self._longest_waiting(islice(ready, MAX_PAIRS_SCANNED))
        if pair is None:
            return None
        client, server = pair
        self._count += 1
        lease_id = f"{nonce}-{self._count}"
        limits = self._limits
        self._running = RunningLease(client, server, lease_id, now_s + self._max_lease_s())
        self._remember(pair, now_s)
        self._next_s = now_s + limits.interval_s

        def lease(role: pb.BandwidthLease.Role, peer: str) -> pb.BandwidthLease:
            return pb.BandwidthLease(
                lease_id=lease_id,
                role=role,
                peer=pb.Peer(node=peer, address=addresses[peer]),
                port=limits.port,
                duration_ms=limits.duration_ms,
                max_bytes=limits.max_bytes,
                ttl_ms=limits.ttl_ms,
            )

        serving = lease(pb.BandwidthLease.SERVER, client)
        return (server, serving), (client, lease(pb.BandwidthLease.CLIENT, server))

    @property
    def latest(self) -> tuple[str, str] | None:
        """The pair of the latest lease."""
        return next(reversed(self._last_s), None)

    def _longest_waiting(self, ready: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
        longest, since_s = None, float("inf")
        for pair in ready:
            last_s = self._last_s.get(pair)
            if last_s is None:
                return pair  # it was never tested
            if last_s < since_s:
                longest, since_s = pair, last_s
        return longest

    def _remember(self, pair: tuple[str, str], now_s: float) -> None:
        """Absent boards keep their entry; otherwise a flapping board would always be first."""
        self._last_s.pop(pair, None)
        self._last_s[pair] = now_s
        if len(self._last_s) > MAX_PAIRS_SCANNED:
            del self._last_s[next(iter(self._last_s))]

    def _max_lease_s(self) -> float:
        # Both ends count from the receipt; one second covers the difference of their clocks.
        return DELIVERY_S + (self._limits.ttl_ms + self._limits.duration_ms) / 1000 + 1


class PingRing:
    """Selects the peers of each node: the anchors, then its successors on the ring of sorted names,
    so that each node is also pinged by as many others (kubenurse's ring)."""

    def __init__(
        self, addresses: Mapping[str, str], anchors: Sequence[str], limits: ProbeLimits
    ) -> None:
        self._addresses, self._limits = addresses, limits
        self._ring = sorted(addresses)
        self._first = [anchor for anchor in dict.fromkeys(anchors) if anchor in addresses]

    def work(self, node: str) -> pb.PingLease:
        """The ping lease of one node."""
        ring, limits = self._ring, self._limits
        after = bisect_right(ring, node)
        others = (ring[(after + step) % len(ring)] for step in range(len(ring)))
        first = [anchor for anchor in self._first if anchor != node]
        then = (other for other in others if other not in first and other != node)
        chosen = islice(chain(first, then), limits.ping_peers)
        return pb.PingLease(
            peers=[pb.Peer(node=name, address=self._addresses[name]) for name in chosen],
            interval_s=limits.ping_interval_s,
            count=limits.ping_count,
            ttl_s=limits.ping_ttl_s,
        )
