"""paho reads the properties that brokers and their clients send; that its client does, the tests of
agent's and controller's sessions show."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_wire.paho_properties import mend
from paho.mqtt import properties as paho
from paho.mqtt.exception import MQTTException
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.examples import examples

mend(paho)


def text(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value


def user(name: bytes, value: bytes) -> bytes:
    return b"\x26" + text(name) + text(value)


EXPIRY = b"\x02" + struct.pack("!I", 3595)
SCHEMA = user(b"schema", b"leadline.v1")
EVERYTHING = (
    b"\x01\x01" + EXPIRY + b"\x03" + text(b"application/protobuf") + b"\x08" + text(b"reply/to")
) + (b"\x09" + text(b"\x00\xff") + b"\x23\x00\x07" + user(b"other", b"x") + SCHEMA)
READ = {"UserProperty": [("schema", "leadline.v1")]}


def unpacked(
    packet: int, properties: bytes, rest: bytes = b"payload"
) -> tuple[dict[str, Any], int]:
    """What paho reads, and the length of it all."""
    length: bytes = paho.VariableByteIntegers.encode(len(properties))  # type: ignore[no-untyped-call]  # paho has no types here
    read: Any = Properties(packet)  # type: ignore[no-untyped-call]  # paho has no types here
    _, end = read.unpack(length + properties + rest)
    return {name: value for name, value in vars(read).items() if name in NAMES}, end - len(length)


NAMES = {"UserProperty", "MessageExpiryInterval", "MaximumPacketSize", "ServerKeepAlive"}


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"", {}),
        (SCHEMA, READ),
        (EXPIRY, {"MessageExpiryInterval": 3595}),
        (
            user(b"x", b"y" * 300) + SCHEMA,
            {"UserProperty": [("x", "y" * 300), READ["UserProperty"][0]]},
        ),
        # What a client can write, and the broker lets pass, costs the properties alone.
        (user(b"schema", b"\xff"), {}),
        (user("\ufeff".encode(), b"") + SCHEMA, {}),
        (EXPIRY + EXPIRY, {}),
        (b"\x7f\x00", {}),
        (b"\x11\x00\x00\x00\x00", {}),
        (b"\x02\x00", {}),
        (b"\x26" + text(b"name") + b"\x00\x09x", {}),
        (SCHEMA + user(b"a", b"") * 20_000, {}),  # paho's own time for it grows with the square
    ],
)
def test_a_publish_arrives_whatever_its_properties(sent: bytes, read: dict[str, Any]) -> None:
    assert unpacked(PacketTypes.PUBLISH, sent) == (read, len(sent))


def test_everything_that_a_publish_may_have_is_read() -> None:
    read, _ = unpacked(PacketTypes.PUBLISH, EVERYTHING)
    assert read["MessageExpiryInterval"] == 3595
    assert ("schema", "leadline.v1") in read["UserProperty"]


@given(st.binary(max_size=100))
@examples(100)
def test_no_properties_of_a_publish_raise(sent: bytes) -> None:
    assert unpacked(PacketTypes.PUBLISH, sent)[1] == len(sent)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"\x27\xff\xff\xff\xff", {"MaximumPacketSize": 268_435_455}),
        (b"\x27\x00\x00\x01\x00", {"MaximumPacketSize": 256}),
        (b"\x13\x00\x00", {"ServerKeepAlive": 30}),
        (b"\x13\xff\xff", {"ServerKeepAlive": 30}),
        (b"\x13\x00\x0a", {"ServerKeepAlive": 10}),
    ],
)
def test_a_broker_may_name_any_packet_size_and_only_shortens_the_keepalive(
    sent: bytes, read: dict[str, int]
) -> None:
    assert unpacked(PacketTypes.CONNACK, sent, b"") == (read, len(sent))


@pytest.mark.parametrize("sent", [b"\x27\x00\x00\x00\x00", b"\x99\x01", b"\x27\x00"])
def test_a_brokers_own_faults_are_still_told(sent: bytes) -> None:
    with pytest.raises((MQTTException, struct.error, KeyError)):
        unpacked(PacketTypes.CONNACK, sent, b"")
