"""Encodes messages, and decodes them with the checks that every receiver needs.

Messages from MQTT are untrusted. `decode` rejects one that is malformed, too large, of another
schema, not finite, negative, out of range, dated in the future, or whose node is not its topic's.
Each rejection has a `Fault`, so that receivers can count them by kind.
"""

import math
from collections.abc import Callable, Mapping, Sized
from enum import StrEnum
from typing import Any

from google.protobuf.message import DecodeError

from leadline_wire import topics
from leadline_wire.v1 import telemetry_pb2 as pb

MAX_BYTES = 64 * 1024
BOOT_ID_BYTES = 16
# The upper bound of each field: far more than any board has, and small enough that no sum, product
# or list of such values overflows.
MOST_COUNT = 10**15  # numbers of messages and sessions: a message every microsecond for 30 years
MOST_BOOT_MS = 100 * 366 * 86_400_000  # since boot: a century
MOST_UNIX_MS = 2**47  # the year 6429
MAX_TEXT = 1024  # characters of one text; the longest there is is a kernel's or board's name
MOST_PER_S = 1.25e11  # bytes or packets a second: a link of 1 Tbit/s
MOST_MBPS = 1e6  # 1 Tbit/s
MOST_RTT_MS = 60_000.0  # an echo times out after one second, a connection after a keepalive
MOST_ECHOES = 1000  # of a round; agents send 20
MOST_LOAD = 4_194_304.0  # as many tasks as Linux can have
MOST_CORES = 8192  # as many as Linux can have
MOST_MHZ = 100_000.0  # 100 GHz
MOST_MEMORY_BYTES = 1 << 50  # 1 PiB
LEAST_CELSIUS, MOST_CELSIUS = -100.0, 250.0  # no processor works outside of this range
MOST_DURATION_US = 600_000_000  # of one collector: ten minutes
MOST_INTERVAL_S = 31 * 86_400  # between two reports or rounds: a month
MOST_TEST_BYTES = 1 << 35  # of one bandwidth test: twice what a controller can be set to
MOST_TEST_MS = 600_000  # of one bandwidth test: ten minutes
MOST_PEERS, MOST_INTERFACES, MOST_COLLECTORS, MOST_PROBES = 256, 256, 64, 64  # in one message
MOST_HINDRANCES = 16  # of one test; there are three
MOST_FLOWS = 64  # in one message
MOST_FLOW_MS = 3_600_000  # that a board adds up: an hour
MOST_FLOW_COUNT = 1 << 50  # of its bytes or packets: an hour at 1 Tbit/s is less
MOST_FLOW_CONNECTIONS = 1 << 28  # that began, of one flow: an hour at 70,000 a second is less
_ADDRESS_BYTES = (4, 16)  # IPv4, IPv6


class Fault(StrEnum):
    """Why a message was rejected."""

    TOPIC = "topic"
    OVERSIZED = "oversized"
    UNKNOWN_SCHEMA = "unknown_schema"
    BROKEN = "broken"
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    TOO_LONG = "too_long"
    FUTURE_DATED = "future_dated"
    WRONG_NODE = "wrong_node"


class MessageError(ValueError):
    """A rejected message. `fault` is the kind, str() the reason in one line."""

    def __init__(self, fault: Fault, reason: str) -> None:
        super().__init__(f"{fault}: {reason}")
        self.fault = fault


TelemetryMessage = (
    pb.Birth
    | pb.Report
    | pb.RttReport
    | pb.BandwidthReport
    | pb.TrafficReport
    | pb.Status
    | pb.Lease
)


def kind_of(message: TelemetryMessage) -> topics.Kind:
    """The kind of the topic to which a message is published."""
    return next(kind for kind, (type_, _) in _KINDS.items() if isinstance(message, type_))


def encode(message: TelemetryMessage) -> bytes:
    """Serialise a message."""
    return message.SerializeToString()


def stamp_sent(
    kind: topics.Kind, payload: bytes, sent_boot_ms: int, sent_unix_ms: int | None = None
) -> bytes:
    """Add the time of sending to an encoded message; the wall clock's to a report only.

    Protobuf merges the fields of concatenated messages, so the board need not decode a buffered
    message again.
    """
    if kind in (topics.Kind.STATUS, topics.Kind.LEASE):
        return payload
    # `timing` has the same number in every message that has one.
    unix_ms = sent_unix_ms if kind is topics.Kind.REPORT else None
    stamp = pb.Report(timing=pb.Timing(sent_boot_ms=sent_boot_ms, sent_unix_ms=unix_ms))
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
    message_type, checks = _KINDS[topic.kind]
    message = message_type()
    try:
        message.ParseFromString(payload)
    except DecodeError:
        raise MessageError(Fault.BROKEN, f"no {message_type.__name__} in this payload") from None
    for check in checks:
        check(message, topic)
    return message


def _check_origin(message: Any, topic: topics.Topic) -> None:
    origin = message.origin
    _check_node(origin.node, topic)
    if len(origin.boot_id) != BOOT_ID_BYTES:
        raise MessageError(
            Fault.BROKEN, f"boot id of {len(origin.boot_id)} bytes, expected {BOOT_ID_BYTES}"
        )
    _check_most("origin.session", origin.session, MOST_COUNT)
    _check_most("origin.sequence", origin.sequence, MOST_COUNT)


def _check_node(node: str, topic: topics.Topic) -> None:
    if node != topic.node:
        raise MessageError(
            Fault.WRONG_NODE, f"says it is of {node[:80]!r} on the topic of {topic.node!r}"
        )


def _check_numbered(message: Any, _: topics.Topic) -> None:
    if not message.origin.sequence:
        raise MessageError(Fault.BROKEN, "no sequence number")
    timing = message.timing
    _check_most("timing.sent_unix_ms", timing.sent_unix_ms, MOST_UNIX_MS)
    _check_most("timing.measured_boot_ms", timing.measured_boot_ms, MOST_BOOT_MS)
    if timing.HasField("sent_boot_ms"):
        _check_most("timing.sent_boot_ms", timing.sent_boot_ms, MOST_BOOT_MS)
        age_ms = timing.sent_boot_ms - timing.measured_boot_ms
        if age_ms < 0:
            raise MessageError(Fault.FUTURE_DATED, f"measured {-age_ms} ms after it was sent")


def _check_birth(message: pb.Birth, _: topics.Topic) -> None:
    for name in ("agent_version", "hardware_model", "architecture", "kernel", "address"):
        _check_text(name, getattr(message, name))
    _check_count("probes", message.probes, MOST_PROBES)
    for probe in message.probes:
        _check_text("probes", probe)
    _check_most("cores", message.cores, MOST_CORES)
    _check_most("memory_bytes", message.memory_bytes, MOST_MEMORY_BYTES)
    _check_most("interval_s", message.interval_s, MOST_INTERVAL_S)
    _check_most("dropped_messages", message.dropped_messages, MOST_COUNT)


def check_report(message: pb.Report, _: topics.Topic | None = None) -> None:
    """Check the values of a report or a part of one. Raises MessageError."""
    cpu, disk, network = message.cpu, message.disk, message.network
    _check_count("network", network, MOST_INTERFACES)
    # All are checked at once against the bound of rates, because this is a hot path.
    busy_percent, load_1m, frequency_mhz = cpu.busy_percent, cpu.load_1m, cpu.frequency_mhz
    values = [busy_percent, load_1m, frequency_mhz]
    values += (disk.read_bytes_per_s, disk.written_bytes_per_s)
    for interface in network:
        if len(interface.name) > MAX_TEXT:
            _check_text("network.name", interface.name)
        values += (
            interface.packets_sent_per_s,
            interface.packets_received_per_s,
            interface.bytes_sent_per_s,
            interface.bytes_received_per_s,
        )
        if interface.link_mbps > MOST_MBPS:
            _check_most("network.link_mbps", interface.link_mbps, MOST_MBPS)
    _check_values("a value of the report", values, MOST_PER_S)
    _check_most("cpu.busy_percent", busy_percent, 100)
    _check_most("cpu.load_1m", load_1m, MOST_LOAD)
    _check_most("cpu.frequency_mhz", frequency_mhz, MOST_MHZ)
    _check_most("cpu.cores", cpu.cores, MOST_CORES)
    celsius = message.temperature.cpu_celsius
    if not math.isfinite(celsius):
        raise MessageError(Fault.NOT_FINITE, "temperature.cpu_celsius is no number")
    if not LEAST_CELSIUS <= celsius <= MOST_CELSIUS:
        raise MessageError(Fault.OUT_OF_RANGE, f"temperature.cpu_celsius is {celsius:g}")
    memory = message.memory
    _check_most("memory.total_bytes", memory.total_bytes, MOST_MEMORY_BYTES)
    if memory.available_bytes > memory.total_bytes:
        _check_most("memory.available_bytes", memory.available_bytes, MOST_MEMORY_BYTES)
        raise MessageError(Fault.OUT_OF_RANGE, "memory.available_bytes is more than the total")
    _check_count("collectors", message.collectors, MOST_COLLECTORS)
    for run in message.collectors:
        if (
            len(run.name) > MAX_TEXT
            or len(run.why) > MAX_TEXT
            or run.duration_us > MOST_DURATION_US
        ):
            _check_text("collectors.name", run.name)
            _check_text("collectors.why", run.why)
            _check_most("collectors.duration_us", run.duration_us, MOST_DURATION_US)


def _check_rtt(message: pb.RttReport, _: topics.Topic) -> None:
    _check_count("peers", message.peers, MOST_PEERS)
    times_ms = [v for p in message.peers for v in (p.rtt_ms, p.deviation_ms)]
    _check_values("a time of the round", times_ms, MOST_RTT_MS)
    for peer in message.peers:
        _check_text("peers.peer", peer.peer)
        _check_most("peers.sent", peer.sent, MOST_ECHOES)
        if peer.received > peer.sent:
            raise MessageError(Fault.OUT_OF_RANGE, "more echo replies than requests")


def _check_bandwidth(message: pb.BandwidthReport, _: topics.Topic) -> None:
    _check_values("bandwidth_mbps", [message.bandwidth_mbps], MOST_MBPS)
    for name in ("lease_id", "peer", "detail"):
        _check_text(name, getattr(message, name))
    _check_most("transferred_bytes", message.transferred_bytes, MOST_TEST_BYTES)
    _check_most("duration_ms", message.duration_ms, MOST_TEST_MS)
    _check_most("measured_us", message.measured_us, MOST_TEST_MS * 1000)
    _check_most("waited_us", message.waited_us, MOST_TEST_MS * 1000)
    _check_count("hindrances", message.hindrances, MOST_HINDRANCES)


def _check_traffic(message: pb.TrafficReport, _: topics.Topic) -> None:
    _check_most("duration_ms", message.duration_ms, MOST_FLOW_MS)
    _check_most("omitted_bytes", message.omitted_bytes, MOST_FLOW_COUNT)
    _check_count("flows", message.flows, MOST_FLOWS)
    for flow in message.flows:
        for name in ("bytes_sent", "bytes_received", "packets_sent", "packets_received"):
            _check_most(f"flows.{name}", getattr(flow, name), MOST_FLOW_COUNT)
        _check_most("flows.port", flow.port, 65_535)
        _check_most("flows.connections", flow.connections, MOST_FLOW_CONNECTIONS)
        lengths = [len(flow.source), len(flow.destination)]
        lengths += [len(flow.translated_source)] if flow.translated_source else []
        if not set(lengths) <= set(_ADDRESS_BYTES):
            raise MessageError(Fault.BROKEN, "flows: an address of neither 4 nor 16 bytes")


def _check_lease(message: pb.Lease, topic: topics.Topic) -> None:
    _check_node(message.node, topic)
    work = message.WhichOneof("work")
    if work is None:
        raise MessageError(Fault.BROKEN, "the lease names no work")
    if work == "ping":
        ping = message.ping
        _check_count("ping.peers", ping.peers, MOST_PEERS)
        for peer in ping.peers:
            _check_peer(peer)
        _check_most("ping.interval_s", ping.interval_s, MOST_INTERVAL_S)
        _check_most("ping.count", ping.count, MOST_ECHOES)
        _check_most("ping.ttl_s", ping.ttl_s, MOST_INTERVAL_S)
        return
    bandwidth = message.bandwidth
    _check_text("bandwidth.lease_id", bandwidth.lease_id)
    _check_peer(bandwidth.peer)
    _check_most("bandwidth.port", bandwidth.port, 65_535)
    _check_most("bandwidth.duration_ms", bandwidth.duration_ms, MOST_TEST_MS)
    _check_most("bandwidth.max_bytes", bandwidth.max_bytes, MOST_TEST_BYTES)
    _check_most("bandwidth.ttl_ms", bandwidth.ttl_ms, MOST_TEST_MS)


def _check_peer(peer: pb.Peer) -> None:
    _check_text("peer.node", peer.node)
    _check_text("peer.address", peer.address)


def _check_values(what: str, values: list[float], most: float) -> None:
    if not values:
        return
    if not math.isfinite(sum(values)):
        raise MessageError(Fault.NOT_FINITE, f"{what} is no finite number")
    if min(values) < 0:
        raise MessageError(Fault.OUT_OF_RANGE, f"{what} is negative")
    if max(values) > most:
        raise MessageError(Fault.OUT_OF_RANGE, f"{what} is {max(values):g}, {most:g} at most")


def _check_most(what: str, value: float, most: float) -> None:
    if value > most:
        raise MessageError(Fault.OUT_OF_RANGE, f"{what} is {value:g}, {most:g} at most")


def _check_text(what: str, text: str) -> None:
    if len(text) > MAX_TEXT:
        raise MessageError(Fault.TOO_LONG, f"{what} is longer than {MAX_TEXT} characters")


def _check_count(what: str, items: Sized, most: int) -> None:
    if len(items) > most:
        raise MessageError(Fault.TOO_LONG, f"{what} has more than {most} entries")


_Check = Callable[[Any, topics.Topic], None]
_KINDS: Mapping[topics.Kind, tuple[type[TelemetryMessage], tuple[_Check, ...]]] = {
    topics.Kind.BIRTH: (pb.Birth, (_check_origin, _check_numbered, _check_birth)),
    topics.Kind.REPORT: (pb.Report, (_check_origin, _check_numbered, check_report)),
    topics.Kind.RTT: (pb.RttReport, (_check_origin, _check_numbered, _check_rtt)),
    topics.Kind.BANDWIDTH: (
        pb.BandwidthReport,
        (_check_origin, _check_numbered, _check_bandwidth),
    ),
    topics.Kind.TRAFFIC: (pb.TrafficReport, (_check_origin, _check_numbered, _check_traffic)),
    topics.Kind.STATUS: (pb.Status, (_check_origin,)),
    topics.Kind.LEASE: (pb.Lease, (_check_lease,)),
}
