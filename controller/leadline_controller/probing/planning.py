"""Who may load the network, when, and how much: pure planning of the probes.

One bandwidth test at a time in the whole cluster, because two at once measure each other
(perfSONAR's rule: throughput tests are exclusive, latency tests run in the background).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal

# For as long a lease may be on its way: the message's expiry on the wire.
DELIVERY_S = 5.0
# All pairs of 200 nodes; some milliseconds.
MAX_PAIRS_SCANNED = 20_000


@dataclass(frozen=True, slots=True)
class Peer:
    """A node to reach, and where."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class PingWork:
    """Ping these peers, `count` echo requests each, every `interval_s`; void after `ttl_s`."""

    peers: tuple[Peer, ...]
    interval_s: int
    count: int
    ttl_s: int


@dataclass(frozen=True, slots=True)
class BandwidthWork:
    """One end of one bandwidth test. It may start within `ttl_ms` and moves at most
    `max_bytes` in at most `duration_ms`."""

    lease_id: str
    role: Literal["server", "client"]
    peer: Peer
    port: int
    duration_ms: int
    max_bytes: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """What probing may cost.

    interval_s: seconds between the starts of two bandwidth tests. ping_peers: peers of a
    node, at most. The others cap one test, or one round of pings.
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
    """The one bandwidth lease that is out, and when it ends at the latest."""

    client: str
    server: str
    lease_id: str
    ends_s: float


def pairs(
    nodes: Sequence[str], anchors: Sequence[str], after: tuple[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """The (client, server) pairs to test: where there are anchors each node with each of
    them (so a cluster of n nodes costs n tests, not n²/2), else all pairs.

    They are made one by one, as n²/2 of them are too many to list. They begin with those of the
    node, or of the anchor, whose turn it was with the pair `after`, and then go round.
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
    """Hands out the bandwidth leases, one at a time, the pair that waited longest first.

    It looks at MAX_PAIRS_SCANNED pairs for each lease, and remembers as many. Up to 200 nodes, or
    with few anchors, those are all; of more it looks at those whose turn is next.
    """

    def __init__(self, limits: ProbeLimits) -> None:
        self._limits = limits
        self._last_s: dict[tuple[str, str], float] = {}  # the latest last
        self._running: RunningLease | None = None
        self._next_s = float("-inf")
        self._count = 0

    @property
    def running(self) -> RunningLease | None:
        """The lease that is out."""
        return self._running

    def finish(self, lease_id: str) -> bool:
        """The client reported. False when that lease is not the one that is out."""
        if self._running is None or self._running.lease_id != lease_id:
            return False
        self._running = None
        return True

    def pause(self, now_s: float) -> None:
        """Hand out nothing for as long as a lease of somebody else may last that is out now."""
        self._next_s = max(self._next_s, now_s + self._max_lease_s())

    def is_due(self, now_s: float) -> bool:
        """Whether no lease is out and it is time for the next."""
        if self._running is not None and now_s >= self._running.ends_s:
            self._running = None
        return self._running is None and now_s >= self._next_s

    def next(
        self,
        now_s: float,
        wanted: Iterable[tuple[str, str]],
        addresses: Mapping[str, str],
        nonce: str,
    ) -> tuple[tuple[str, BandwidthWork], tuple[str, BandwidthWork]] | None:
        """The next lease as ((server, its work), (client, its work)), or None: it is not
        due, or no wanted pair has both addresses."""
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
        serving = _work(lease_id, "server", Peer(client, addresses[client]), limits)
        testing = _work(lease_id, "client", Peer(server, addresses[server]), limits)
        return (server, serving), (client, testing)

    @property
    def latest(self) -> tuple[str, str] | None:
        """The pair of the latest lease."""
        return next(reversed(self._last_s), None)

    def _longest_waiting(self, ready: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
        longest, since_s = None, float("inf")
        for pair in ready:
            last_s = self._last_s.get(pair)
            if last_s is None:
                return pair  # none can have waited longer
            if last_s < since_s:
                longest, since_s = pair, last_s
        return longest

    def _remember(self, pair: tuple[str, str], now_s: float) -> None:
        """A board that comes and goes keeps its place, else it would always be first."""
        self._last_s.pop(pair, None)
        self._last_s[pair] = now_s
        if len(self._last_s) > MAX_PAIRS_SCANNED:
            del self._last_s[next(iter(self._last_s))]

    def _max_lease_s(self) -> float:
        # Both ends count from the receipt; a second covers both their clocks.
        return DELIVERY_S + (self._limits.ttl_ms + self._limits.duration_ms) / 1000 + 1


def _work(
    lease_id: str, role: Literal["server", "client"], peer: Peer, limits: ProbeLimits
) -> BandwidthWork:
    return BandwidthWork(
        lease_id=lease_id,
        role=role,
        peer=peer,
        port=limits.port,
        duration_ms=limits.duration_ms,
        max_bytes=limits.max_bytes,
        ttl_ms=limits.ttl_ms,
    )


class PingRing:
    """Whom each node pings: the anchors first, then its successors on the ring of sorted names,
    so that every node also has as many that ping it (kubenurse's ring)."""

    def __init__(
        self, addresses: Mapping[str, str], anchors: Sequence[str], limits: ProbeLimits
    ) -> None:
        self._addresses, self._limits = addresses, limits
        self._ring = sorted(addresses)
        self._first = [anchor for anchor in dict.fromkeys(anchors) if anchor in addresses]

    def work(self, node: str) -> PingWork:
        """The lease of one node."""
        ring, limits = self._ring, self._limits
        after = bisect_right(ring, node)
        others = (ring[(after + step) % len(ring)] for step in range(len(ring)))
        first = [anchor for anchor in self._first if anchor != node]
        then = (other for other in others if other not in first and other != node)
        chosen = islice(chain(first, then), limits.ping_peers)
        peers = tuple(Peer(name, self._addresses[name]) for name in chosen)
        return PingWork(peers, limits.ping_interval_s, limits.ping_count, limits.ping_ttl_s)
