"""paho's client with a faster reader for PUBLISH packets.

paho reads a packet with four system calls and creates dozens of objects for its properties, so one
core receives only 8,000 to 12,000 reports a second. It also drops the connection over an invalid
property that the broker let pass; with a retained message that repeats for ever. So this client
reads in bulk and parses PUBLISH packets of QoS 0 itself. paho does everything else. If paho renames
the methods overridden here, it still calls `on_message`: slower, but correct.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from typing import Any

from leadline_wire import topics
from leadline_wire.broker_limits import PAHO_MOST_PACKET_BYTES
from paho.mqtt import _packet
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.exception import MalformedPacket
from paho.mqtt.properties import Properties

_CHUNK_BYTES = 1 << 18
_KEPT_BYTES = 256
_PUBLISH = 0x30
_QOS = 0x06
_RETAIN = 0x01
# Property id -> bytes of its value; the other properties of a PUBLISH have a length field.
_FIXED_BYTES = {0x01: 1, 0x02: 4, 0x23: 2}
_TEXT_IDS = frozenset((0x03, 0x08, 0x09))
_EXPIRY, _USER = 0x02, 0x26


@dataclass(frozen=True, slots=True)
class PublishProperties:
    """The schema, and the seconds that are left of the expiry interval."""

    schema: str | None = None
    expiry_left_s: int | None = None


class _ReceivedProperties(Properties):
    """paho refuses a Maximum Packet Size over that of MQTT's largest packet, which brokers may send
    (NanoMQ has)."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name.replace(" ", "") == "MaximumPacketSize":
            value = min(value, PAHO_MOST_PACKET_BYTES)
        super().__setattr__(name, value)  # type: ignore[no-untyped-call] # paho's own gap


# What paho reads packets with.
_packet.Properties = _ReceivedProperties  # type: ignore[attr-defined] # paho's own, not exported


Receive = Callable[[str, bytes, PublishProperties, bool], None]


class ReadingClient(Client):
    """Calls receive(topic, payload, properties, retained) for each PUBLISH; it must not raise.
    failure: why the last attempt to connect failed; unread: why a packet since then cannot be read,
    which ends the connection. begun_s: when it began; heard_s: when the last
    byte arrived; both on the clock now_s. paho's own time of that also changes when it sends a
    ping."""

    def __init__(
        self,
        client_id: str,
        receive: Receive,
        max_packet_bytes: int,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTv5)
        self.failure = self.unread = ""
        self.begun_s = now_s()
        self.heard_s: float | None = None
        self._now_s = now_s
        self._receive = receive
        self._max_packet_bytes = max_packet_bytes
        self._rest = b""
        self.on_message = self._on_paho_message

    def is_running(self) -> bool:
        """Whether the network thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def reconnect(self) -> MQTTErrorCode:
        """Connect, discarding unread bytes of the previous connection."""
        self._rest, self.unread, self.begun_s = b"", "", self._now_s()
        try:
            return super().reconnect()
        except (OSError, ValueError) as error:  # ValueError: an invalid host name
            why = getattr(error, "verify_message", "") or getattr(error, "strerror", "")
            self.failure = why or str(error)
            raise OSError(self.failure) from error

    def _packet_read(self) -> MQTTErrorCode:
        try:
            data = self._sock_recv(_CHUNK_BYTES)
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_AGAIN
        except OSError:
            return MQTTErrorCode.MQTT_ERR_CONN_LOST
        if not data:
            return MQTTErrorCode.MQTT_ERR_CONN_LOST
        self.heard_s = self._now_s()
        with self._msgtime_mutex:
            self._last_bytes_received = monotonic()
        try:
            return self._read_packets(self._rest + data)
        except (MalformedPacket, IndexError) as error:
            self.unread = f"a packet of it cannot be read: {error}"
            return MQTTErrorCode.MQTT_ERR_PROTOCOL

    def _read_packets(self, data: bytes) -> MQTTErrorCode:
        end = 0
        while (frame := _packet_bounds(data, end)) is not None:
            start, stop = frame
            if stop - start > self._max_packet_bytes:
                raise MalformedPacket("a packet over the maximum size")
            if stop > len(data):
                break
            code = self._handle_packet(data[end], data[start:stop])
            if code > MQTTErrorCode.MQTT_ERR_SUCCESS:
                return code
            end = stop
        self._rest = data[end:]
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_packet(self, header: int, packet: bytes) -> MQTTErrorCode:
        if header & 0xF0 == _PUBLISH and not header & _QOS:
            topic, properties, payload = _parse_publish(packet)
            self._receive(topic, payload, properties, bool(header & _RETAIN))
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        read = self._in_packet
        read["command"], read["packet"] = header, bytearray(packet)
        read["remaining_length"] = len(packet)
        return self._packet_handle()

    def _on_paho_message(self, _: Client, __: Any, message: MQTTMessage) -> None:
        pairs = getattr(message.properties, "UserProperty", ())
        properties = PublishProperties(
            next((value for name, value in pairs if name == topics.SCHEMA_PROPERTY), None),
            getattr(message.properties, "MessageExpiryInterval", None),
        )
        self._receive(message.topic, bytes(message.payload), properties, message.retain)


def _packet_bounds(data: bytes, at: int) -> tuple[int, int] | None:
    """(start, end) of the contents of the packet at `at`; None: its length is incomplete."""
    length = 0
    for i in range(4):
        if at + 1 + i >= len(data):
            return None
        byte = data[at + 1 + i]
        length |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return at + 2 + i, at + 2 + i + length
    raise MalformedPacket("a length of more than four bytes")


def _parse_publish(packet: bytes) -> tuple[str, PublishProperties, bytes]:
    """(topic, properties, payload) of one of QoS 0. Raises MalformedPacket, IndexError."""
    topic, at = _parse_text(packet, 0)
    if packet[at] < 0x80:
        start, stop = at + 1, at + 1 + packet[at]
    else:
        start, stop = _packet_bounds(packet, at - 1) or (0, len(packet) + 1)
    if stop > len(packet):
        raise MalformedPacket("properties beyond their packet")
    raw = packet[start:stop]
    # Only short properties are cached, because anybody may send long ones.
    properties = (_cached_properties if len(raw) <= _KEPT_BYTES else _parse_properties)(raw)
    return topic.decode(errors="replace"), properties, packet[stop:]


def _parse_properties(properties: bytes) -> PublishProperties:
    schema = expiry_left_s = None
    at = 0
    while at < len(properties):
        kind = properties[at]
        at += 1
        if kind == _USER:
            name, at = _parse_text(properties, at)
            value, at = _parse_text(properties, at)
            if schema is None and name == topics.SCHEMA_PROPERTY.encode():
                schema = value.decode(errors="replace")
        elif kind in _TEXT_IDS:
            _, at = _parse_text(properties, at)
        elif kind in _FIXED_BYTES:
            if kind == _EXPIRY:
                expiry_left_s = int.from_bytes(properties[at : at + 4], "big")
            at += _FIXED_BYTES[kind]
        else:
            raise MalformedPacket(f"property {kind} is not allowed in a PUBLISH")
    if at > len(properties):
        raise MalformedPacket("a property beyond its packet")
    return PublishProperties(schema, expiry_left_s)


# Agents send the same properties again and again.
_cached_properties = lru_cache(4096)(_parse_properties)


def _parse_text(data: bytes, at: int) -> tuple[bytes, int]:
    """The string or binary data at `at`, and its end."""
    end = at + 2 + (data[at] << 8 | data[at + 1])
    if end > len(data):
        raise MalformedPacket("a text beyond its packet")
    return data[at + 2 : end], end
