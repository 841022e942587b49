"""Builds the messages of a board's agent, numbered, with any field changed."""

from collections.abc import Sequence
from typing import Any

from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

CLUSTER = "lab"
BOOT_ID = bytes(range(16))


class BoardMessages:
    """The messages of one node's agent."""

    def __init__(self, node: str, cluster: str = CLUSTER, session: int = 1) -> None:
        self.node, self.cluster, self.session = node, cluster, session
        self.boot_ms = 100_000
        self._sequence = 0

    def topic(self, kind: topics.Kind) -> str:
        return topics.topic(self.cluster, self.node, kind)

    def origin(self, **changed: Any) -> pb.Origin:
        self._sequence += 1
        fields = {
            "node": self.node,
            "boot_id": BOOT_ID,
            "session": self.session,
            "sequence": self._sequence,
        }
        return pb.Origin(**{**fields, **changed})

    def timing(self, age_ms: int | None = 0) -> pb.Timing:
        """Measured now, and sent `age_ms` later; None: without the time of sending."""
        self.boot_ms += 1000
        if age_ms is None:
            return pb.Timing(measured_boot_ms=self.boot_ms)
        return pb.Timing(measured_boot_ms=self.boot_ms, sent_boot_ms=self.boot_ms + age_ms)

    def report(self, age_ms: int | None = 0, *, origin: Any = None, **fields: Any) -> pb.Report:
        fields = fields or {"cpu": pb.Cpu(busy_percent=12.5)}
        return pb.Report(origin=self.origin(**(origin or {})), timing=self.timing(age_ms), **fields)

    def rtt(self, *peers: tuple[str, float | None], age_ms: int | None = 0) -> pb.RttReport:
        rtts = [pb.Rtt(peer=peer, rtt_ms=ms, sent=3, received=3) for peer, ms in peers]
        return pb.RttReport(origin=self.origin(), timing=self.timing(age_ms), peers=rtts)

    def bandwidth(
        self, peer: str, mbps: float | None, age_ms: int | None = 0, **fields: Any
    ) -> pb.BandwidthReport:
        fields = {"outcome": pb.BandwidthReport.DONE, "lease_id": "x-1", **fields}
        return pb.BandwidthReport(
            origin=self.origin(),
            timing=self.timing(age_ms),
            peer=peer,
            bandwidth_mbps=mbps,
            **fields,
        )

    def traffic(self, *flows: pb.Flow, age_ms: int | None = 0, **fields: Any) -> pb.TrafficReport:
        """What it counted in the minute before `age_ms` ago."""
        fields = {"duration_ms": 60_000, **fields}
        return pb.TrafficReport(
            origin=self.origin(), timing=self.timing(age_ms), flows=flows, **fields
        )

    def sent(self, lease: pb.BandwidthLease) -> pb.BandwidthReport:
        """A client's report that it gave all bytes of its lease to TCP, in a second."""
        return self.bandwidth(
            lease.peer.node,
            None,
            lease_id=lease.lease_id,
            transferred_bytes=lease.max_bytes,
            duration_ms=1000,
        )

    def received(self, lease: pb.BandwidthLease, mbps: float) -> pb.BandwidthReport:
        """A server's report that all bytes of its lease came, the second half at this rate."""
        return self.bandwidth(
            lease.peer.node,
            mbps,
            lease_id=lease.lease_id,
            transferred_bytes=lease.max_bytes,
            duration_ms=1000,
            measured_us=round(lease.max_bytes / 2 * 8 / mbps),
        )

    def birth(
        self,
        address: str = "192.0.2.1",
        probes: Sequence[str] = ("icmp", "iperf3"),
        **fields: Any,
    ) -> pb.Birth:
        return pb.Birth(
            origin=self.origin(), timing=self.timing(), address=address, probes=probes, **fields
        )

    def status(self, *, online: bool) -> pb.Status:
        return pb.Status(origin=self.origin(sequence=0), online=online)


def payload(message: codec.TelemetryMessage) -> bytes:
    return codec.encode(message)
