"""Checks results against the leases that this controller granted.

A network measurement is valid only under a lease: from the node that has the lease, about the peers
that it names, within its limits, and once. Anything else is invented, or belongs to a previous
leader's lease.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, takewhile
from types import MappingProxyType

import numpy as np
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.probing.budgets import PlannedTest
from leadline_controller.probing.planning import DELIVERY_S
from leadline_controller.telemetry.bandwidth_tests import AGREEING_SHARE, BURST_S, BandwidthTest
from leadline_controller.telemetry.contradictions import LEAST_AGAINST, outvoted
from leadline_controller.telemetry.ingestor import NOT_LEASED, OVER_LEASE, TOO_OFTEN

_DONE = pb.BandwidthReport.DONE
# So a board says that it has sent nothing.
_NOTHING_SENT = (pb.BandwidthReport.REFUSED, pb.BandwidthReport.ABSENT)
# iperf3 counts a block before it knows that it is the last.
BLOCK_BYTES = 16 * 16 * 1024
# A result may arrive this long after its lease, for example while a broker restarts.
LATE_S = 60.0
# Above an interface's speed, and above the sum of bytes and time, for rounding.
_OVER_SPEED, _ROUNDING = 1.1, 1.05
# Of the bytes, those on which a rate is measured: agents leave out up to 95 % as a shaper's burst.
_LEAST_MEASURED = 0.04
_LEAST_ARRIVED = 0.2  # of the bytes that the client gave to TCP
_CLIENT_LATE_MS = 50.0
# For so long both ends' last agreement counts, of so many pairs.
_VERDICT_S, _MAX_VERDICTS = 3600.0, 50_000
# A round is as long as its slowest peer, so two rounds may end shortly after each other.
_MOST_ROUNDS = 3.0


@dataclass(slots=True)
class _BandwidthGrant:
    """A lease and what its ends have reported."""

    client: str
    server: str
    max_bytes: int
    most_mbps: float  # what the slower interface can do
    starts_s: float
    ends_s: float
    requested_mbps: Mapping[str, float]  # by node, what its pods requested then
    sent: pb.BandwidthReport | None = None
    received: pb.BandwidthReport | None = None
    received_at_s: float = 0.0


class BandwidthGrants:
    """The bandwidth leases whose reports may still arrive.

    The server's figure counts if the client has sent as many bytes as came, in no less time than
    the server measured, and its rate is on half of them, or on what followed a shaper's burst. So
    the server cannot make up a result without a test, nor any lower rate. The client cannot
    disprove a higher one, up to what the interfaces can do: where that contradicts an exact value,
    `NodeBandwidths` waits for a second server. A rate above the interfaces' has a shaper's burst in
    it: it counts as a lower bound, and as no more than what they can do.
    """

    def __init__(self) -> None:
        self._grants: dict[str, _BandwidthGrant] = {}
        self._verdicts: dict[tuple[str, str], tuple[bool, float]] = {}  # disagreed, and when

    def add(
        self,
        planned: PlannedTest,
        lease_id: str,
        most_mbps: float,
        now_s: float,
        ends_s: float,
        requested_mbps: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Store a granted lease, and drop expired ones. most_mbps: what the interfaces can do.
        requested_mbps: by node, what its pods request."""
        old = takewhile(lambda each: now_s > each[1].ends_s + LATE_S, self._grants.items())
        for name in [name for name, _ in old]:  # in the order in which they were granted
            del self._grants[name]
        self._grants[lease_id] = _BandwidthGrant(
            client=planned.client,
            server=planned.server,
            max_bytes=planned.max_bytes,
            most_mbps=_OVER_SPEED * most_mbps,
            starts_s=now_s,
            ends_s=ends_s,
            requested_mbps=requested_mbps,
        )

    def refusal(self, node: str, report: pb.BandwidthReport, now_s: float) -> str | None:
        """Why one end's report is refused, as a kind; None if it is valid."""
        grant = self._grants.get(report.lease_id)
        if grant is None or now_s > grant.ends_s + LATE_S:
            return NOT_LEASED
        ends = (node, report.peer)
        is_client, is_server = (
            ends == (grant.client, grant.server),
            ends == (grant.server, grant.client),
        )
        if not (is_client or is_server) or (grant.sent if is_client else grant.received):
            return NOT_LEASED
        if report.transferred_bytes > grant.max_bytes + BLOCK_BYTES:
            return OVER_LEASE
        if is_client or report.outcome != _DONE:
            return None
        is_whole = report.HasField("bandwidth_mbps") and report.measured_us > 0
        megabits, seconds = report.transferred_bytes * 8e-6, report.measured_us * 1e-6
        measured_megabits = report.bandwidth_mbps * seconds
        is_possible = (
            measured_megabits <= grant.most_mbps * (seconds + BURST_S)
            and _LEAST_MEASURED * megabits <= measured_megabits <= _ROUNDING * megabits
        )
        return None if is_whole and is_possible else OVER_LEASE

    def report(
        self, node: str, report: pb.BandwidthReport, at_s: float
    ) -> tuple[int | None, BandwidthTest | None]:
        """Store a valid report. Returns the bytes to charge once both ends have reported, and the
        result if they agree.

        A test that failed is charged in full, because either end may be wrong about what was
        sent, unless both refused it. at_s: when the board says that this was; no earlier than its
        lease counts.
        """
        grant = self._grants[report.lease_id]
        at_s = max(at_s, grant.starts_s)
        if node == grant.client:
            grant.sent = report
        else:
            grant.received, grant.received_at_s = report, at_s
        sent, received = grant.sent, grant.received
        if sent is None or received is None:
            return None, None
        del self._grants[report.lease_id]
        if sent.outcome != _DONE or received.outcome != _DONE:
            is_refused = sent.outcome in _NOTHING_SENT and received.outcome in _NOTHING_SENT
            return 0 if is_refused else grant.max_bytes, None
        moved = max(sent.transferred_bytes, received.transferred_bytes)
        agree = _agree(sent, received)
        pair = min(grant.client, grant.server), max(grant.client, grant.server)
        self._verdicts.pop(pair, None)
        self._verdicts[pair] = not agree, at_s  # the newest last
        if len(self._verdicts) > _MAX_VERDICTS:
            del self._verdicts[next(iter(self._verdicts))]
        if not agree:
            return moved, None
        is_client_hindered = _is_hindered(sent, received)
        is_server_hindered = _is_hindered(received, received)
        return moved, BandwidthTest(
            client=grant.client,
            server=grant.server,
            mbps=min(received.bandwidth_mbps, grant.most_mbps),
            seconds=received.measured_us * 1e-6,
            at_s=grant.received_at_s,
            is_hindered=is_client_hindered or is_server_hindered,
            is_untimed=received.lower_bound or received.bandwidth_mbps > grant.most_mbps,
            requested_mbps=grant.requested_mbps,
        )

    def contradicting(self, now_s: float) -> set[str]:
        """The nodes that disagree with most of their peers about tests of the last hour."""
        # There are up to 50,000, on the event loop: so those that cannot matter are left out.
        verdicts = self._verdicts.items()
        old = takewhile(lambda each: now_s - each[1][1] > _VERDICT_S, verdicts)  # the oldest first
        for pair in [pair for pair, _ in old]:
            del self._verdicts[pair]
        against = Counter(
            chain.from_iterable([pair for pair, (disagreed, _) in verdicts if disagreed])
        )
        accused = {node for node, count in against.items() if count >= LEAST_AGAINST}
        if not accused:
            return set()
        pairs = [pair for pair in self._verdicts if pair[0] in accused or pair[1] in accused]
        index = {name: at for at, name in enumerate(sorted({x for pair in pairs for x in pair}))}
        ends = np.array([(index[a], index[b]) for a, b in pairs], dtype=np.int64)
        disagree = np.array([self._verdicts[pair][0] for pair in pairs], dtype=np.bool_)
        # With others that nobody disagrees with, the nodes are still as many as they are.
        count = len({node for pair in self._verdicts for node in pair})
        found = outvoted(count, ends, disagree)
        return {name for name, at in index.items() if found[at]}


def _is_hindered(report: pb.BandwidthReport, received: pb.BandwidthReport) -> bool:
    """Whether the board of the report was held back. While its threads wait for a processor, the
    link may be idle, or a shaper may save for a burst, so the rate may be wrong by the share of
    that time; unless the bytes came evenly all the same."""
    waited_long = report.waited_us > (1 - AGREEING_SHARE) * received.measured_us
    return (waited_long and not received.steady) or bool(report.hindrances)


def _agree(sent: pb.BandwidthReport, received: pb.BandwidthReport) -> bool:
    """Whether as much came as was sent, and not in more time than the client took."""
    share = received.transferred_bytes / max(sent.transferred_bytes, 1)
    return (
        _LEAST_ARRIVED <= share <= _ROUNDING
        and received.measured_us * 1e-3 <= sent.duration_ms + _CLIENT_LATE_MS
    )


@dataclass(slots=True)
class _PingGrant:
    """A node's lease to ping."""

    peers: frozenset[str]
    interval_s: float
    since_s: float  # since when the node has had leases without a gap
    until_s: float
    # Those of the previous lease, for which a last round may arrive until `previous_until_s`.
    previous_peers: frozenset[str] = frozenset()
    previous_until_s: float = float("-inf")
    rounds: float = _MOST_ROUNDS
    last_s: float = float("-inf")


class PingGrants:
    """Which node may report round trips to which peers, and how often."""

    def __init__(self) -> None:
        self._grants: dict[str, _PingGrant] = {}

    def add(self, node: str, work: pb.PingLease, now_s: float) -> None:
        """Store the lease that the node is sent now."""
        peers = frozenset(peer.node for peer in work.peers)
        interval_s = float(max(work.interval_s, 1))
        until_s = now_s + DELIVERY_S + work.ttl_s + interval_s + LATE_S
        grant = self._grants.get(node)
        if grant is None or now_s > grant.until_s:
            self._grants[node] = _PingGrant(peers, interval_s, now_s, until_s)
            return
        grant.until_s, grant.interval_s = until_s, interval_s
        if peers != grant.peers:
            grant.previous_peers, grant.peers = grant.peers, peers
            grant.previous_until_s = now_s + DELIVERY_S + interval_s
            grant.rounds = min(_MOST_ROUNDS, grant.rounds + 1)  # the agent starts a round at once

    def refusal(self, node: str, measured_s: float, now_s: float) -> str | None:
        """Why a round measured at `measured_s` is refused, as a kind; None if it is valid, and then
        it uses up one of the rounds that the lease allows.

        The time of measurement counts, not of arrival: after an outage of the broker an agent sends
        all its buffered rounds at once.
        """
        grant = self._grants.get(node)
        if grant is None or now_s > grant.until_s or measured_s < grant.since_s:
            return NOT_LEASED
        passed_s = max(0.0, measured_s - max(grant.last_s, grant.since_s))
        rounds = min(_MOST_ROUNDS, grant.rounds + passed_s / grant.interval_s)
        if rounds < 1:
            return TOO_OFTEN
        grant.rounds, grant.last_s = rounds - 1, max(grant.last_s, measured_s)
        return None

    def peers(self, node: str, now_s: float) -> frozenset[str]:
        """The peers to which the node may report round trips."""
        grant = self._grants.get(node)
        if grant is None or now_s > grant.until_s:
            return frozenset()
        return (
            grant.peers | grant.previous_peers if now_s <= grant.previous_until_s else grant.peers
        )

    def pings_per_minute(self, count: int, now_s: float) -> dict[str, float]:
        """What each node may send under its lease, if it sends each peer `count` a round."""
        return {
            node: 60 * count * len(grant.peers) / grant.interval_s
            for node, grant in self._grants.items()
            if now_s <= grant.until_s
        }

    def drop_expired(self, now_s: float) -> None:
        """Drop expired leases."""
        self._grants = {node: g for node, g in self._grants.items() if now_s <= g.until_s}
