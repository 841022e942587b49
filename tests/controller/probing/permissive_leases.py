"""A probe scheduler that accepts every result, for tests of the ingestor."""

from collections.abc import Container

from leadline_wire.v1 import telemetry_pb2 as pb


class EveryName(Container[str]):
    """A container that contains every name."""

    def __contains__(self, _: object) -> bool:
        return True


class PermissiveLeases:
    """Accepts everything, and records births and (node, lease id) of finished tests."""

    def __init__(self) -> None:
        self.births: list[str] = []
        self.tests: list[tuple[str, str]] = []

    def on_birth(self, node: str) -> None:
        self.births.append(node)

    def bandwidth_refusal(self, _node: str, _report: pb.BandwidthReport) -> str | None:
        return None

    def on_bandwidth(self, node: str, lease_id: str) -> None:
        self.tests.append((node, lease_id))

    def rtt_refusal(self, _node: str, _measured_s: float) -> str | None:
        return None

    def ping_peers(self, _: str) -> Container[str]:
        return EveryName()
