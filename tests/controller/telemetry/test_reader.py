import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.telemetry import reader
from leadline_controller.telemetry.reader import PublishProperties, ReadingClient
from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode

from tests.support.examples import examples
from tests.support.ports import free_port

SUCCESS, PROTOCOL = MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_PROTOCOL
LOST, AGAIN = MQTTErrorCode.MQTT_ERR_CONN_LOST, MQTTErrorCode.MQTT_ERR_AGAIN
RETAINED = 0x31
MAX_BYTES = 10_000


def text(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value


def length(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = divmod(value, 128)
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def user(name: bytes, value: bytes) -> bytes:
    return b"\x26" + text(name) + text(value)


def publication(
    topic: bytes = b"t", payload: bytes = b"p", properties: bytes = b"", header: int = 0x30
) -> bytes:
    body = text(topic) + length(len(properties)) + properties + payload
    return bytes([header]) + length(len(body)) + body


EXPIRY = b"\x02" + struct.pack("!I", 3595)
SCHEMA = user(b"schema", b"leadline.v1")
EVERYTHING = (
    b"\x01\x01" + EXPIRY + b"\x03" + text(b"application/protobuf") + b"\x08" + text(b"reply/to")
) + (b"\x09" + text(b"\x00\xff") + b"\x23\x00\x07" + user(b"other", b"x") + SCHEMA)


def test_only_short_properties_are_cached() -> None:
    before = reader._cached_properties.cache_info().currsize
    for number in range(20):
        long = user(b"schema", f"{number}".encode() * 20_000)
        _, properties, _ = reader._parse_publish(publication(properties=long)[4:])
        assert properties.schema is not None
        assert len(properties.schema) >= 20_000
    assert reader._cached_properties.cache_info().currsize == before


class Reading(ReadingClient):
    """Reads from a list of what comes from the socket, instead of a socket."""

    def __init__(self, chunks: list[bytes | type[OSError]]) -> None:
        self.got: list[tuple[str, bytes, PublishProperties, bool]] = []
        self.chunks = chunks
        super().__init__("test", lambda *message: self.got.append(message), MAX_BYTES)

    def _sock_recv(self, bufsize: int) -> bytes:
        chunk = self.chunks.pop(0)
        if isinstance(chunk, bytes):
            return chunk
        raise chunk

    def read_all(self) -> list[MQTTErrorCode]:
        return [self._packet_read() for _ in list(self.chunks)]


def test_paho_still_calls_the_overridden_methods() -> None:
    """Else all would go paho's slow way, unnoticed."""
    assert {"_packet_read", "_sock_recv", "_packet_handle"} <= set(vars(Client))


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (publication(b"a/b", b"payload"), ("a/b", b"payload", PublishProperties(), False)),
        (publication(header=RETAINED), ("t", b"p", PublishProperties(), True)),
        (publication(payload=b""), ("t", b"", PublishProperties(), False)),
        (
            publication(properties=EVERYTHING),
            ("t", b"p", PublishProperties("leadline.v1", 3595), False),
        ),
        (publication(properties=SCHEMA), ("t", b"p", PublishProperties("leadline.v1"), False)),
        (publication(properties=EXPIRY), ("t", b"p", PublishProperties(None, 3595), False)),
        (
            publication(properties=user(b"x", b"y" * 300) + SCHEMA),
            ("t", b"p", PublishProperties("leadline.v1"), False),
        ),
        (
            publication(properties=user(b"schema", b"first") + SCHEMA),
            ("t", b"p", PublishProperties("first"), False),
        ),
        (publication(payload=b"x" * 9000), ("t", b"x" * 9000, PublishProperties(), False)),
        # What a sender can write and the broker lets pass must not cost the connection.
        (publication(b"\xff"), ("\ufffd", b"p", PublishProperties(), False)),
        (
            publication(properties=user(b"schema", b"\xff")),
            ("t", b"p", PublishProperties("\ufffd"), False),
        ),
        (
            publication(properties=user("\ufeff".encode(), b"") + SCHEMA),
            ("t", b"p", PublishProperties("leadline.v1"), False),
        ),
    ],
)
def test_a_publish_packet_is_parsed(
    sent: bytes, expected: tuple[str, bytes, PublishProperties, bool]
) -> None:
    client = Reading([sent])
    assert client.read_all() == [SUCCESS]
    assert client.got == [expected]


@given(
    cuts=st.lists(st.integers(0, 900), max_size=12), sizes=st.lists(st.integers(0, 300), max_size=5)
)
@examples(100)
def test_packets_are_reassembled_however_the_network_splits_them(
    cuts: list[int], sizes: list[int]
) -> None:
    stream = b"".join(publication(b"n/%d" % n, b"x" * size, EXPIRY) for n, size in enumerate(sizes))
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    client = Reading([*chunks])
    assert client.read_all() == [SUCCESS] * len(chunks)
    got = [(topic, len(payload)) for topic, payload, _, _ in client.got]
    assert got == [(f"n/{n}", size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    "sent",
    [
        b"\x30\xff\xff\xff\xff\x01",  # a length of five bytes
        b"\x30\x00",  # nothing in it
        b"\x30\x01\x00",
        b"\x30\x03\x00\x09t",  # the topic goes on beyond the packet
        b"\x30\x04\x00\x01t\x05",  # so do the properties
        publication(properties=b"\x26" + text(b"name") + b"\x00\x09x"),
        publication(properties=b"\x02\x00"),
        publication(properties=b"\x23\x00"),
        publication(properties=b"\x7f\x00"),  # a property that there is not
        publication(properties=b"\x11\x00\x00\x00\x00"),  # one of another kind of packet
        publication(payload=b"x" * MAX_BYTES),
        b"\x30" + length(MAX_BYTES + 1),  # nor is it waited for
    ],
)
def test_an_invalid_packet_ends_the_connection_and_not_the_thread(sent: bytes) -> None:
    client = Reading([sent])
    assert client.read_all() == [PROTOCOL]
    assert client.got == []


@given(st.binary(max_size=100))
@examples(100)
def test_no_bytes_raise(sent: bytes) -> None:
    client = Reading([publication(properties=sent), b"\x30" + length(len(sent)) + sent])
    assert set(client.read_all()) <= {SUCCESS, PROTOCOL}


def test_the_end_of_the_connection_is_noticed() -> None:
    assert Reading([b""]).read_all() == [LOST]
    assert Reading([ConnectionResetError]).read_all() == [LOST]
    client = Reading([publication()[:3], BlockingIOError, publication()[3:]])
    assert client.read_all() == [SUCCESS, AGAIN, SUCCESS]
    assert len(client.got) == 1


def test_a_connection_attempt_that_fails_says_why() -> None:
    client = Reading([])
    client.connect_async("127.0.0.1", free_port())
    with pytest.raises(OSError, match="refused"):
        client.reconnect()
    assert client.failure == "Connection refused"
    client.connect_async("x" * 70 + ".invalid", 1883)  # no host name at all
    with pytest.raises(OSError, match="label"):
        client.reconnect()
