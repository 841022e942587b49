"""One connection to the broker. It never reconnects.

paho would keep messages in memory, resend them in its own order and reconnect without jitter. So
each connection has a client of its own, the buffer decides what is sent, and the session decides
when to connect again. paho's threads only post events.
"""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leadline_wire import codec, topics
from leadline_wire.broker_limits import MQTT_DEFAULTS, BrokerLimits, publish_bytes
from leadline_wire.certificates import Certificate
from leadline_wire.certificates import read as read_certificate
from leadline_wire.paho_properties import KEEPALIVE_S, mend
from paho.mqtt import client as paho
from paho.mqtt import properties as paho_s_properties
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from leadline_agent.config import Broker, ConfigError
from leadline_agent.text import one_line
from leadline_agent.tls import tls_context

# Twice the largest valid lease; the broker sends us nothing larger.
MAX_PACKET_BYTES = 2 * codec.MAX_BYTES
ALERT_S = 2.0
DO_NOT_SEND_RETAINED = 2  # MQTT retain handling: a retained lease is not valid
_DISCONNECT_WITH_WILL = ReasonCode(PacketTypes.DISCONNECT, "Disconnect with will message")
# With TLS 1.3 the broker checks our certificate after the handshake, and paho only logs its alert.
# These are OpenSSL's words, which vary in case and punctuation.
_ALERTS = {
    "unknown ca": "does not know the authority that signed this node's certificate",
    "certificate expired": "says that this node's certificate has expired",
    "certificate revoked": "says that this node's certificate is revoked",
    "certificate required": "wants a certificate of this node",
    "bad certificate": "says that this node's certificate is a bad one",
    "certificate unknown": "cannot check this node's certificate",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the broker is. `tls` None is plaintext; `certificate` is this node's own."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    certificate: Certificate | None = None

    @classmethod
    def of(cls, broker: Broker) -> "Endpoint":
        """The broker, with its TLS files loaded. Raises ConfigError when they do not match."""
        if broker.tls is None:
            return cls(broker.host, broker.port, None)
        files = broker.tls
        try:
            context = tls_context(files.ca_file)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            # A key with a passphrase must fail here instead of asking at a terminal.
            context.load_cert_chain(files.cert_file, files.key_file, password=lambda: "")
            return cls(broker.host, broker.port, context, read_certificate(files.cert_file))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(
                f"broker.tls: expected PEM files and a key without a passphrase that belongs to "
                f"the certificate: {error}"
            ) from None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker accepted the connection, within `limits`; `address` is this board's own on it."""

    attempt: int
    address: str
    limits: BrokerLimits = MQTT_DEFAULTS


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection failed or ended."""

    attempt: int
    reason: str
    is_refusal: bool = False  # the broker refused this node
    code: int = 0  # the broker's reason code, 0 without one


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker acknowledged a message; `refusal` is its reason if it rejected the message, and
    `code` its reason code. A message of QoS 0 counts as acknowledged when it is on its way."""

    attempt: int
    message_id: int
    at_s: float
    refusal: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message on the lease topic; `at_s` is when it arrived on the monotonic clock."""

    topic: str
    payload: bytes
    schema: str | None
    at_s: float


Event = Connected | Disconnected | Acknowledged | MessageReceived


def _unix_socket_pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    return pair


# paho's own pair uses TCP: it listens for a moment and accepts the first that connects. The agent
# must not listen outside a lease.
paho._socketpair_compat = _unix_socket_pair
mend(paho_s_properties)


class TooLargeError(Exception):
    """A message is larger than the broker takes; str() has both sizes."""


class _Client(paho.Client):
    """paho's client, which reports an exception in its thread instead of ending silently.

    paho parses packets and runs callbacks in that thread.
    """

    on_failure: Callable[[Exception], None]

    def loop_forever(
        self, timeout: float = 1.0, retry_first_connection: bool = False
    ) -> MQTTErrorCode:
        """The body of paho's thread."""
        try:
            return super().loop_forever(timeout, retry_first_connection)
        except Exception as error:  # noqa: BLE001 - any fault ends the connection; the session connects again
            self.on_failure(error)
            return MQTTErrorCode.MQTT_ERR_UNKNOWN


class PahoConnection:
    """Connects at once; ends with Disconnected unless `close` was called.

    `limits`: what the broker is thought to allow; set them again when it has said so.
    """

    def __init__(
        self,
        attempt: int,
        endpoint: Endpoint,
        client_id: str,
        will: tuple[str, bytes] | None,
        lease_topic: str | None,
        post: Callable[[Event], None],
        limits: BrokerLimits = MQTT_DEFAULTS,
    ) -> None:
        """`lease_topic` None: do not subscribe."""
        self.limits = limits
        self._attempt = attempt
        self._endpoint = endpoint
        self._lease_topic = lease_topic
        self._post = post
        self._is_closed = False
        self._is_accepted = False
        self._refusal_in_alert = self._unread = ""
        self._client = client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
        )
        if endpoint.tls:
            client.tls_set_context(endpoint.tls)
        if will:
            how = limits.delivery(topics.DELIVERY[topics.Kind.STATUS])
            properties = _properties(PacketTypes.WILLMESSAGE, how)
            client.will_set(*will, how.qos, how.retain, properties)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        client.on_log = self._on_log
        client.on_failure = self._on_failure
        self._starter = threading.Thread(target=self._connect, name="connect", daemon=True)
        self._starter.start()

    def publish(self, topic: str, payload: bytes) -> int:
        """Send a message with its kind's delivery, as far as the broker allows; returns the id that
        Acknowledged will name. Raises TooLargeError, and sends nothing then."""
        how = self.limits.delivery(topics.DELIVERY[topics.parse(topic).kind])
        properties = _properties(PacketTypes.PUBLISH, how)
        size_bytes = publish_bytes(topic, payload, how, properties.pack())
        if size_bytes > self.limits.max_packet_bytes:
            raise TooLargeError(
                f"a packet of {size_bytes} bytes, {self.limits.max_packet_bytes} are allowed"
            )
        return self._client.publish(topic, payload, how.qos, how.retain, properties).mid

    def close(self, *, with_will: bool = True) -> None:
        """Disconnect; the broker publishes the will if that is wanted."""
        self._is_closed = True
        self._client.disconnect(_DISCONNECT_WITH_WILL if with_will else None)
        if not self._starter.is_alive():  # else it is still connecting, and ends on its own
            self._client.loop_stop()

    def _connect(self) -> None:
        limits: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho's own gap
        limits.MaximumPacketSize = MAX_PACKET_BYTES
        try:
            where = self._endpoint
            self._client.connect(where.host, where.port, KEEPALIVE_S, properties=limits)
        except ssl.SSLCertVerificationError as error:
            reason = f"the broker's certificate is not valid: {error.verify_message}"
            self._post(Disconnected(self._attempt, reason))
            return
        except (OSError, ValueError) as error:
            alert = _refusal_in_alert(str(error))
            reason = alert or getattr(error, "strerror", None) or str(error)
            self._post(Disconnected(self._attempt, reason, bool(alert)))
            return
        except Exception as error:  # noqa: BLE001 - a thread must not end silently
            self._on_failure(error)
            return
        self._client.loop_start()
        if self._is_closed:
            self._client.disconnect()

    def _on_failure(self, error: Exception) -> None:
        """An exception in the thread: drop the connection."""
        connection: Any = self._client.socket()
        if connection:
            connection.close()
        what = one_line(f"{type(error).__name__}: {error}")
        self._post(Disconnected(self._attempt, f"connection given up, please report it: {what}"))

    def _on_connect(
        self, client: paho.Client, _data: Any, _flags: Any, code: ReasonCode, properties: Any
    ) -> None:
        if code.is_failure:
            refusal = f"the broker refused the connection: {code}"
            self._post(Disconnected(self._attempt, refusal, True, code.value))
            client.disconnect()
            return
        self._is_accepted = True
        limits = BrokerLimits.of(properties)
        if self._lease_topic:
            how = topics.DELIVERY[topics.Kind.LEASE]
            options = SubscribeOptions(qos=how.qos, retainHandling=DO_NOT_SEND_RETAINED)
            client.subscribe(self._lease_topic, options=options)
        own: Any = client.socket()
        self._post(Connected(self._attempt, own.getsockname()[0] if own else "", limits))

    def _on_disconnect(
        self, _client: paho.Client, _data: Any, _flags: Any, code: ReasonCode, _properties: Any
    ) -> None:
        reason = f"connection lost: {code}"
        if not self._is_accepted:
            trust = "know this node's certificate" if self._endpoint.tls else "expect TLS"
            reason = f"the broker hung up before it accepted this node: does it {trust}?"
            reason = (
                self._unread
                or self._refusal_in_alert
                or (_refusal_on_reconnect(self._endpoint) or reason)
            )
        is_refusal = not (self._is_accepted or self._unread)
        self._post(Disconnected(self._attempt, reason, is_refusal, code.value))

    def _on_publish(
        self, _client: paho.Client, _data: Any, message_id: int, code: ReasonCode, _properties: Any
    ) -> None:
        refusal = str(code) if code.is_failure else ""
        self._post(Acknowledged(self._attempt, message_id, time.monotonic(), refusal, code.value))

    def _on_subscribe(
        self,
        _client: paho.Client,
        _data: Any,
        message_id: int,
        codes: list[ReasonCode],
        _properties: Any,
    ) -> None:
        for code in codes:
            if code.is_failure:
                refusal = f"{self._lease_topic} cannot be read: {code}"
                self._post(Acknowledged(self._attempt, message_id, time.monotonic(), refusal))

    def _on_log(self, _client: paho.Client, _data: Any, level: int, text: str) -> None:
        if level == LogLevel.MQTT_LOG_ERR:
            self._refusal_in_alert = _refusal_in_alert(text) or self._refusal_in_alert
        elif "malformed packet" in text:
            self._unread = f"the broker's answer cannot be read: {one_line(text)}"

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        if message.retain or len(message.payload) > codec.MAX_BYTES:
            return
        pairs = getattr(message.properties, "UserProperty", [])
        schema = dict(pairs).get(topics.SCHEMA_PROPERTY)
        self._post(MessageReceived(message.topic, bytes(message.payload), schema, time.monotonic()))


def _properties(packet: int, how: topics.Delivery) -> Any:
    properties: Any = Properties(packet)  # type: ignore[no-untyped-call] # paho's own gap
    properties.ContentType = topics.CONTENT_TYPE
    properties.UserProperty = (topics.SCHEMA_PROPERTY, topics.SCHEMA)
    if how.expiry_s is not None:
        properties.MessageExpiryInterval = how.expiry_s
    return properties


def _refusal_on_reconnect(endpoint: Endpoint) -> str:
    """Why the broker refuses our certificate. Its alert is lost when it closes while we are still
    sending, so this connects again and only reads."""
    if endpoint.tls is None:
        return ""
    try:
        with (
            socket.create_connection((endpoint.host, endpoint.port), ALERT_S) as plain,
            endpoint.tls.wrap_socket(plain, server_hostname=endpoint.host) as session,
        ):
            session.recv(1)
    except OSError as error:
        return _refusal_in_alert(str(error))
    return ""


def _refusal_in_alert(text: str) -> str:
    """Why the broker refuses our certificate, if the text contains a TLS alert; else ""."""
    words = re.sub(r"[^a-z]+", " ", text.lower())
    if "alert" not in words:
        return ""
    return next((f"the broker {why}" for alert, why in _ALERTS.items() if alert in words), "")
