"""Sends the probe leases that the core plans, and hears how they ended.

Called from the event loop on a clock, and from the MQTT thread when a board is born or a
test ends, hence the lock.
"""

import secrets
from collections.abc import Callable, Sequence
from threading import Lock

from leadline_wire import topics
from leadline_wire.codec import encode
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.core.leases import (
    BandwidthWork,
    Peer,
    PingWork,
    ProbeLimits,
    RoundRobin,
    pairs,
    ping_peers,
)
from leadline_controller.core.ports import Telemetry
from leadline_controller.state.telemetry import Agent, TelemetryState

Publish = Callable[[str, topics.Kind, bytes], None]
_ROLES = {"server": pb.BandwidthLease.SERVER, "client": pb.BandwidthLease.CLIENT}


class LeaseSender:
    """The Telemetry port over MQTT."""

    def __init__(self, cluster: str, publish: Publish) -> None:
        self._cluster = cluster
        self._publish = publish

    def send_ping_lease(self, node: str, work: PingWork) -> None:
        """Tell a node whom to ping."""
        lease = pb.PingLease(
            peers=[_peer(peer) for peer in work.peers],
            interval_s=work.interval_s,
            count=work.count,
            ttl_s=work.ttl_s,
        )
        self._send(node, pb.Lease(node=node, ping=lease))

    def send_bandwidth_lease(self, node: str, work: BandwidthWork) -> None:
        """Let a node take one end of a bandwidth test."""
        lease = pb.BandwidthLease(
            lease_id=work.lease_id,
            role=_ROLES[work.role],
            peer=_peer(work.peer),
            port=work.port,
            duration_ms=work.duration_ms,
            max_bytes=work.max_bytes,
            ttl_ms=work.ttl_ms,
        )
        self._send(node, pb.Lease(node=node, bandwidth=lease))

    def _send(self, node: str, lease: pb.Lease) -> None:
        topic = topics.topic(self._cluster, node, topics.Kind.LEASE)
        self._publish(topic, topics.Kind.LEASE, encode(lease))


class Prober:
    """Keeps every board's ping lease fresh and one bandwidth test at a time going."""

    def __init__(
        self,
        telemetry: TelemetryState,
        sender: Telemetry,
        limits: ProbeLimits,
        anchors: Sequence[str],
    ) -> None:
        self._telemetry = telemetry
        self._sender = sender
        self._limits = limits
        self._anchors = tuple(anchors)
        self._round_robin = RoundRobin(limits)
        self._nonce = secrets.token_hex(4)  # leases of an earlier controller are not ours
        self._pinged_s: dict[str, float] = {}
        self._lock = Lock()

    def on_birth(self, node: str) -> None:
        """The board just (re)started and has forgotten its ping lease."""
        with self._lock:
            self._pinged_s.pop(node, None)

    def on_bandwidth(self, node: str, lease_id: str) -> None:
        """A test ended; only its client's word ends the lease."""
        with self._lock:
            running = self._round_robin.running
            if running is not None and running.client == node:
                self._round_robin.finish(lease_id)

    def take_over(self, now_s: float) -> None:
        """Another sent the leases until now: every board is told anew whom to ping, and what
        bandwidth test may be out ends before the first of ours."""
        with self._lock:
            self._pinged_s.clear()
            self._round_robin.rest(now_s)

    def tick(self, now_s: float) -> None:
        """Send what is due."""
        present = {
            name: agent
            for name, agent in self._telemetry.agents().items()
            if agent.online and agent.address
        }
        with self._lock:
            self._ping(now_s, present)
            self._test(now_s, present)

    def _ping(self, now_s: float, present: dict[str, Agent]) -> None:
        addresses = {name: present[name].address for name in sorted(present)}
        renew_s = self._limits.ping_ttl_s / 3
        for node in addresses:
            if now_s - self._pinged_s.get(node, float("-inf")) < renew_s:
                continue
            work = ping_peers(node, addresses, self._anchors, self._limits)
            self._sender.send_ping_lease(node, work)
            self._pinged_s[node] = now_s
        self._pinged_s = {n: at for n, at in self._pinged_s.items() if n in addresses}

    def _test(self, now_s: float, present: dict[str, Agent]) -> None:
        if not self._round_robin.is_due(now_s):
            return
        addresses = {n: a.address for n, a in present.items() if "iperf3" in a.probes}
        wanted = pairs(sorted(addresses), self._anchors)
        ends = self._round_robin.next(now_s, wanted, addresses, self._nonce)
        for node, work in ends or ():
            self._sender.send_bandwidth_lease(node, work)


def _peer(peer: Peer) -> pb.Peer:
    return pb.Peer(node=peer.node, address=peer.address)
