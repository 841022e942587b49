"""`decode` rejects every invalid message, and raises nothing but MessageError."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from leadline_wire.codec import MAX_BYTES, Fault, MessageError, decode, encode, kind_of, stamp_sent
from leadline_wire.topics import SCHEMA, Kind, Topic
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.wire_messages import MESSAGES

every_kind = pytest.mark.parametrize("kind", Kind)


def topic(kind: Kind) -> Topic:
    return Topic("home", "pi-1", kind)


def changed(kind: Kind, change: Callable[[Any], object]) -> bytes:
    """The valid message of this kind, after `change`."""
    message = type(MESSAGES[kind])()
    message.CopyFrom(MESSAGES[kind])  # type: ignore[arg-type]  # of the same type, one line up
    change(message)
    return message.SerializeToString()


def fault(kind: Kind, payload: bytes, schema: str | None = SCHEMA) -> Fault:
    with pytest.raises(MessageError) as caught:
        decode(topic(kind), payload, schema)
    assert str(caught.value).startswith(f"{caught.value.fault}: ")
    assert "\n" not in str(caught.value)
    return caught.value.fault


@every_kind
def test_a_valid_message_survives_a_round_trip(kind: Kind) -> None:
    assert kind_of(MESSAGES[kind]) == kind
    assert decode(topic(kind), encode(MESSAGES[kind]), SCHEMA) == MESSAGES[kind]


@every_kind
def test_the_size_is_bounded(kind: Kind) -> None:
    assert fault(kind, encode(MESSAGES[kind]) + bytes(MAX_BYTES)) == Fault.OVERSIZED


@every_kind
@pytest.mark.parametrize("schema", [None, "", "leadline.v2", "LEADLINE.V1", "x" * 10_000])
def test_another_schema_is_refused(kind: Kind, schema: str | None) -> None:
    assert fault(kind, encode(MESSAGES[kind]), schema) == Fault.UNKNOWN_SCHEMA


@every_kind
@pytest.mark.parametrize("payload", [b"\xff", b"\x0a\xff", b"not protobuf", b"\x0a\x05ab"])
def test_malformed_bytes_are_broken(kind: Kind, payload: bytes) -> None:
    assert fault(kind, payload) == Fault.BROKEN


@every_kind
def test_an_empty_message_is_broken(kind: Kind) -> None:
    assert fault(kind, b"") == Fault.BROKEN


@every_kind
def test_a_message_without_a_node_is_refused(kind: Kind) -> None:
    assert fault(kind, b"\xfa\x7f\x00") == Fault.WRONG_NODE  # one field that nobody knows


def test_text_that_is_not_utf_8_is_broken() -> None:
    payload = encode(MESSAGES[Kind.LEASE]).replace(b"pi-1", b"pi\xff\xff")
    assert fault(Kind.LEASE, payload) == Fault.BROKEN


SENT = (Kind.BIRTH, Kind.REPORT, Kind.RTT, Kind.BANDWIDTH, Kind.TRAFFIC, Kind.STATUS)
NUMBERED = (Kind.BIRTH, Kind.REPORT, Kind.RTT, Kind.BANDWIDTH, Kind.TRAFFIC)


@pytest.mark.parametrize("kind", SENT)
def test_a_message_of_another_node_than_its_topic_is_refused(kind: Kind) -> None:
    payload = changed(kind, lambda m: setattr(m.origin, "node", "pi-2\n" * 100))
    assert fault(kind, payload) == Fault.WRONG_NODE


def test_a_lease_for_another_node_or_without_work_is_refused() -> None:
    assert fault(Kind.LEASE, encode(pb.Lease(node="pi-2"))) == Fault.WRONG_NODE
    assert fault(Kind.LEASE, encode(pb.Lease(node="pi-1"))) == Fault.BROKEN


@pytest.mark.parametrize("kind", SENT)
@pytest.mark.parametrize("boot_id", [b"", b"short", b"x" * 17])
def test_a_boot_id_has_16_bytes(kind: Kind, boot_id: bytes) -> None:
    payload = changed(kind, lambda m: setattr(m.origin, "boot_id", boot_id))
    assert fault(kind, payload) == Fault.BROKEN


@pytest.mark.parametrize("kind", NUMBERED)
def test_every_message_but_the_status_is_numbered(kind: Kind) -> None:
    assert fault(kind, changed(kind, lambda m: setattr(m.origin, "sequence", 0))) == Fault.BROKEN


@pytest.mark.parametrize("kind", NUMBERED)
def test_nothing_is_measured_after_it_was_sent(kind: Kind) -> None:
    payload = changed(kind, lambda m: setattr(m.timing, "measured_boot_ms", 1006))
    assert fault(kind, payload) == Fault.FUTURE_DATED


@pytest.mark.parametrize("kind", NUMBERED)
def test_a_message_of_an_earlier_boot_has_no_time_of_sending(kind: Kind) -> None:
    payload = changed(kind, lambda m: m.timing.ClearField("sent_boot_ms"))
    message: Any = decode(topic(kind), payload, SCHEMA)
    assert not message.timing.HasField("sent_boot_ms")


def floats(message: Message, path: str = "") -> list[str]:
    """The paths of all floating-point values in a message's type."""
    found = []
    for field in message.DESCRIPTOR.fields:
        if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            found.append(f"{path}{field.name}")
        elif field.message_type is not None and field.name not in ("origin", "timing"):
            inner: Message = getattr(pb, field.message_type.name)()
            found += floats(inner, f"{path}{field.name}.")
    return found


def put(message: Any, path: str, value: float) -> None:
    *steps, last = path.split(".")
    for step in steps:
        message = getattr(message, step)
        if not hasattr(message, "DESCRIPTOR"):  # a list: its first entry, or a new one
            message = message[0] if message else message.add()
    setattr(message, last, value)


VALUES = [(kind, path) for kind in Kind for path in floats(MESSAGES[kind])]
every_value = pytest.mark.parametrize(("kind", "path"), VALUES)


def test_there_are_values_to_check() -> None:
    assert (Kind.REPORT, "cpu.busy_percent") in VALUES
    assert (Kind.RTT, "peers.rtt_ms") in VALUES
    assert (Kind.BANDWIDTH, "bandwidth_mbps") in VALUES
    assert len(VALUES) >= 12


@every_value
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused(kind: Kind, path: str, value: float) -> None:
    assert fault(kind, changed(kind, lambda m: put(m, path, value))) == Fault.NOT_FINITE


@every_value
def test_a_negative_value_is_refused(kind: Kind, path: str) -> None:
    payload = changed(kind, lambda m: put(m, path, -0.5))
    if path == "temperature.cpu_celsius":  # the one that may be below zero
        assert decode(topic(kind), payload, SCHEMA)
    else:
        assert fault(kind, payload) == Fault.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Kind.REPORT, lambda m: setattr(m.cpu, "busy_percent", 100.5)),
        (Kind.REPORT, lambda m: setattr(m.memory, "available_bytes", 1001)),
        (Kind.RTT, lambda m: setattr(m.peers[0], "received", 4)),
    ],
    ids=["cpu", "memory", "replies"],
)
def test_impossible_values_are_refused(kind: Kind, change: Callable[[Any], object]) -> None:
    assert fault(kind, changed(kind, change)) == Fault.OUT_OF_RANGE


# Maxima: for every field of every message, found by the schema, so that none is forgotten.


def scalars(message: Message, path: str = "") -> list[tuple[str, Any]]:
    """Every number and text of a message's type with its path, but enums and truth values."""
    found = []
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            inner: Message = getattr(pb, field.message_type.name)()
            found += scalars(inner, f"{path}{field.name}.")
        elif field.cpp_type not in (field.CPPTYPE_BOOL, field.CPPTYPE_ENUM):
            found.append((f"{path}{field.name}", field))
    return found


def lists(message: Message, path: str = "") -> list[str]:
    """Every repeated field of a message's type."""
    found = []
    for field in message.DESCRIPTOR.fields:
        found += [f"{path}{field.name}"] if field.is_repeated else []
        if field.message_type is not None:
            inner: Message = getattr(pb, field.message_type.name)()
            found += lists(inner, f"{path}{field.name}.")
    return found


def largest(field: Any) -> Any:
    """More than anything believable of this type, and no infinity."""
    return {
        field.CPPTYPE_FLOAT: 3e38,
        field.CPPTYPE_DOUBLE: 1e308,
        field.CPPTYPE_UINT32: 2**32 - 1,
        field.CPPTYPE_UINT64: 2**64 - 1,
        field.CPPTYPE_STRING: b"x" * 5000 if field.type == field.TYPE_BYTES else "x" * 5000,
    }[field.cpp_type]


# A lease holds one of two works; each is tried by itself.
LEASES = [
    pb.Lease(node="pi-1", ping=pb.PingLease()),
    pb.Lease(node="pi-1", bandwidth=pb.BandwidthLease()),
]
TRIED: list[tuple[Kind, Any]] = [
    *((kind, MESSAGES[kind]) for kind in SENT),
    *((Kind.LEASE, each) for each in LEASES),
]
SCALARS = [
    pytest.param(kind, message, path, field, id=f"{kind} {path}")
    for kind, message in TRIED
    for path, field in scalars(message)
    if kind is not Kind.LEASE or message.WhichOneof("work") in path or path == "node"
]
LISTS = [
    pytest.param(kind, message, path, id=f"{kind} {path}")
    for kind, message in TRIED
    for path in lists(message)
    if kind is not Kind.LEASE or message.WhichOneof("work") in path
]


@pytest.mark.parametrize(("kind", "message", "path", "field"), SCALARS)
def test_every_field_has_a_maximum(kind: Kind, message: Any, path: str, field: Any) -> None:
    changed = type(message)()
    changed.CopyFrom(message)
    if field.is_repeated:
        getattr(changed, path).append(largest(field))
    else:
        put(changed, path, largest(field))
    if path == "peers.received":
        changed.peers[0].sent = largest(field)
    if path == "timing.measured_boot_ms":
        changed.timing.ClearField("sent_boot_ms")
    allowed = {Fault.OUT_OF_RANGE, Fault.TOO_LONG}
    if path in ("node", "origin.node", "origin.boot_id"):
        allowed = {Fault.WRONG_NODE, Fault.BROKEN}  # they can be only one thing
    if path in ("flows.source", "flows.destination", "flows.translated_source"):
        allowed = {Fault.BROKEN}  # an address has 4 bytes or 16
    assert fault(kind, changed.SerializeToString()) in allowed


@pytest.mark.parametrize(("kind", "message", "path"), LISTS)
def test_every_list_has_a_maximum(kind: Kind, message: Any, path: str) -> None:
    changed = type(message)()
    changed.CopyFrom(message)
    *steps, last = path.split(".")
    inner = changed
    for step in steps:
        inner = getattr(inner, step)
    values = getattr(inner, last)
    one = {"probes": "x", "hindrances": pb.BandwidthReport.THROTTLED}.get(last)
    for _ in range(300):
        values.append(one) if one else values.add()
    assert fault(kind, changed.SerializeToString()) == Fault.TOO_LONG


@pytest.mark.parametrize("field", ["source", "destination", "translated_source"])
@pytest.mark.parametrize("length", [0, 3, 4, 5, 16, 17])
def test_an_address_of_a_flow_has_4_bytes_or_16(field: str, length: int) -> None:
    payload = changed(Kind.TRAFFIC, lambda m: setattr(m.flows[0], field, bytes(length)))
    if length in (4, 16) or (length == 0 and field == "translated_source"):
        assert decode(topic(Kind.TRAFFIC), payload, SCHEMA)
    else:
        assert fault(Kind.TRAFFIC, payload) == Fault.BROKEN


@pytest.mark.parametrize(("celsius", "known"), [(-100, True), (-101, False), (250, True)])
def test_a_temperature_is_one_at_which_boards_work(celsius: float, known: bool) -> None:
    payload = changed(Kind.REPORT, lambda m: setattr(m.temperature, "cpu_celsius", celsius))
    if known:
        assert decode(topic(Kind.REPORT), payload, SCHEMA)
    else:
        assert fault(Kind.REPORT, payload) == Fault.OUT_OF_RANGE


@pytest.mark.parametrize("kind", NUMBERED)
def test_the_time_of_sending_is_added_to_an_encoded_message(kind: Kind) -> None:
    unsent = changed(kind, lambda m: m.timing.ClearField("sent_boot_ms"))
    assert decode(topic(kind), stamp_sent(kind, unsent, 1005), SCHEMA) == MESSAGES[kind]


@pytest.mark.parametrize("kind", NUMBERED)
def test_the_wall_clock_is_added_to_reports_only(kind: Kind) -> None:
    unsent = changed(kind, lambda m: m.timing.ClearField("sent_boot_ms"))
    message: Any = decode(topic(kind), stamp_sent(kind, unsent, 1005, 1_800_000_000_000), SCHEMA)
    assert message.timing.sent_boot_ms == 1005
    assert message.timing.HasField("sent_unix_ms") is (kind is Kind.REPORT)


@pytest.mark.parametrize("kind", [Kind.STATUS, Kind.LEASE])
def test_a_message_without_timing_is_not_stamped(kind: Kind) -> None:
    payload = encode(MESSAGES[kind])
    assert stamp_sent(kind, payload, 1005) == payload


@given(st.sampled_from(Kind), st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(kind: Kind, payload: bytes) -> None:
    try:
        message = decode(topic(kind), payload, SCHEMA)
    except MessageError:
        return
    assert kind_of(message) == kind


@given(
    st.sampled_from(Kind),
    st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), min_size=1, max_size=5),
    st.integers(0, 40),
)
def test_a_damaged_message_is_decoded_or_refused(
    kind: Kind, damage: list[tuple[int, int]], cut: int
) -> None:
    payload = bytearray(encode(MESSAGES[kind]))
    for at, value in damage:
        payload[at % len(payload)] = value
    try:
        message = decode(topic(kind), bytes(payload[: len(payload) - cut]), SCHEMA)
    except MessageError:
        return
    assert kind_of(message) == kind
