"""What each node's link can do, from bandwidth tests and from the traffic that it carries.

A test measures the slower one of two links. So a result that is higher than what is believed counts
at once, unless an exact value contradicts it: then a second result has to agree, of another server
if a faster peer showed the value, because the server measures and the client cannot disprove it. A
lower one counts if a second test agrees: then the better one of the two is believed. Until then the
node is suspect, and the lower value counts, unless a board was held back in the test. A result that
is explained, by a slow or unknown peer or by users' traffic, contradicts nothing. It is a lower
bound, which counts once what is believed is too old.

No node is believed about itself: what it measured or carried itself raises a lower bound within
limits, and is replaced by what another node measures. Times are seconds on the controller's
monotonic clock.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf, log2

# A shaper lets so much pass at once, s of its link's time.
BURST_S = 0.005
# A shorter measurement shows a burst, and not the link.
EXACT_S = BURST_S
# Until TCP's window is as large as the link needs, the second half of the bytes takes one round
# trip, or less than two if the window grows slowly. What takes longer is held up by the link.
EXACT_ROUND_TRIPS = 2
# Assumed for a pair whose round trip is not known, so that the first tests are lower bounds.
UNKNOWN_RTT_MS = 20.0
# Results that are this near to each other agree.
AGREEING_SHARE = 0.8
# A lower bound proves nothing, unless TCP should have reached twice as much by then.
_SUSPICIOUS_SHARE = 0.5
# TCP's first window (RFC 6928), and the time that both ends' programs take to begin.
_FIRST_WINDOW_MEGABITS, _BEGIN_S = 10 * 1460 * 8e-6, 0.001
# Less traffic says nothing about a link.
_LEAST_CARRIED_MBPS = 1.0
# No node has measured the link, so that its own traffic counts up to this.
_UNTESTED_MBPS = 100.0
_PEERS = 2
# For so long after an exact measurement, a short test that is faster shows no more than a burst.
# After so long, the server that showed more than an exact value may confirm that itself.
_TRUSTED_S = 120.0
_LEAST_MBPS = 0.001
# Where a value is from.
TESTS, COUNTERS, INTERFACE, PULLS = "tests", "counters", "interface", "pulls"


@dataclass(frozen=True, slots=True)
class BandwidthTest:
    """A valid result, as the server measured it.

    seconds: the time over which the rate was measured, on the last part of the bytes. rtt_ms: of
    the pair, None if unknown. is_hindered: one of the boards was too busy, throttled or under
    voltage, so the link may do more. unhindered: the other board, if only one was. is_untimed: it
    was too fast to be timed. requested_mbps: by node, what its pods requested when the test began.
    is_last_resort: the server made the client suspect, and no other peer can decide.
    """

    client: str
    server: str
    mbps: float
    seconds: float
    at_s: float
    rtt_ms: float | None = None
    is_hindered: bool = False
    unhindered: str = ""
    is_untimed: bool = False
    requested_mbps: Mapping[str, float] = field(default_factory=dict)
    is_last_resort: bool = False

    @property
    def is_long(self) -> bool:
        """Whether no burst and no slow start is in the rate."""
        return self.seconds >= exact_s(self.rtt_ms)

    @property
    def is_exact(self) -> bool:
        """Whether this is what the links can do; else they can do at least `value_mbps`."""
        return self.is_long and not (self.is_hindered or self.is_untimed)

    @property
    def value_mbps(self) -> float:
        """What the links can do, or can do at least. In any time, a link carries no more than its
        speed allows in that time and a shaper's burst."""
        return self.mbps * (1.0 if self.is_exact else self.seconds / (self.seconds + BURST_S))

    def expected_mbps(self, link_mbps: float) -> float:
        """The rate that this test should have measured on a link of `link_mbps`: the second half of
        the bytes takes a round trip at least, since TCP's window has grown to the first half. One
        that was not timed has half of the bytes in the time of all, with TCP's slow start."""
        megabits = self.mbps * self.seconds
        rtt_s = (UNKNOWN_RTT_MS if self.rtt_ms is None else self.rtt_ms) / 1000
        seconds = max(megabits / max(link_mbps, _LEAST_MBPS), rtt_s)
        if self.is_untimed:
            doublings = log2(max(2 * megabits / _FIRST_WINDOW_MEGABITS, 1.0))
            seconds = 2 * seconds + doublings * rtt_s + _BEGIN_S
        return megabits / seconds


def exact_s(rtt_ms: float | None) -> float:
    """How long an exact measurement takes at least, s. rtt_ms: of the pair, None if unknown."""
    return max(EXACT_S, EXACT_ROUND_TRIPS * (UNKNOWN_RTT_MS if rtt_ms is None else rtt_ms) / 1000)


@dataclass(frozen=True, slots=True)
class LinkBandwidth:
    """The bandwidth of one node's link.

    at_s: when a test agreed with it last. lower_bound: it can do at least this, because the test
    was too short, or the peer's link is no faster and the node's interface is. is_short: a larger
    test could show more, because the value is not near the interface's speed either. source:
    TESTS, COUNTERS or INTERFACE. is_host_limited: a board was too busy, throttled or under voltage
    in the test, so the link may do more; no such value is exact. measured_s: when another node
    measured it last, and not by a short test. former_mbps: of a suspect node, what was believed
    before the last test, with suspect_peer, showed suspected_mbps. That counts already, unless a
    board was held back in the test. claimed_mbps: the most that is said of it since, and not
    confirmed. measured_bytes: on which the rate was measured, infinite if unknown.
    """

    mbps: float
    at_s: float
    lower_bound: bool = False
    is_short: bool = False
    source: str = TESTS
    is_host_limited: bool = False
    measured_s: float = field(default=-inf, compare=False)
    former_mbps: float | None = None
    suspected_mbps: float = inf
    suspect_peer: str = ""
    claimed_mbps: float = field(default=0.0, compare=False)
    measured_bytes: float = field(default=inf, compare=False)

    @property
    def is_suspect(self) -> bool:
        """Whether one test contradicts what was believed, and another one is to decide."""
        return self.former_mbps is not None

    @property
    def settled_mbps(self) -> float:
        """The value without the test that made the node suspect."""
        return self.mbps if self.former_mbps is None else self.former_mbps


@dataclass(frozen=True, slots=True)
class NodeLink:
    """What is known of a node's link. link_mbps: the speed of its interface, None if unknown.
    last_peers: those that measured it last, the newest first. used_mbps: its users' traffic.
    wanted_mbps: what its pods request. contradicted_s: when traffic or round trips last
    contradicted what is believed."""

    name: str
    link_mbps: float | None = None
    bandwidth: LinkBandwidth | None = None
    last_peers: tuple[str, ...] = ()
    used_mbps: float = 0.0
    wanted_mbps: float = 0.0
    contradicted_s: float = -inf

    @property
    def is_wanted(self) -> bool:
        """Whether pods request more than the lower bound that is known."""
        bandwidth = self.bandwidth
        return bandwidth is not None and bandwidth.lower_bound and self.wanted_mbps > bandwidth.mbps


@dataclass(frozen=True, slots=True)
class _Lower:
    """A result below what is believed. least_mbps: the link can do at least this. is_exact: it was
    long enough. is_hindered: one of the two boards was. decides: although the same peer showed the
    one before it, because no other can."""

    peer: str
    mbps: float
    least_mbps: float
    is_exact: bool
    is_hindered: bool
    decides: bool = False


@dataclass(slots=True)
class _Known:
    """What is believed of a node. is_claim: no other node has measured it. tested_mbps: the
    last rate that another one measured, 0 if none has. lower: the last result, if it was lower.
    higher: the first result that was higher than an exact value, and its server, until a faster
    peer contradicts it. bound: what the last result shows that something explains, for when this
    value is too old: no peer that is there may be fast enough to confirm it. claimed_mbps: the
    most that one result showed since, until a peer that is fast enough contradicts it. is_proven: a
    faster peer showed it, so that it is not the peer's."""

    mbps: float
    at_s: float
    lower_bound: bool = False
    is_short: bool = False
    source: str = TESTS
    is_claim: bool = False
    is_host_limited: bool = False
    measured_s: float = -inf
    tested_mbps: float = 0.0
    lower: _Lower | None = None
    higher: "tuple[str, _Known] | None" = None
    claimed_mbps: float = 0.0
    bound: "_Known | None" = None
    is_proven: bool = False
    measured_bytes: float = inf

    @property
    def is_suspect(self) -> bool:
        """Whether the last result is too low for what is believed."""
        return self.lower is not None and self.lower.mbps < AGREEING_SHARE * self.mbps


class NodeBandwidths:
    """The bandwidth of every node's link. is_passive: no tests are made, so that the speed of the
    interface counts."""

    def __init__(self, ttl_s: float, *, is_passive: bool = False) -> None:
        self._ttl_s = ttl_s
        self._is_passive = is_passive
        self._known: dict[str, _Known] = {}
        self._last_peers: dict[str, tuple[str, ...]] = {}
        self._contradicted_s: dict[str, float] = {}

    def of(self, node: str, now_s: float) -> LinkBandwidth | None:
        """The node's bandwidth; None if unknown."""
        known = self._fresh(node, now_s)
        if known is None:
            return None
        bandwidth = LinkBandwidth(
            mbps=known.mbps,
            at_s=known.at_s,
            lower_bound=known.lower_bound,
            is_short=known.is_short,
            source=known.source,
            is_host_limited=known.is_host_limited,
            measured_s=known.measured_s,
            claimed_mbps=known.claimed_mbps,
            measured_bytes=known.measured_bytes,
        )
        lower = known.lower
        if lower is None or not known.is_suspect:
            return bandwidth
        if not lower.is_hindered:
            bandwidth = replace(bandwidth, mbps=lower.mbps, lower_bound=False, is_short=False)
        return replace(
            bandwidth,
            former_mbps=known.mbps,
            suspected_mbps=lower.mbps,
            suspect_peer=lower.peer,
            claimed_mbps=0.0,
        )

    def last_peers(self, node: str) -> tuple[str, ...]:
        """The peers that measured the node last, the newest first."""
        return self._last_peers.get(node, ())

    def contradicted_s(self, node: str) -> float:
        """When traffic or a test last showed more than what is believed."""
        return self._contradicted_s.get(node, -inf)

    def contradicted_after(self, since_s: float) -> set[str]:
        """The nodes of which that was later than `since_s`."""
        return {node for node, at_s in self._contradicted_s.items() if at_s > since_s}

    def drop(self, nodes: Collection[str]) -> None:
        """Forget the nodes that are no longer in the cluster."""
        gone = frozenset(nodes)
        for of_nodes in (self._known, self._last_peers, self._contradicted_s):
            for node in gone:
                of_nodes.pop(node, None)
        for other, peers in self._last_peers.items():
            if not gone.isdisjoint(peers):
                self._last_peers[other] = tuple(peer for peer in peers if peer not in gone)

    # Tests.

    def add(
        self,
        test: BandwidthTest,
        link_mbps: Mapping[str, float | None],
        used_mbps: Mapping[str, float] | None = None,
    ) -> set[str]:
        """Store a result for both nodes. link_mbps: the speeds of their interfaces; used_mbps:
        their users' traffic. Returns the nodes of which it may have changed what is believed."""
        used = used_mbps or {}
        ends = [(test.client, test.server), (test.server, test.client)]
        before = {end: self.of(end, test.at_s) for end, _ in ends}
        suspects = {end for end, known in before.items() if known and known.is_suspect}
        peers = (test.server, *self.last_peers(test.client))
        self._last_peers[test.client] = tuple(dict.fromkeys(peers))[:_PEERS]
        changed = {test.client, test.server}
        # If the test settles what was suspected of one node, that explains what the other one saw.
        for node, peer in sorted(ends, key=lambda end: end[0] not in suspects):
            of_peer = self.of(peer, test.at_s) if suspects == {peer} else before[peer]
            if of_peer is not None and of_peer.source != TESTS:
                of_peer = None
            changed |= self._count(node, peer, test, of_peer, link_mbps, used)
        return changed

    def _count(
        self,
        node: str,
        peer: str,
        test: BandwidthTest,
        of_peer: LinkBandwidth | None,
        link_mbps: Mapping[str, float | None],
        used_mbps: Mapping[str, float],
    ) -> set[str]:
        """Count a result for one of its nodes. Returns another one that it clears."""
        known = self._fresh(node, test.at_s)
        peer_mbps = of_peer.settled_mbps - used_mbps.get(peer, 0.0) if of_peer else 0.0
        is_limited = test.mbps >= AGREEING_SHARE * peer_mbps
        is_peers = test.mbps >= AGREEING_SHARE * (link_mbps[peer] or inf) or (
            is_limited and of_peer is not None and not of_peer.is_short
        )
        # A test measures what pods leave. What they request is subtracted from the value when the
        # next pod is placed, so what of it flowed beside the test belongs to the value.
        flowing_mbps = min(used_mbps.get(node, 0.0), test.requested_mbps.get(node, 0.0))
        spare_mbps = max((link_mbps[node] or inf) - test.mbps, 0.0)
        test = replace(test, mbps=test.mbps + min(flowing_mbps, spare_mbps))
        result = _result(node, test, known, link_mbps[node] or 0.0, is_peers=is_peers)
        agrees = known is not None and test.mbps >= AGREEING_SHARE * test.expected_mbps(known.mbps)
        result.claimed_mbps = _claimed_mbps(known) if is_limited else 0.0
        result.is_proven = not is_limited
        if known is None or _replaces(result, known, agrees=agrees):
            self._known[node] = result
        elif _is_higher(result, known):
            self._raise(node, peer, known, result)
        elif agrees:
            if not result.is_claim:
                # Twice as fast a link would have shown more.
                twice_mbps = known.mbps / AGREEING_SHARE**3
                is_refuted = test.mbps < AGREEING_SHARE * test.expected_mbps(twice_mbps)
                is_faster = test.mbps > known.mbps / AGREEING_SHARE
                if is_refuted and not (is_limited or is_faster or test.is_hindered):
                    known.higher, known.claimed_mbps = None, 0.0
                    known.is_proven = True
                self._agree(node, peer, known, result, is_faster=is_faster)
        elif is_limited or _is_available(test, known, used_mbps.get(node, 0.0)):
            is_peers_fault = of_peer is not None and not of_peer.is_suspect
            _explain(known, result, by=peer if is_peers_fault else None)
        elif node != test.unhindered and (
            test.is_exact
            or test.mbps < _SUSPICIOUS_SHARE * test.expected_mbps(known.mbps)
            # A short test that neither clears nor convicts would be repeated for ever.
            or known.is_suspect
        ):
            if not test.is_hindered:
                known.higher, known.claimed_mbps = None, 0.0
            decides = test.is_last_resort and node == test.client
            lower = _Lower(
                *(peer, test.mbps, test.value_mbps, test.is_exact, test.is_hindered, decides)
            )
            return self._lower(node, known, lower, result)
        return set()

    def _raise(self, node: str, peer: str, known: _Known, result: _Known) -> None:
        is_news = result.mbps > max(known.mbps, known.claimed_mbps) / AGREEING_SHARE
        known.claimed_mbps = max(known.claimed_mbps, result.mbps)
        if result.is_claim and not known.is_claim:
            if known.lower_bound:
                known.mbps, known.at_s, known.source = result.mbps, result.at_s, TESTS
                known.is_short, known.measured_s = result.is_short, -inf
                known.is_host_limited = result.is_host_limited
                known.measured_bytes = result.measured_bytes
            elif is_news:  # then the peer should measure it soon
                self._contradicted_s[node] = result.at_s
        elif known.is_claim or known.lower_bound or result.mbps <= known.mbps / AGREEING_SHARE:
            self._known[node] = result
        elif (least := self._confirmed(node, peer, known, result)) is not None:
            if least.mbps > known.mbps:
                self._known[node] = least
            else:  # a test that was faster for a moment
                known.lower_bound, known.is_short, known.lower = True, True, None

    def _confirmed(self, node: str, peer: str, known: _Known, result: _Known) -> _Known | None:
        """The lower one of two results above an exact value, of two servers or of one that came
        long after the other, or at any time if only slow peers have measured the node; None after
        the first. A node with a single peer needs one."""
        if self._last_peers.get(node) == (peer,):
            return result
        if known.higher is None:
            known.higher, self._contradicted_s[node] = (peer, result), result.at_s
            return None
        first_peer, first = known.higher
        is_soon = result.at_s - first.at_s <= _TRUSTED_S
        if first_peer == peer and is_soon and known.is_proven:
            return None
        both = sorted((known.higher, (peer, result)), key=lambda each: each[1].mbps)
        (_, least), most = both
        higher = most if most[1].mbps > least.mbps / AGREEING_SHARE else None
        claimed_mbps = higher[1].mbps if higher else 0.0
        return replace(
            least,
            at_s=result.at_s,
            measured_s=result.at_s,
            higher=higher,
            claimed_mbps=claimed_mbps,
        )

    def _agree(
        self, node: str, peer: str, known: _Known, result: _Known, *, is_faster: bool
    ) -> None:
        """What is believed was right, or is only a lower bound, if a short test was faster. A
        result that is a little lower is stored until the next one, so that a link that becomes
        slower by and by is noticed."""
        known.at_s, known.tested_mbps = result.at_s, result.tested_mbps
        if is_faster and result.at_s - known.measured_s > _TRUSTED_S:
            if known.lower_bound or self._confirmed(node, peer, known, result):
                known.lower_bound, known.is_short, known.lower = True, True, None
            return
        known.source = TESTS  # else the node counts as untested
        if not result.is_short:
            known.measured_s = result.at_s
        if result.lower_bound:
            known.lower = None
        elif known.lower_bound or known.is_claim:
            self._known[node] = result
        else:
            lower = _Lower(peer, result.mbps, result.mbps, is_exact=True, is_hindered=False)
            self._lower(node, known, lower, result)

    def _lower(self, node: str, known: _Known, lower: _Lower, result: _Known) -> set[str]:
        """Of two lower results in sequence, the better one is believed. Returns the node that was
        suspect only because of this one."""
        earlier = known.lower
        known.lower = lower
        if known.bound is not None and lower.mbps < AGREEING_SHARE * known.bound.mbps:
            known.bound = None  # it is contradicted, too
        if earlier is None:
            return set()
        decides = lower.decides or self._last_peers.get(node) == (lower.peer,)
        if lower.is_hindered and earlier.peer == lower.peer and not decides:
            is_refuted = not result.is_claim and lower.mbps > earlier.mbps / AGREEING_SHARE
            is_suspicion = earlier.mbps < AGREEING_SHARE * known.mbps
            if is_suspicion and not (earlier.is_hindered or is_refuted):
                known.lower = earlier
            return set()  # the peer may be the hindered one
        best = max(earlier, lower, key=lambda each: (each.least_mbps, each.is_exact))
        known.mbps, known.at_s, known.source = best.least_mbps, result.at_s, TESTS
        if not result.is_claim:
            known.tested_mbps = best.mbps
            is_agreeing = not lower.is_hindered and lower.mbps >= AGREEING_SHARE * best.mbps
            known.is_proven |= result.is_proven and is_agreeing
        known.lower_bound = known.is_short = not best.is_exact
        known.is_host_limited = best.is_hindered
        known.measured_s = result.at_s if best.is_exact else -inf
        known.lower = lower if lower.mbps < best.mbps else None
        other = self._known.get(earlier.peer)
        is_cleared = (
            earlier.peer != lower.peer
            and other is not None
            and other.lower is not None
            and other.lower.peer == node
            and other.lower.mbps >= AGREEING_SHARE * best.mbps
        )
        if not is_cleared or other is None:
            return set()
        other.lower = None
        return {earlier.peer}

    # Traffic.

    def carry(
        self,
        node: str,
        used_mbps: float | None,
        link_mbps: float | None,
        at_s: float,
        source: str = COUNTERS,
    ) -> bool:
        """A report tells the users' traffic, or an event the speed of an image pull (source), and
        the speed of the interface; None if unknown. A link can do what it just carried. Returns
        whether that changes what is believed.

        Both are the node's own words, so they count no more than what another node measured last
        if that agrees. Where that was exact, only a test can show more. Nor do they make a test's
        result valid for longer.
        """
        if at_s == -inf:  # nobody knows when that was
            return False
        carried = min(used_mbps or 0.0, link_mbps or inf)
        known = self._fresh(node, at_s)
        if self._is_passive and link_mbps and (known is None or known.source != TESTS):
            self._known[node] = _Known(link_mbps, at_s, source=INTERFACE, is_claim=True)
            return known is None or known.mbps != link_mbps
        tested_mbps = 0.0 if known is None else known.tested_mbps
        most = min(carried, tested_mbps / AGREEING_SHARE or _UNTESTED_MBPS)
        if known is None:
            if most < _LEAST_CARRIED_MBPS:
                return False
            self._known[node] = _Known(
                most, at_s, lower_bound=True, is_short=True, source=source, is_claim=True
            )
            return True
        if known.lower_bound and most > known.mbps:
            known.mbps, known.is_short, known.source = most, True, source
            known.is_host_limited = False
            if known.is_claim:
                known.at_s = max(known.at_s, at_s)
            return True
        if carried > known.mbps / AGREEING_SHARE:
            self._contradicted_s[node] = at_s
        elif carried >= AGREEING_SHARE * known.mbps and known.is_claim:
            known.at_s = max(known.at_s, at_s)
        return False

    def _fresh(self, node: str, now_s: float) -> _Known | None:
        known = self._known.get(node)
        if known is not None and now_s - known.at_s > self._ttl_s and known.bound is not None:
            known = self._known[node] = known.bound
        return known if known is not None and now_s - known.at_s <= self._ttl_s else None


def _result(
    node: str, test: BandwidthTest, known: _Known | None, speed_mbps: float, *, is_peers: bool
) -> _Known:
    """What a test says about one of its nodes. speed_mbps: of its interface, 0 if unknown.
    is_peers: the peer's link is no faster."""
    is_at_speed = test.value_mbps >= AGREEING_SHARE * speed_mbps > 0
    if not speed_mbps:  # then a value is as good as the one before
        is_peers = is_peers and known is not None and test.mbps < AGREEING_SHARE * known.mbps
    is_claim = node == test.server
    at_s = test.at_s if known is None else max(test.at_s, known.at_s)  # reports overtake others
    return _Known(
        mbps=test.value_mbps,
        at_s=at_s,
        lower_bound=not test.is_exact or (is_peers and not is_at_speed),
        is_short=not is_at_speed and not test.is_exact,
        is_claim=is_claim,
        is_host_limited=test.is_hindered,
        measured_bytes=test.mbps * test.seconds * 1e6 / 8,
        measured_s=-inf if is_claim else at_s,
        tested_mbps=0.0 if is_claim else test.mbps,
    )


def _claimed_mbps(known: _Known | None) -> float:
    """What was said of a node, and is not contradicted by a peer that is no faster."""
    if known is None:
        return 0.0
    is_own = known.is_claim or known.source in (COUNTERS, PULLS)
    return max(known.claimed_mbps, known.mbps if is_own else 0.0)


def _explain(known: _Known, result: _Known, by: str | None) -> None:
    """Count a result that something explains. by: the peer that does, if its value is certain."""
    if not result.is_claim:
        known.bound = replace(result, lower_bound=True)
    if (lower := known.lower) is None:
        return
    # However slow the peer is: if the link does more than what made it suspect, that was wrong.
    is_refuted = not result.is_claim and result.mbps > lower.mbps / AGREEING_SHARE
    if is_refuted or lower.peer == by:
        known.lower = None


def _is_available(test: BandwidthTest, known: _Known, used_mbps: float) -> bool:
    """Whether users' traffic explains a result that is lower."""
    return test.mbps + used_mbps >= AGREEING_SHARE * known.mbps


def _replaces(result: _Known, known: _Known, *, agrees: bool) -> bool:
    """Whether another node's result takes the place of what the node says of itself. A lower bound
    does not take that of a test in which the node was the server, nor of traffic with which it
    agrees, but for the first one."""
    if result.is_claim or not (known.is_claim or known.source in (COUNTERS, PULLS)):
        return False
    if not result.lower_bound:
        return True
    return known.source != TESTS and (known.is_claim or not agrees)


def _is_higher(result: _Known, known: _Known) -> bool:
    """Whether a result is worth more than what is believed. A lower bound that is hardly more than
    an exact value says less than it."""
    if result.lower_bound and not known.lower_bound:
        return result.mbps > known.mbps / AGREEING_SHARE
    return result.mbps > known.mbps
