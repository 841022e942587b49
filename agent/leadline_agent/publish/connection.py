"""One connection to the broker: made once, lost once, never made again.

paho keeps messages in memory, sends them again in its own order and comes back without
jitter. So each connection gets a client of its own, the buffer alone decides what is sent,
and the session decides when to try again. paho's threads only post events.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from leadline_wire import topics
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

KEEPALIVE_S = 30
NO_RETAINED = 2  # retain handling: a lease that was kept for later is none


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the broker is; `tls` None means in the clear."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker accepted us; `address` is ours on the way to it."""

    attempt: int
    address: str


@dataclass(frozen=True, slots=True)
class Lost:
    """There is no connection, or no longer."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker has answered for a message; `refusal` is its reason if it threw it away."""

    attempt: int
    message_id: int
    at_s: float
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message on the lease topic, and when it came on the monotonic clock."""

    topic: str
    payload: bytes
    schema: str | None
    at_s: float


Event = Connected | Lost | Confirmed | Arrived


def _wake_pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    return pair


# paho's own goes over TCP: for a moment it listens, and takes whoever comes first for itself. The
# agent listens on nothing outside a lease.
paho._socketpair_compat = _wake_pair


def tls_context(ca_file: Path, cert_file: Path, key_file: Path) -> ssl.SSLContext:
    """Trust this authority alone, check the broker's name, show our certificate.

    Raises OSError (ssl.SSLError is one) when the files are not what they should be.
    """
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(ca_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A key with a passphrase must fail here and not ask at a terminal.
    context.load_cert_chain(str(cert_file), str(key_file), password=lambda: "")
    return context


class Link(Protocol):
    """What the session needs of a connection."""

    def publish(self, topic: str, payload: bytes) -> int:
        """Send a message as its kind is delivered; returns the id that Confirmed will name."""

    def close(self) -> None:
        """Take leave of the broker, so that it does not publish the will."""


class Connection:
    """Starts at once; ends with a Lost event unless `close` was called."""

    def __init__(
        self,
        attempt: int,
        endpoint: Endpoint,
        client_id: str,
        will: tuple[str, bytes],
        lease_topic: str,
        post: Callable[[Event], None],
    ) -> None:
        self._attempt = attempt
        self._endpoint = endpoint
        self._lease_topic = lease_topic
        self._post = post
        self._is_closed = False
        self._is_accepted = False
        self._client = client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
        )
        if endpoint.tls:
            client.tls_set_context(endpoint.tls)
        topic, payload = will
        how = topics.DELIVERY[topics.Kind.STATUS]
        properties = _properties(PacketTypes.WILLMESSAGE, how)
        client.will_set(topic, payload, how.qos, how.retain, properties)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        self._starter = threading.Thread(target=self._connect, name="connect", daemon=True)
        self._starter.start()

    def publish(self, topic: str, payload: bytes) -> int:
        """Send a message as its kind is delivered; returns the id that Confirmed will name."""
        how = topics.DELIVERY[topics.parse(topic).kind]
        properties = _properties(PacketTypes.PUBLISH, how)
        return self._client.publish(topic, payload, how.qos, how.retain, properties).mid

    def close(self) -> None:
        """Take leave of the broker, so that it does not publish the will."""
        self._is_closed = True
        self._client.disconnect()
        if not self._starter.is_alive():  # else it is still connecting, and ends by itself
            self._client.loop_stop()

    def _connect(self) -> None:
        try:
            self._client.connect(self._endpoint.host, self._endpoint.port, KEEPALIVE_S)
        except (OSError, ValueError) as error:
            self._post(Lost(self._attempt, _reason(error)))
            return
        self._client.loop_start()
        if self._is_closed:
            self._client.disconnect()

    def _on_connect(
        self, client: paho.Client, _data: Any, _flags: Any, code: ReasonCode, _properties: Any
    ) -> None:
        if code.is_failure:
            self._post(Lost(self._attempt, f"the broker refused the connection: {code}"))
            client.disconnect()
            return
        self._is_accepted = True
        how = topics.DELIVERY[topics.Kind.LEASE]
        options = SubscribeOptions(qos=how.qos, retainHandling=NO_RETAINED)
        client.subscribe(self._lease_topic, options=options)
        own: Any = client.socket()
        self._post(Connected(self._attempt, own.getsockname()[0] if own else ""))

    def _on_disconnect(
        self, _client: paho.Client, _data: Any, _flags: Any, code: ReasonCode, _properties: Any
    ) -> None:
        reason = f"connection lost: {code}"
        if not self._is_accepted:
            trust = "know this node's certificate" if self._endpoint.tls else "expect TLS"
            reason = f"the broker hung up before it accepted this node: does it {trust}?"
        self._post(Lost(self._attempt, reason))

    def _on_publish(
        self, _client: paho.Client, _data: Any, message_id: int, code: ReasonCode, _properties: Any
    ) -> None:
        refusal = str(code) if code.is_failure else ""
        self._post(Confirmed(self._attempt, message_id, time.monotonic(), refusal))

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        if message.retain:
            return
        pairs = getattr(message.properties, "UserProperty", [])
        schema = dict(pairs).get(topics.SCHEMA_PROPERTY)
        self._post(Arrived(message.topic, bytes(message.payload), schema, time.monotonic()))


def _properties(packet: int, how: topics.Delivery) -> Any:
    properties: Any = Properties(packet)  # type: ignore[no-untyped-call] # paho's own gap
    properties.ContentType = topics.CONTENT_TYPE
    properties.UserProperty = (topics.SCHEMA_PROPERTY, topics.SCHEMA)
    if how.expiry_s is not None:
        properties.MessageExpiryInterval = how.expiry_s
    return properties


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not valid: {error.verify_message}"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
