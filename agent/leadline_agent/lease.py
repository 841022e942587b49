"""Leases as the probes receive them. Their results are the wire's own messages."""

import ipaddress
from dataclasses import dataclass
from enum import StrEnum

from leadline_wire.v1 import telemetry_pb2 as pb

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


class Role(StrEnum):
    """The end of a bandwidth test."""

    SERVER = "server"
    CLIENT = "client"


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
    role: Role
    peer: Peer
    port: int
    duration_ms: int
    max_bytes: int
    expires_s: float


Lease = PingLease | BandwidthLease
Result = pb.RttReport | pb.BandwidthReport
