"""Reports and leases, with the unit in each name, so that no room imports another for them.

None is unknown, never zero. Probes report the wire's own messages.
"""

import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from leadline_wire.v1 import telemetry_pb2 as pb

# The name of the peer when a board measured its round trip to the broker.
BROKER = "@broker"
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


def boot_ms() -> int:
    """Milliseconds since boot, suspended time included. This clock is never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class CollectorOutcome(StrEnum):
    """How one run of a collector ended."""

    OK = "ok"
    ABSENT = "absent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CollectorRun:
    """One run of one collector, as node_exporter exports success and duration."""

    name: str
    outcome: CollectorOutcome
    duration_us: int


class Reading(Protocol):
    """What one collector read: a dataclass, or a tuple of them, in the collector's file."""

    def encode(self, report: Any, /) -> None:
        """Set the collector's field of the wire's Report; a value that is None stays unset."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the board was doing at `measured_boot_ms`; the readings by collector.

    A collector that failed or found nothing has no reading.
    """

    measured_boot_ms: int
    collectors: tuple[CollectorRun, ...]
    readings: Mapping[str, Reading] = field(default_factory=dict)


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
