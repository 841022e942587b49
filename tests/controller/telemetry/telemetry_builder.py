"""Builds a TelemetryState from the messages of boards, numbered as an agent numbers them."""

from collections import Counter
from typing import Any

from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.view import NodeTable
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.controller.builders import node

NAN = float("nan")
BOOT_ID = bytes(16)
TTL = TimesToLive(report_s=60.0, rtt_s=180.0, bandwidth_s=1800.0)


class TelemetryBuilder:
    """A state, and methods that store the next message of a board."""

    def __init__(self, *names: str) -> None:
        self.state = TelemetryState(TTL)
        self._sent: Counter[str] = Counter()
        for name in names:
            self.birth(name)

    def stamp(self, name: str, **changed: Any) -> Stamp:
        self._sent[name] += 1
        fields = {
            "boot_id": BOOT_ID,
            "session": 1,
            "sequence": self._sent[name],
            "measured_boot_ms": self._sent[name] * 1000,
        }
        return Stamp(**{**fields, **changed})

    def birth(
        self, name: str, address: str = "192.0.2.1", interval_s: int = 0, **stamp: Any
    ) -> bool:
        agent = Agent(name, address=address, interval_s=interval_s)
        return self.state.birth(agent, self.stamp(name, **stamp))

    def report(self, name: str, *values: float, at_s: float, **stamp: Any) -> bool:
        reading = BoardReading(dict(zip(METRICS, values, strict=False)))
        return self.state.report(name, self.stamp(name, measured_s=at_s, **stamp), reading)

    def rtt(self, name: str, peer: str, rtt_ms: float | None, at_s: float, **stamp: Any) -> bool:
        """A round of two pings; None if both were lost."""
        rounds = {peer: PingRound(rtt_ms, 2, 0 if rtt_ms is None else 2)}
        return self.state.rtts(name, self.stamp(name, measured_s=at_s, **stamp), rounds)

    def bandwidth(
        self, client: str, server: str, mbps: float, at_s: float, *, lower_bound: bool = False
    ) -> None:
        """A result on which both ends agree; a lower bound was measured for a too short time."""
        seconds = 0.0001 if lower_bound else 1.0
        self.state.bandwidth(BandwidthTest(client, server, mbps, seconds, at_s))


def table(*names: str) -> NodeTable:
    return NodeTable([node(name) for name in names])
