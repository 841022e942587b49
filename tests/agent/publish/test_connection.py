"""The agent connects to the broker and listens on nothing."""

import queue
import socket
import struct
from collections.abc import Callable

import pytest
from leadline_agent.publish.connection import (
    Connected,
    Disconnected,
    Endpoint,
    Event,
    PahoConnection,
)


def test_connecting_opens_no_listening_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    posted: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.settimeout(10)
        monkeypatch.setattr(socket.socket, "listen", refuse)
        endpoint = Endpoint("127.0.0.1", broker.getsockname()[1], None)
        will = ("leadline/v1/default/pi-1/status", b"")
        connection = PahoConnection(
            1, endpoint, "pi-1", will, "leadline/v1/default/pi-1/lease", posted.put
        )
        peer, _ = broker.accept()
        with peer:
            peer.settimeout(10)
            assert peer.recv(1)[0] >> 4 == 1  # the packet CONNECT
    connection.close()


def refuse(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def publish(topic: bytes) -> bytes:
    """A PUBLISH of QoS 0 with no properties."""
    body = struct.pack(">H", len(topic)) + topic + b"\0" + b"lease"
    return bytes([0x30, len(body)]) + body


@pytest.mark.parametrize(
    "packet",
    [
        publish(b"\xff\xfe"),
        publish(b""),
        bytes([0x30, 3]) + b"\xff\xff\x00",
        bytes([0x20, 2]) + b"\0\xee",
        bytes([0x90, 3]) + b"\0\1\xff",
        bytes([0x40, 4]) + b"\0\1\xee\x7f",
        b"\xf0\x00",
    ],
    ids=["topic", "no topic", "short", "connack", "suback", "puback", "auth"],
)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_fails_on_a_brokers_packet_reports_it(packet: bytes) -> None:
    posted: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.settimeout(10)
        endpoint = Endpoint("127.0.0.1", broker.getsockname()[1], None)
        lease_topic = "leadline/v1/default/pi-1/lease"
        connection = PahoConnection(7, endpoint, "pi-1", None, lease_topic, posted.put)
        peer, _ = broker.accept()
        with peer:
            peer.settimeout(10)
            assert peer.recv(1000)[0] >> 4 == 1
            peer.sendall(b"\x20\x03\0\0\0")  # CONNACK: accepted
            assert isinstance(posted.get(timeout=10), Connected)
            peer.sendall(packet)
            peer.shutdown(socket.SHUT_WR)
            assert wait_for(posted, lambda event: isinstance(event, Disconnected))
    connection.close()


def wait_for(posted: queue.SimpleQueue[Event], is_it: Callable[[Event], bool]) -> bool:
    while not is_it(posted.get(timeout=10)):
        pass
    return True
