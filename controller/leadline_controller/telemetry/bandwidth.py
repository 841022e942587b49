"""What each node's link can do, from the bandwidth tests in which it took part.

A test measures the slower one of two links. So a node's bandwidth is the best of its last tests
with two different peers: a slow peer limits only its own link, but a link that has become slower
shows with both. A result that nothing explains makes both nodes suspect until each was tested with
another peer. Times are seconds on the controller's monotonic clock.
"""

from dataclasses import dataclass, replace

# A shorter measurement shows the burst of a shaper, or TCP's slow start, and not the link.
EXACT_S = 0.008
# TCP needs some round trips to fill a link.
EXACT_ROUND_TRIPS = 5
# Results that are this near to each other agree.
AGREEING_SHARE = 0.8
# A lower bound proves nothing, unless TCP should have reached twice as much by then.
_SUSPICIOUS_SHARE = 0.5
_PEERS = 2


@dataclass(frozen=True, slots=True)
class BandwidthTest:
    """A valid result. seconds: the time over which the rate was measured, on the second half of the
    bytes. rtt_ms: of the pair, None if unknown."""

    client: str
    server: str
    mbps: float
    seconds: float
    at_s: float
    rtt_ms: float | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the measurement was long enough; else the links can do at least this."""
        return self.seconds >= max(EXACT_S, EXACT_ROUND_TRIPS * (self.rtt_ms or 0.0) / 1000)

    def expected_mbps(self, link_mbps: float) -> float:
        """The rate that this test should have measured on a link of `link_mbps`: TCP's window has
        grown to the first half of the bytes, which takes at least a round trip for the second."""
        bits = self.mbps * self.seconds
        return bits / max(bits / link_mbps, (self.rtt_ms or 0.0) / 1000)


@dataclass(frozen=True, slots=True)
class LinkBandwidth:
    """The bandwidth of one node's link.

    at_s: when a test agreed with it last. lower_bound: it can do at least this. is_suspect: a later
    test contradicts it, and another one is to decide.
    """

    mbps: float
    at_s: float
    lower_bound: bool = False
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class _Result:
    peer: str
    mbps: float
    at_s: float
    lower_bound: bool


class NodeBandwidths:
    """The bandwidth of every node's link."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._results: dict[str, tuple[_Result, ...]] = {}  # the newest first, one for each peer
        self._suspects: dict[str, str] = {}  # node -> the peer of the test that made it one

    def of(self, node: str, now_s: float) -> LinkBandwidth | None:
        """The node's bandwidth; None if unknown."""
        best = max(
            (each for each in self._results.get(node, ()) if now_s - each.at_s <= self._ttl_s),
            key=lambda each: each.mbps,
            default=None,
        )
        if best is None:
            return None
        return LinkBandwidth(best.mbps, best.at_s, best.lower_bound, node in self._suspects)

    def last_peers(self, node: str) -> tuple[str, ...]:
        """The peers of the tests that count, the newest first."""
        return tuple(each.peer for each in self._results.get(node, ()))

    def add(self, test: BandwidthTest) -> None:
        """Store a result for both nodes."""
        before = {end: self.of(end, test.at_s) for end in (test.client, test.server)}
        for end, other in ((test.client, test.server), (test.server, test.client)):
            if test.is_exact:
                self._add_exact(end, other, test, before[end], before[other])
            else:
                self._add_lower_bound(end, other, test, before[end])

    def drop(self, node: str) -> None:
        """Forget a node that is no longer in the cluster."""
        self._results.pop(node, None)
        self._suspects.pop(node, None)

    def _add_exact(
        self,
        node: str,
        peer: str,
        test: BandwidthTest,
        before: LinkBandwidth | None,
        of_peer: LinkBandwidth | None,
    ) -> None:
        is_contradiction = (
            before is not None
            and test.mbps < AGREEING_SHARE * before.mbps
            and (of_peer is None or test.mbps < AGREEING_SHARE * of_peer.mbps)
        )
        if is_contradiction and node not in self._suspects:
            self._suspects[node] = peer
        elif self._suspects.get(node) != peer or not is_contradiction:
            self._suspects.pop(node, None)
        self._put(node, _Result(peer, test.mbps, test.at_s, lower_bound=False))

    def _add_lower_bound(
        self, node: str, peer: str, test: BandwidthTest, before: LinkBandwidth | None
    ) -> None:
        if before is None or test.mbps > before.mbps:
            self._put(node, _Result(peer, test.mbps, test.at_s, lower_bound=True))
        elif test.mbps >= AGREEING_SHARE * before.mbps:
            self._results[node] = tuple(
                replace(each, at_s=test.at_s) if each.mbps == before.mbps else each
                for each in self._results[node]
            )
            self._suspects.pop(node, None)
        elif test.mbps < _SUSPICIOUS_SHARE * test.expected_mbps(before.mbps):
            self._suspects.setdefault(node, peer)

    def _put(self, node: str, result: _Result) -> None:
        others = (each for each in self._results.get(node, ()) if each.peer != result.peer)
        self._results[node] = (result, *others)[:_PEERS]
