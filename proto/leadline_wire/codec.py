"""Messages <-> bytes, and the checks that every receiver makes before it believes one.

What comes over MQTT is untrusted. `decode` lets nothing through that is broken, too big,
of another schema, not finite, negative, dated in the future, or that names another node
than its topic; each refusal has a `Fault`, so that receivers can count them by kind.
"""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from google.protobuf.message import DecodeError

from leadline_wire import topics
from leadline_wire.v1 import telemetry_pb2 as pb

MAX_BYTES = 64 * 1024
BOOT_ID_BYTES = 16


class Fault(StrEnum):
    """Why a message was refused."""

    TOPIC = "topic"
    OVERSIZED = "oversized"
    UNKNOWN_SCHEMA = "unknown_schema"
    BROKEN = "broken"
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    FUTURE_DATED = "future_dated"
    WRONG_NODE = "wrong_node"


class MessageError(ValueError):
    """A message that was refused; `fault` says of which kind, str() says why in one line."""

    def __init__(self, fault: Fault, reason: str) -> None:
        super().__init__(f"{fault}: {reason}")
        self.fault = fault


TelemetryMessage = pb.Birth | pb.Report | pb.RttReport | pb.BandwidthReport | pb.Status | pb.Lease

_TYPES: dict[topics.Kind, type[TelemetryMessage]] = {
    topics.Kind.BIRTH: pb.Birth,
    topics.Kind.REPORT: pb.Report,
    topics.Kind.RTT: pb.RttReport,
    topics.Kind.BANDWIDTH: pb.BandwidthReport,
    topics.Kind.STATUS: pb.Status,
    topics.Kind.LEASE: pb.Lease,
}
_TIMED: dict[topics.Kind, type[pb.Birth | pb.Report | pb.RttReport | pb.BandwidthReport]] = {
    topics.Kind.BIRTH: pb.Birth,
    topics.Kind.REPORT: pb.Report,
    topics.Kind.RTT: pb.RttReport,
    topics.Kind.BANDWIDTH: pb.BandwidthReport,
}


def kind_of(message: TelemetryMessage) -> topics.Kind:
    """The kind of topic on which a message travels."""
    return next(kind for kind, type_ in _TYPES.items() if isinstance(message, type_))


def encode(message: TelemetryMessage) -> bytes:
    """Serialise a message for its topic."""
    return message.SerializeToString()


def stamp_sent(kind: topics.Kind, payload: bytes, sent_boot_ms: int) -> bytes:
    """Add the time of sending to a message that was encoded earlier.

    Protobuf merges the fields of concatenated messages, so the payload of a buffered
    message is never decoded again on the board.
    """
    if kind not in _TIMED:
        return payload
    stamp = _TIMED[kind](timing=pb.Timing(sent_boot_ms=sent_boot_ms))
    return payload + stamp.SerializeToString()


def decode(topic: topics.Topic, payload: bytes, schema: str | None) -> TelemetryMessage:
    """Decode and check one message. Raises MessageError, and nothing else."""
    if not payload:
        raise MessageError(Fault.BROKEN, "it is empty")
    if len(payload) > MAX_BYTES:
        raise MessageError(Fault.OVERSIZED, f"{len(payload)} bytes, {MAX_BYTES} at most")
    if schema != topics.SCHEMA:
        raise MessageError(
            Fault.UNKNOWN_SCHEMA, f"schema {str(schema)[:40]!r}, expected {topics.SCHEMA!r}"
        )
    message = _TYPES[topic.kind]()
    try:
        message.ParseFromString(payload)
    except DecodeError:
        raise MessageError(Fault.BROKEN, f"no {type(message).__name__} in this payload") from None
    for check in _CHECKS[topic.kind]:
        check(message, topic)
    return message


def _check_origin(message: Any, topic: topics.Topic) -> None:
    origin = message.origin
    _check_node(origin.node, topic)
    if len(origin.boot_id) != BOOT_ID_BYTES:
        raise MessageError(
            Fault.BROKEN, f"boot id of {len(origin.boot_id)} bytes, expected {BOOT_ID_BYTES}"
        )


def _check_node(node: str, topic: topics.Topic) -> None:
    if node != topic.node:
        raise MessageError(
            Fault.WRONG_NODE, f"says it is of {node[:80]!r} on the topic of {topic.node!r}"
        )


def _check_numbered(message: Any, _: topics.Topic) -> None:
    if not message.origin.sequence:
        raise MessageError(Fault.BROKEN, "no sequence number")
    timing = message.timing
    if timing.HasField("sent_boot_ms") and timing.sent_boot_ms < timing.measured_boot_ms:
        early_ms = timing.measured_boot_ms - timing.sent_boot_ms
        raise MessageError(Fault.FUTURE_DATED, f"measured {early_ms} ms after it was sent")


def _check_report(message: pb.Report, _: topics.Topic) -> None:
    cpu, disk = message.cpu, message.disk
    values = [
        cpu.busy_percent,
        cpu.load_1m,
        cpu.frequency_mhz,
        disk.read_bytes_per_s,
        disk.written_bytes_per_s,
    ]
    for interface in message.network:
        values += (
            interface.packets_sent_per_s,
            interface.packets_received_per_s,
            interface.bytes_sent_per_s,
            interface.bytes_received_per_s,
        )
    _check_values("report", values)
    if not math.isfinite(message.temperature.cpu_celsius):
        raise MessageError(Fault.NOT_FINITE, "temperature.cpu_celsius is no number")
    if cpu.busy_percent > 100.0:
        raise MessageError(Fault.OUT_OF_RANGE, f"cpu.busy_percent is {cpu.busy_percent}, over 100")
    if message.memory.available_bytes > message.memory.total_bytes:
        raise MessageError(Fault.OUT_OF_RANGE, "memory.available_bytes is more than the total")


def _check_rtt(message: pb.RttReport, _: topics.Topic) -> None:
    _check_values("rtt", [v for p in message.peers for v in (p.rtt_ms, p.deviation_ms)])
    for peer in message.peers:
        if peer.received > peer.sent:
            raise MessageError(Fault.OUT_OF_RANGE, "more echo replies than requests")


def _check_bandwidth(message: pb.BandwidthReport, _: topics.Topic) -> None:
    _check_values("bandwidth", [message.bandwidth_mbps])


def _check_lease(message: pb.Lease, topic: topics.Topic) -> None:
    _check_node(message.node, topic)
    if message.WhichOneof("work") is None:
        raise MessageError(Fault.BROKEN, "the lease names no work")


def _check_values(what: str, values: list[float]) -> None:
    if not math.isfinite(sum(values)):
        raise MessageError(Fault.NOT_FINITE, f"a value of the {what} is no finite number")
    if values and min(values) < 0:
        raise MessageError(Fault.OUT_OF_RANGE, f"a value of the {what} is negative")


_CHECKS: Mapping[topics.Kind, tuple[Callable[[Any, topics.Topic], None], ...]] = {
    topics.Kind.BIRTH: (_check_origin, _check_numbered),
    topics.Kind.REPORT: (_check_origin, _check_numbered, _check_report),
    topics.Kind.RTT: (_check_origin, _check_numbered, _check_rtt),
    topics.Kind.BANDWIDTH: (_check_origin, _check_numbered, _check_bandwidth),
    topics.Kind.STATUS: (_check_origin,),
    topics.Kind.LEASE: (_check_lease,),
}
