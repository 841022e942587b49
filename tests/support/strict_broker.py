"""A broker on loopback that ends a connection at the first breach of a limit, as MQTT 5.0 wants it.

It speaks what agent and controller need: CONNECT, PUBLISH to it, SUBSCRIBE, UNSUBSCRIBE, PINGREQ
and DISCONNECT. mosquitto is more lenient, and acknowledges at once.
"""

import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK = 2, 3, 4, 8, 9
UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = 10, 11, 12, 13, 14
RECEIVE_MAXIMUM, MAXIMUM_QOS, RETAIN, PACKET_SIZE = 0x21, 0x24, 0x25, 0x27
KEEPALIVE, WILDCARDS = 0x13, 0x28


def two(number: int) -> bytes:
    """A two byte integer of MQTT."""
    return struct.pack(">H", number)


def four(number: int) -> bytes:
    """A four byte integer of MQTT."""
    return struct.pack(">I", number)


@dataclass(frozen=True, slots=True)
class Published:
    """A PUBLISH that was within the limits."""

    topic: str
    qos: int
    retained: bool
    size_bytes: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Will:
    """Of a CONNECT."""

    qos: int
    retained: bool


@dataclass
class StrictBroker:
    """What it allows, whether it says so, and what it has seen.

    said: properties of the CONNACK. ends_after: publishes after which it closes the connection,
    once. answer: the reason code for a PUBLISH.
    """

    receive_maximum: int = 65_535
    max_packet_bytes: int = 1 << 28
    max_qos: int = 2
    retains: bool = True
    said: bytes = b""
    ends_after: int | None = None
    ack_after_s: float = 0.0
    answer: Callable[[Published], int] = lambda _: 0
    port: int = 0
    wills: list[Will | None] = field(default_factory=list)  # one a connection
    published: list[Published] = field(default_factory=list)
    acknowledged: list[Published] = field(default_factory=list)
    most_unacknowledged: int = 0
    breaches: list[int] = field(default_factory=list)  # the reason codes
    packets: list[tuple[int, bytes]] = field(default_factory=list)  # of other kinds

    def kinds(self) -> list[int]:
        """The kinds of the packets that are no PUBLISH."""
        return [kind for kind, _ in self.packets]

    def serve(self, server: socket.socket, ended: threading.Event) -> None:
        """Serve one connection after the other until `ended`."""
        while not ended.is_set():
            try:
                stream, _ = server.accept()
            except OSError:
                continue
            with stream, suppress(OSError, struct.error):
                _Connection(self, stream).run(ended)


class _Connection:
    def __init__(self, broker: StrictBroker, stream: socket.socket) -> None:
        self._broker, self._stream = broker, stream
        self._unacknowledged: list[tuple[float, bytes, Published]] = []
        self._is_open = True

    def run(self, ended: threading.Event) -> None:
        data = b""
        self._stream.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stream, selectors.EVENT_READ)
            while self._is_open and not ended.is_set():
                if selector.select(0.005):
                    received = self._stream.recv(1 << 16)
                    if not received:
                        return
                    data += received
                    while self._is_open and (whole := _packet_bytes(data)):
                        body = data[whole[0] : whole[1]]
                        self._handle(data[0], body, whole[1])
                        data = data[whole[1] :]
                self._acknowledge()

    def _handle(self, header: int, body: bytes, size_bytes: int) -> None:
        kind = header >> 4
        if size_bytes > self._broker.max_packet_bytes:
            self._breach(0x95)
        elif kind == 1:
            self._connect(body)
        elif kind == PUBLISH:
            self._publish(header, body, size_bytes)
        else:
            self._broker.packets.append((kind, body))
            if kind in (SUBSCRIBE, UNSUBSCRIBE):
                answer = SUBACK if kind == SUBSCRIBE else UNSUBACK
                self._send(answer, body[:2] + b"\0" + bytes(_topics(body, kind)))
            elif kind == PINGREQ:
                self._send(PINGRESP, b"")
            elif kind == DISCONNECT:
                self._is_open = False

    def _connect(self, body: bytes) -> None:
        flags = body[7]
        will = Will(flags >> 3 & 3, bool(flags & 0x20)) if flags & 4 else None
        self._broker.wills.append(will)
        code = 0
        if will and will.retained and not self._broker.retains:
            code = 0x9A
        elif will and will.qos > self._broker.max_qos:
            code = 0x9B
        said = b"" if code else self._broker.said
        self._send(CONNACK, bytes([0, code, len(said)]) + said)
        if code:
            self._broker.breaches.append(code)
            self._is_open = False

    def _publish(self, header: int, body: bytes, size_bytes: int) -> None:
        qos, retained = header >> 1 & 3, bool(header & 1)
        end = 2 + int.from_bytes(body[:2])
        identifier = body[end : end + 2] if qos else b""
        at = end + len(identifier)
        payload = body[at + 1 + body[at] :]  # these properties are short
        published = Published(body[2:end].decode(), qos, retained, size_bytes, payload)
        broker = self._broker
        if retained and not broker.retains:
            self._breach(0x9A)
        elif qos > broker.max_qos:
            self._breach(0x9B)
        elif qos and len(self._unacknowledged) >= broker.receive_maximum:
            self._breach(0x93)
        else:
            broker.published.append(published)
            if qos:
                due_s = time.monotonic() + broker.ack_after_s
                self._unacknowledged.append((due_s, identifier, published))
            most = max(broker.most_unacknowledged, len(self._unacknowledged))
            broker.most_unacknowledged = most
            if len(broker.published) == broker.ends_after:
                self._is_open, broker.ends_after = False, None

    def _acknowledge(self) -> None:
        while self._is_open and self._unacknowledged:
            due_s, identifier, published = self._unacknowledged[0]
            if time.monotonic() < due_s:
                return
            del self._unacknowledged[0]
            code = self._broker.answer(published)
            if code < 0x80:
                self._broker.acknowledged.append(published)
            self._send(PUBACK, identifier + (bytes([code, 0]) if code else b""))

    def _breach(self, code: int) -> None:
        self._broker.breaches.append(code)
        self._send(DISCONNECT, bytes([code, 0]))
        self._is_open = False
        # Where unread data is left at the close, TCP resets the connection, and the reason is lost.
        self._stream.shutdown(socket.SHUT_WR)
        self._stream.settimeout(1.0)
        with suppress(OSError):
            while self._stream.recv(1 << 16):
                pass

    def _send(self, kind: int, body: bytes) -> None:
        self._stream.sendall(bytes([kind << 4, len(body)]) + body)


def _packet_bytes(data: bytes) -> tuple[int, int] | None:
    """Where the first packet's body begins and ends, if it is complete."""
    length = 0
    for at, byte in enumerate(data[1:5], 1):
        length |= (byte & 0x7F) << 7 * (at - 1)
        if byte < 0x80:
            end = at + 1 + length
            return (at + 1, end) if end <= len(data) else None
    return None


def _topics(body: bytes, kind: int) -> int:
    """How many a SUBSCRIBE or UNSUBSCRIBE has; it has no properties."""
    at, count = 3, 0
    while at < len(body):
        at += 2 + int.from_bytes(body[at : at + 2]) + (kind == SUBSCRIBE)
        count += 1
    return count


@contextmanager
def serving(broker: StrictBroker) -> Iterator[StrictBroker]:
    """Run it until the block ends."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        broker.port = server.getsockname()[1]
        thread = threading.Thread(target=broker.serve, args=(server, ended))
        thread.start()
        try:
            yield broker
        finally:
            ended.set()
            thread.join()
