"""Checks results against the leases that this controller granted.

A network measurement is valid only under a lease: from the node that has the lease, about the peers
that it names, within its limits, and once. Anything else is invented, or belongs to a previous
leader's lease.
"""

from dataclasses import dataclass

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.probing.planning import DELIVERY_S, ProbeLimits, RunningLease
from leadline_controller.telemetry.ingestor import NOT_LEASED, OVER_LEASE, TOO_OFTEN

# iperf3 writes in blocks of this size and always completes a block.
BLOCK_BYTES = 128 * 1024
# A result may arrive this long after its lease, for example while a broker restarts.
LATE_S = 60.0
# A receiver may start to count shortly after the sender.
_SHORTEST_SHARE = 0.9
# Agents report a lower bound from 0.95 of the pace on.
_BOUND_SHARE, _EXACT_SHARE = 0.9, 1.05
# A round is as long as its slowest peer, so two rounds may end shortly after each other.
_MOST_ROUNDS = 3.0


class BandwidthGrants:
    """The bandwidth leases whose results may still arrive."""

    def __init__(self, limits: ProbeLimits) -> None:
        seconds = max(1, limits.duration_ms // 1000)  # iperf3 takes whole ones
        self._most_bytes = limits.max_bytes + BLOCK_BYTES
        self._most_mbps = self._most_bytes * 8e-6 / (_SHORTEST_SHARE * seconds)
        self._pace_mbps = (limits.max_bytes - BLOCK_BYTES) * 8e-6 / seconds
        self._grants: dict[str, RunningLease] = {}

    def add(self, lease: RunningLease, now_s: float) -> None:
        """Store a granted lease, and drop expired ones."""
        self._grants = {name: g for name, g in self._grants.items() if now_s <= g.ends_s + LATE_S}
        self._grants[lease.lease_id] = lease

    def refusal(self, node: str, report: pb.BandwidthReport, now_s: float) -> str | None:
        """Why the node's report is refused, as a kind; None if it is valid.

        The server may report a failure, but no measurement.
        """
        grant = self._grants.get(report.lease_id)
        if grant is None or now_s > grant.ends_s + LATE_S:
            return NOT_LEASED
        ends, is_measured = (node, report.peer), report.HasField("bandwidth_mbps")
        is_server = ends == (grant.server, grant.client)
        if ends != (grant.client, grant.server) and (is_measured or not is_server):
            return NOT_LEASED
        if not is_measured:
            return None
        mbps, pace = report.bandwidth_mbps, self._pace_mbps
        if mbps > self._most_mbps or report.transferred_bytes > self._most_bytes:
            return OVER_LEASE
        is_plausible = (
            mbps >= _BOUND_SHARE * pace if report.lower_bound else mbps <= _EXACT_SHARE * pace
        )
        return None if is_plausible else OVER_LEASE

    def use_up(self, node: str, lease_id: str) -> bool:
        """Drop the lease after its client's report. False when this node is not its client."""
        grant = self._grants.get(lease_id)
        if grant is None or grant.client != node:
            return False
        del self._grants[lease_id]
        return True


@dataclass(slots=True)
class _PingGrant:
    """since_s: since when the node has had leases without a gap. previous_peers: those of the
    previous lease, for which a last round may arrive until `previous_until_s`."""

    peers: frozenset[str]
    interval_s: float
    since_s: float
    until_s: float
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

    def drop_expired(self, now_s: float) -> None:
        """Drop expired leases."""
        self._grants = {node: g for node, g in self._grants.items() if now_s <= g.until_s}
