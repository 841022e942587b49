"""Encodes what was measured as messages of the wire, and decodes leases."""

import re
from typing import Any

from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.sample import (
    BandwidthLease,
    BandwidthOutcome,
    BandwidthResult,
    Board,
    CollectorOutcome,
    Lease,
    Peer,
    PingLease,
    Report,
    Role,
    RttMethod,
    RttRound,
)

LeaseError = codec.MessageError
_LEASE_ID = re.compile(r"[!-~]{1,128}")

_COLLECTOR_OUTCOMES = {
    CollectorOutcome.OK: pb.CollectorRun.OK,
    CollectorOutcome.ABSENT: pb.CollectorRun.ABSENT,
    CollectorOutcome.FAILED: pb.CollectorRun.FAILED,
}
_METHODS = {RttMethod.ICMP: pb.Rtt.ICMP, RttMethod.MQTT: pb.Rtt.MQTT}
_BANDWIDTH_OUTCOMES = {
    BandwidthOutcome.DONE: pb.BandwidthReport.DONE,
    BandwidthOutcome.REFUSED: pb.BandwidthReport.REFUSED,
    BandwidthOutcome.FAILED: pb.BandwidthReport.FAILED,
    BandwidthOutcome.ABSENT: pb.BandwidthReport.ABSENT,
}
_ROLES = {pb.BandwidthLease.SERVER: Role.SERVER, pb.BandwidthLease.CLIENT: Role.CLIENT}
SequencedMessage = pb.Report | pb.RttReport | pb.BandwidthReport | pb.Birth


class Encoder:
    """Encodes the messages of one session, with sequence numbers from 1."""

    def __init__(self, cluster: str, node: str, boot_id: bytes, session: int) -> None:
        self._cluster, self._node = cluster, node
        self._boot_id, self._session = boot_id, session
        self._sequence = 0

    def topic(self, kind: topics.Kind) -> str:
        """This node's topic of one kind."""
        return topics.topic(self._cluster, self._node, kind)

    def sample(self, sample: Report | RttRound | BandwidthResult) -> tuple[str, bytes]:
        """(topic, payload) of a report or a probe's result."""
        message = _MESSAGES[type(sample)](sample)
        return self._add_sequence(message, sample.measured_boot_ms)

    def birth(self, board: Board, address: str, dropped: int, now_ms: int) -> tuple[str, bytes]:
        """(topic, payload) of the birth message, which describes this board."""
        message = pb.Birth(
            agent_version=board.agent_version,
            hardware_model=board.hardware_model,
            architecture=board.architecture,
            kernel=board.kernel,
            cores=board.cores,
            memory_bytes=board.memory_bytes,
            address=address,
            interval_s=round(board.interval_s),
            probes=board.probes,
            dropped_messages=dropped,
        )
        return self._add_sequence(message, now_ms)

    def status(self, *, online: bool) -> tuple[str, bytes]:
        """(topic, payload) of the session's status, which has no sequence number."""
        message = pb.Status(origin=self._origin(), online=online)
        return self.topic(topics.Kind.STATUS), codec.encode(message)

    def _add_sequence(self, message: SequencedMessage, measured_boot_ms: int) -> tuple[str, bytes]:
        self._sequence += 1
        message.origin.CopyFrom(self._origin())
        message.origin.sequence = self._sequence
        message.timing.measured_boot_ms = measured_boot_ms
        return self.topic(codec.kind_of(message)), codec.encode(message)

    def _origin(self) -> pb.Origin:
        return pb.Origin(node=self._node, boot_id=self._boot_id, session=self._session)


def decode_lease(topic: str, payload: bytes, schema: str | None, received_s: float) -> Lease:
    """The lease in a message of the lease topic. Raises LeaseError, TopicError.

    Syntax is checked here, this board's limits in the probes. The time to live counts from
    `received_s` on the monotonic clock, so no wall clock has to be right.
    """
    message = codec.decode(topics.parse(topic), payload, schema)
    if isinstance(message, pb.Lease) and message.WhichOneof("work") == "ping":
        ping = message.ping
        peers = tuple(_peer(peer) for peer in ping.peers)
        return PingLease(peers, ping.interval_s, ping.count, received_s + ping.ttl_s)
    if not (isinstance(message, pb.Lease) and message.bandwidth.role in _ROLES):
        raise LeaseError(codec.Fault.BROKEN, "the lease names no work that this agent knows")
    bandwidth = message.bandwidth
    if not _LEASE_ID.fullmatch(bandwidth.lease_id):
        raise LeaseError(
            codec.Fault.OUT_OF_RANGE, "lease_id: expected 1 to 128 printable ASCII characters"
        )
    return BandwidthLease(
        lease_id=bandwidth.lease_id,
        role=_ROLES[bandwidth.role],
        peer=_peer(bandwidth.peer),
        port=bandwidth.port,
        duration_ms=bandwidth.duration_ms,
        max_bytes=bandwidth.max_bytes,
        expires_s=received_s + bandwidth.ttl_ms / 1000,
    )


def _peer(message: pb.Peer) -> Peer:
    return Peer(topics.check_level(message.node, "peer"), message.address)


def _report(report: Report) -> pb.Report:
    message = pb.Report(
        collectors=[
            pb.CollectorRun(
                name=run.name, outcome=_COLLECTOR_OUTCOMES[run.outcome], duration_us=run.duration_us
            )
            for run in report.collectors
        ]
    )
    for reading in report.readings.values():
        reading.encode(message)
    return message


def _rtt_report(rtt: RttRound) -> pb.RttReport:
    return pb.RttReport(
        peers=[
            pb.Rtt(
                peer=sample.peer,
                rtt_ms=sample.rtt_ms,
                deviation_ms=sample.deviation_ms,
                sent=sample.sent,
                received=sample.received,
                method=_METHODS[sample.method],
            )
            for sample in rtt.peers
        ]
    )


def _bandwidth_report(result: BandwidthResult) -> pb.BandwidthReport:
    return pb.BandwidthReport(
        lease_id=result.lease_id,
        peer=result.peer,
        outcome=_BANDWIDTH_OUTCOMES[result.outcome],
        bandwidth_mbps=result.bandwidth_mbps,
        lower_bound=result.lower_bound,
        transferred_bytes=result.transferred_bytes,
        duration_ms=result.duration_ms,
        detail=result.detail,
    )


_MESSAGES: dict[type, Any] = {
    Report: _report,
    RttRound: _rtt_report,
    BandwidthResult: _bandwidth_report,
}
