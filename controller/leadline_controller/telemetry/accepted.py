"""What a state of telemetry accepts: births, reports, rounds of pings and bandwidth tests."""

from collections.abc import Mapping
from dataclasses import dataclass

from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent's birth and status. None, empty and 0 are unknown."""

    node: str
    online: bool | None = None
    version: str = ""
    hardware_model: str = ""
    address: str = ""
    probes: tuple[str, ...] = ()
    dropped_messages: int = 0
    architecture: str = ""
    kernel: str = ""
    cores: int = 0
    memory_bytes: int = 0
    interval_s: int = 0  # between reports


@dataclass(frozen=True, slots=True)
class Born:
    """An agent's birth."""

    agent: Agent
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Reported:
    """A board's report."""

    node: str
    stamp: Stamp
    reading: BoardReading


@dataclass(frozen=True, slots=True)
class Pinged:
    """A round of pings of a node to its peers."""

    node: str
    stamp: Stamp
    rounds: Mapping[str, PingRound]


@dataclass(frozen=True, slots=True)
class Tested:
    """A bandwidth test on which both ends agree."""

    test: BandwidthTest


Accepted = Born | Reported | Pinged | Tested
