"""A probe context whose results a test can wait for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

import pytest
from leadline_agent.config import Probe
from leadline_agent.lease import Result
from leadline_agent.probes import ProbeContext
from leadline_wire.v1 import telemetry_pb2 as pb


@dataclass
class ProbeHarness:
    """The agent as a probe sees it; `results` are those that it reported."""

    results: SimpleQueue[Result] = field(default_factory=SimpleQueue)
    broker_rtts_ms: list[float] = field(default_factory=list)
    address: str = "127.0.0.1"
    hindrances: list[pb.BandwidthReport.Hindrance] = field(default_factory=list)

    def context(self) -> ProbeContext:
        return ProbeContext(
            limits=Probe("", 8, 100_000_000, 5000),
            own_address=lambda: self.address,
            broker_rtts_ms=lambda: self.broker_rtts_ms,
            report=self.results.put,
            watch_hindrances=lambda: lambda: self.hindrances,
        )


@pytest.fixture
def harness() -> ProbeHarness:
    return ProbeHarness()


@pytest.fixture
def make_harness() -> Callable[[], ProbeHarness]:
    return ProbeHarness
