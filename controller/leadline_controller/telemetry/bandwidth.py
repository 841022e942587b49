"""What each node's link can do, from the bandwidth tests in which it took part.

A test measures the slower one of two links. So a node's bandwidth is the best of its last tests
with two different peers: a slow peer limits only its own link, but a link that has become slower
shows with both. A result that nothing explains makes both nodes suspect until each was tested with
another peer.

The receiver measures, and no node is believed about itself: what a node measured counts for its
peer, and for itself only while no other node has measured it. Times are seconds on the controller's
monotonic clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

# A shorter measurement shows the burst of a shaper, or TCP's slow start, and not the link.
EXACT_S = 0.005
# TCP's window lets the second half of the bytes through in one round trip, if the link does.
EXACT_ROUND_TRIPS = 3
# Assumed for a pair whose round trip is not known, so that the first tests are lower bounds.
UNKNOWN_RTT_MS = 20.0
# Results that are this near to each other agree.
AGREEING_SHARE = 0.8
# A lower bound proves nothing, unless TCP should have reached twice as much by then.
_SUSPICIOUS_SHARE = 0.5
_PEERS = 2
_LEAST_MBPS = 0.001


@dataclass(frozen=True, slots=True)
class BandwidthTest:
    """A valid result, as the server measured it.

    seconds: the time over which the rate was measured, on the second half of the bytes. rtt_ms: of
    the pair, None if unknown. is_hindered: one of the boards was too busy, throttled or under
    voltage, so the link may do more.
    """

    client: str
    server: str
    mbps: float
    seconds: float
    at_s: float
    rtt_ms: float | None = None
    is_hindered: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether this is what the links can do; else they can do at least this."""
        return not self.is_hindered and self.seconds >= exact_s(self.rtt_ms)

    def expected_mbps(self, link_mbps: float) -> float:
        """The rate that this test should have measured on a link of `link_mbps`: the second half of
        the bytes takes a round trip at least, since TCP's window has grown to the first half."""
        megabits = self.mbps * self.seconds
        rtt_ms = UNKNOWN_RTT_MS if self.rtt_ms is None else self.rtt_ms
        return megabits / max(megabits / max(link_mbps, _LEAST_MBPS), rtt_ms / 1000)


def exact_s(rtt_ms: float | None) -> float:
    """How long an exact measurement takes at least, s. rtt_ms: of the pair, None if unknown."""
    return max(EXACT_S, EXACT_ROUND_TRIPS * (UNKNOWN_RTT_MS if rtt_ms is None else rtt_ms) / 1000)


@dataclass(frozen=True, slots=True)
class LinkBandwidth:
    """The bandwidth of one node's link.

    at_s: when a test agreed with it last. lower_bound: it can do at least this, because the test
    was too short (is_short), or the peer's link is no faster and the node's interface is.
    is_suspect: a later test contradicts it, which measured suspected_mbps, and another one is to
    decide.
    """

    mbps: float
    at_s: float
    lower_bound: bool = False
    is_short: bool = False
    is_suspect: bool = False
    suspected_mbps: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeLink:
    """What is known of a node's link. link_mbps: the speed of its interface, None if unknown.
    last_peers: those that measured it last. used_mbps: its users' traffic. wanted_mbps: what its
    pods request."""

    name: str
    link_mbps: float | None = None
    bandwidth: LinkBandwidth | None = None
    last_peers: tuple[str, ...] = ()
    used_mbps: float = 0.0
    wanted_mbps: float = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether pods request more than the lower bound that is known."""
        bandwidth = self.bandwidth
        return bandwidth is not None and bandwidth.lower_bound and self.wanted_mbps > bandwidth.mbps


@dataclass(frozen=True, slots=True)
class _Result:
    """is_own: the node measured itself."""

    peer: str
    mbps: float
    at_s: float
    lower_bound: bool
    is_short: bool
    is_own: bool


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """A test with `peer` contradicts what is believed. held: the best result, if it counts on until
    the next one although a newer one may have replaced it."""

    peer: str
    mbps: float
    held: _Result | None = None


class NodeBandwidths:
    """The bandwidth of every node's link."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._results: dict[str, tuple[_Result, ...]] = {}  # the newest first, one for each peer
        self._suspects: dict[str, _Suspicion] = {}

    def of(self, node: str, now_s: float) -> LinkBandwidth | None:
        """The node's bandwidth; None if unknown."""
        best = self._best(node, now_s)
        if best is None:
            return None
        suspicion = self._suspects.get(node)
        return LinkBandwidth(
            mbps=best.mbps,
            at_s=best.at_s,
            lower_bound=best.lower_bound,
            is_short=best.is_short,
            is_suspect=suspicion is not None,
            suspected_mbps=suspicion.mbps if suspicion else 0.0,
        )

    def last_peers(self, node: str) -> tuple[str, ...]:
        """The peers whose tests count, the newest first."""
        return tuple(each.peer for each in self._results.get(node, ()) if not each.is_own)

    def add(self, test: BandwidthTest, link_mbps: Mapping[str, float | None]) -> None:
        """Store a result for both nodes. link_mbps: the speeds of their interfaces."""
        before = {end: self.of(end, test.at_s) for end in (test.client, test.server)}
        for node, peer in ((test.client, test.server), (test.server, test.client)):
            of_node, of_peer, speed = before[node], before[peer], link_mbps[node] or 0.0
            is_at_speed = test.mbps >= AGREEING_SHARE * speed > 0
            is_limited_by_peer = (
                not is_at_speed
                and (speed > 0 or _contradicts(test.mbps, of_node))
                and of_peer is not None
                and test.mbps >= AGREEING_SHARE * of_peer.mbps
            )
            result = _Result(
                peer=peer,
                mbps=test.mbps,
                at_s=test.at_s,
                lower_bound=not is_at_speed and (is_limited_by_peer or not test.is_exact),
                is_short=not is_at_speed and not test.is_exact,
                is_own=node == test.server,
            )
            if (is_at_speed or test.is_exact) and not is_limited_by_peer:
                self._add_exact(node, result)
            else:
                self._add_lower_bound(node, result, test, of_node)

    def drop(self, node: str) -> None:
        """Forget a node that is no longer in the cluster."""
        self._results.pop(node, None)
        self._suspects.pop(node, None)

    def _best(self, node: str, now_s: float) -> _Result | None:
        known = [x for x in self._results.get(node, ()) if now_s - x.at_s <= self._ttl_s]
        known = [each for each in known if not each.is_own] or known
        suspicion = self._suspects.get(node)
        if suspicion and suspicion.held and now_s - suspicion.held.at_s <= self._ttl_s:
            known.append(suspicion.held)
        return max(known, key=lambda each: each.mbps, default=None)

    def _add_exact(self, node: str, result: _Result) -> None:
        best = self._best(node, result.at_s)
        is_suspect = node in self._suspects
        self._put(node, result)
        if not is_suspect and _contradicts(result.mbps, best):
            held = None if best is None or best.is_own else best
            self._suspects[node] = _Suspicion(result.peer, result.mbps, held)
        elif not result.is_own:
            self._suspects.pop(node, None)
            if _contradicts(result.mbps, self._best(node, result.at_s)):
                self._suspects[node] = _Suspicion(result.peer, result.mbps)

    def _add_lower_bound(
        self, node: str, result: _Result, test: BandwidthTest, before: LinkBandwidth | None
    ) -> None:
        """A lower bound replaces a lower value only. It settles a contradiction if it is what the
        higher value lets expect, or if the peer of that test is known to be slow by now."""
        suspicion = self._suspects.get(node)
        is_peers_fault = suspicion and suspicion.peer == result.peer and not result.is_short
        expected_mbps = test.expected_mbps(before.mbps) if before else 0.0
        is_as_expected = result.mbps >= AGREEING_SHARE * expected_mbps
        if (is_peers_fault or is_as_expected) and not result.is_own:
            self._clear(node)
        if before is None or (result.mbps > before.mbps and not result.is_own):
            self._put(node, result)
        elif not _contradicts(result.mbps, before) and not result.is_own:
            self._results[node] = tuple(
                replace(each, at_s=result.at_s) if each.mbps == before.mbps else each
                for each in self._results[node]
            )
        elif (
            result.is_short
            and not test.is_hindered
            and result.mbps < _SUSPICIOUS_SHARE * expected_mbps
        ):
            self._suspects.setdefault(node, _Suspicion(result.peer, result.mbps))

    def _clear(self, node: str) -> None:
        """What is believed was right."""
        suspicion = self._suspects.pop(node, None)
        if suspicion and suspicion.held:
            self._put(node, suspicion.held)

    def _put(self, node: str, result: _Result) -> None:
        others = [
            each
            for each in self._results.get(node, ())
            if (each.peer, each.is_own) != (result.peer, result.is_own)
        ]
        kept = [result, *others]
        by_others = [each for each in kept if not each.is_own][:_PEERS]
        own = [each for each in kept if each.is_own][:_PEERS]
        self._results[node] = (*by_others, *own)


def _contradicts(mbps: float, believed: LinkBandwidth | _Result | None) -> bool:
    return believed is not None and mbps < AGREEING_SHARE * believed.mbps
