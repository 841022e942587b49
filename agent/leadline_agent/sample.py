"""What the agent measured and what it was told, frozen, with the unit in each name.

The innermost room: collectors and probes make these, the publisher encodes them, and none
of them needs to know another. `None` is unknown; it never stands for zero.
"""

import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

# The peer's name in a round-trip time that a board measured to the broker and not to a node.
BROKER = "@broker"
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


def boot_ms() -> int:
    """Milliseconds since boot, suspended time included: a clock that nobody sets."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class CollectorOutcome(StrEnum):
    """How one collector fared."""

    OK = "ok"
    ABSENT = "absent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CollectorRun:
    """One run of one collector."""

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
    """What this board is and can do; it changes with a restart only.

    `address` is where peers reach it by its settings; empty means by the way to the broker.
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
    """What went there and back."""

    ICMP = "icmp"
    MQTT = "mqtt"


@dataclass(frozen=True, slots=True)
class RttSample:
    """One round of echoes with one peer: median and population deviation of the replies.

    With the method MQTT the peer is BROKER, and it is this board's own leg to the broker.
    """

    peer: str
    method: RttMethod
    sent: int
    received: int
    rtt_ms: float | None = None
    deviation_ms: float | None = None


@dataclass(frozen=True, slots=True)
class RttRound:
    """One round with all peers."""

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
    """The answer to one bandwidth lease. Mbit/s are 10^6 bits of payload at the receiver."""

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
    """Whether this is the literal IP address of one host: the only thing that a lease may name.

    A host name would let whoever names it choose where the traffic goes.
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
    """Another node and where it is reached."""

    node: str
    address: str


class Role(StrEnum):
    """The end of a bandwidth test that a board plays."""

    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class PingLease:
    """A ping lease: `count` echoes to each peer every `interval_s`, until `expires_s`.

    `expires_s` is on the monotonic clock, counted from the receipt.
    """

    peers: tuple[Peer, ...]
    interval_s: int
    count: int
    expires_s: float


@dataclass(frozen=True, slots=True)
class BandwidthLease:
    """A bandwidth lease. It must not start after `expires_s` on the monotonic clock."""

    lease_id: str
    role: Role
    peer: Peer
    port: int
    duration_ms: int
    max_bytes: int
    expires_s: float


Lease = PingLease | BandwidthLease
Result = RttRound | BandwidthResult
