"""Reports, probe results and leases: immutable, with the unit in each name.

Collectors and probes create them and the publisher encodes them, so that none of them imports
another. None is unknown, never zero.
"""

import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

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


@dataclass(frozen=True, slots=True)
class Board:
    """What this board is and what it can probe; constant while the agent runs.

    `address` is where peers reach it, from the settings; empty: its address towards the broker.
    """

    agent_version: str
    hardware_model: str
    architecture: str
    kernel: str
    cores: int | None
    memory_bytes: int | None
    address: str
    interval_s: float
    probes: tuple[str, ...]


class RttMethod(StrEnum):
    """How a round trip was measured."""

    ICMP = "icmp"
    MQTT = "mqtt"


@dataclass(frozen=True, slots=True)
class RttSample:
    """One round of echoes with one peer: median and population standard deviation of the replies.

    With the method MQTT the peer is BROKER.
    """

    peer: str
    method: RttMethod
    sent: int
    received: int
    rtt_ms: float | None = None
    deviation_ms: float | None = None


@dataclass(frozen=True, slots=True)
class RttRound:
    """One round of echoes with all peers."""

    measured_boot_ms: int
    peers: tuple[RttSample, ...]


class BandwidthOutcome(StrEnum):
    """How a bandwidth lease ended."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class BandwidthResult:
    """How one bandwidth lease ended. Mbit/s are 10^6 bits of payload at the receiver."""

    measured_boot_ms: int
    lease_id: str
    peer: str
    outcome: BandwidthOutcome
    bandwidth_mbps: float | None = None
    lower_bound: bool = False
    transferred_bytes: int = 0
    duration_ms: int = 0
    detail: str = ""


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
Result = RttRound | BandwidthResult
