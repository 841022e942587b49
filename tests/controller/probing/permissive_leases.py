"""A probe scheduler that accepts every result, for tests of the ingestor."""

from collections.abc import Container, Sequence

from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_wire.v1 import telemetry_pb2 as pb

MEASURED_S = 0.1  # long enough to be what the links can do


class EveryName(Container[str]):
    """A container that contains every name."""

    def __contains__(self, _: object) -> bool:
        return True


class PermissiveLeases:
    """Accepts everything, and records births and (node, lease id) of reports on tests.

    A report with a bandwidth is the result: its sender is the server, and its peer the client.
    """

    def __init__(self) -> None:
        self.births: list[str] = []
        self.tests: list[tuple[str, str]] = []

    def on_birth(self, node: str) -> None:
        self.births.append(node)

    def bandwidth_refusal(self, _node: str, _report: pb.BandwidthReport) -> str | None:
        return None

    def on_bandwidth(
        self, node: str, report: pb.BandwidthReport, at_s: float
    ) -> BandwidthTest | None:
        self.tests.append((node, report.lease_id))
        if report.outcome != pb.BandwidthReport.DONE or not report.HasField("bandwidth_mbps"):
            return None
        return BandwidthTest(report.peer, node, report.bandwidth_mbps, MEASURED_S, at_s)

    def rtt_refusal(self, _node: str, _measured_s: float) -> str | None:
        return None

    def ping_peers(self, _: str) -> Container[str]:
        return EveryName()

    def is_under_test(self, _nodes: Sequence[str], _at_s: float) -> bool:
        return False
