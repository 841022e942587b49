"""Leases as the probes receive them. Their results are the wire's own messages."""

import ipaddress
import re
from dataclasses import dataclass

from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

_LEASE_ID = re.compile(r"[!-~]{1,128}")
_ROLES = (pb.BandwidthLease.SERVER, pb.BandwidthLease.CLIENT)
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


def is_unicast(address: str) -> bool:
    """Whether this is the literal IP address of one host, the only address that a lease may name.

    The owner of a host name could redirect the traffic.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    is_special = parsed.is_multicast or parsed.is_unspecified or parsed.is_reserved
    if isinstance(parsed, ipaddress.IPv6Address):
        # ::1 is within a reserved block. A scope or an embedded IPv4 address has no place here.
        is_special = is_special and not parsed.is_loopback
        return not (is_special or parsed.scope_id or parsed.ipv4_mapped)
    return not (is_special or parsed in _THIS_NETWORK)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another node and its address."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class PingLease:
    """Send `count` echoes to each peer every `interval_s` until `expires_s` (monotonic clock)."""

    peers: tuple[Peer, ...]
    interval_s: int
    count: int
    expires_s: float


@dataclass(frozen=True, slots=True)
class BandwidthLease:
    """One end of a bandwidth test, which must not start after `expires_s` (monotonic clock)."""

    lease_id: str
    role: pb.BandwidthLease.Role
    peer: Peer
    port: int
    duration_ms: int
    max_bytes: int
    expires_s: float


Lease = PingLease | BandwidthLease
Result = pb.RttReport | pb.BandwidthReport


def decode_lease(topic: str, payload: bytes, schema: str | None, received_s: float) -> Lease:
    """The lease in a message of the lease topic. Raises codec.MessageError, TopicError.

    Syntax is checked here, this board's limits in the probes. The time to live counts from
    `received_s` on the monotonic clock, so no wall clock has to be right.
    """
    message = codec.decode(topics.parse(topic), payload, schema)
    if isinstance(message, pb.Lease) and message.WhichOneof("work") == "ping":
        ping = message.ping
        peers = tuple(_peer(peer) for peer in ping.peers)
        return PingLease(peers, ping.interval_s, ping.count, received_s + ping.ttl_s)
    if not (isinstance(message, pb.Lease) and message.bandwidth.role in _ROLES):
        raise codec.MessageError(
            codec.Fault.BROKEN, "the lease names no work that this agent knows"
        )
    bandwidth = message.bandwidth
    if not _LEASE_ID.fullmatch(bandwidth.lease_id):
        raise codec.MessageError(
            codec.Fault.OUT_OF_RANGE, "lease_id: expected 1 to 128 printable ASCII characters"
        )
    return BandwidthLease(
        lease_id=bandwidth.lease_id,
        role=bandwidth.role,
        peer=_peer(bandwidth.peer),
        port=bandwidth.port,
        duration_ms=bandwidth.duration_ms,
        max_bytes=bandwidth.max_bytes,
        expires_s=received_s + bandwidth.ttl_ms / 1000,
    )


def _peer(message: pb.Peer) -> Peer:
    return Peer(topics.check_level(message.node, "peer"), message.address)
