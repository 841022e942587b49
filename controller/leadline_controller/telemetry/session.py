"""The controller's MQTT session: subscribes to telemetry, publishes leases, and carries what a
topic handler publishes and reads. One session for all, because a broker may allow only one
connection for each certificate.

paho's network thread also ingests the messages, so that a flood of reports never delays the event
loop, which decides.
"""

import logging
import math
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

from leadline_wire import topics
from leadline_wire.broker_limits import MQTT_DEFAULTS, BrokerLimits, publish_bytes
from leadline_wire.codec import MAX_BYTES, encode
from leadline_wire.paho_properties import KEEPALIVE_S, mend
from leadline_wire.v1 import telemetry_pb2 as pb
from paho.mqtt import properties as paho_s_properties
from paho.mqtt.client import Client, DisconnectFlags, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from leadline_controller.parsing.settings import REQUIRED, readable_file, setting
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.tls import tls_context

log = logging.getLogger(__name__)

mend(paho_s_properties)
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 1, 15  # without jitter, as there is one controller
# Twice the valid size, so that an oversized message is counted. The broker drops larger ones.
_MAX_PACKET_BYTES = 2 * MAX_BYTES
# QoS 1 would gain nothing: the session ends with its connection, TCP loses nothing within one, and
# a gap in the sequence shows what the broker drops. With QoS 1 mosquitto delivers at most 1,020
# retained births (its in-flight window and its queue), with QoS 0 several thousand.
_QOS = 0
_PING_EVERY_S = 5.0
# Nobody subscribes to it. A broker answers every UNSUBSCRIBE, whatever its ACL.
_PING_TOPIC = "leadline/ping"
# Three pings without an answer: the broker hangs, or the connection is dead. paho's keepalive takes
# up to a minute, and longer while leases are sent.
SILENT_S = 15.0
_PROMPT_S = 7.5  # a ping without an answer
_PROTOCOL_ERROR = 0x82
_STABLE_S = 30.0  # after a longer session, what was learned of the broker may be outdated
_FETCHED_AT_ONCE = 100  # a packet of 60 kB at most
_RETAINED = (topics.Kind.STATUS, topics.Kind.BIRTH)
_TELEMETRY = f"{topics.ROOT}/"
_KINDS = (
    *_RETAINED,
    *(topics.Kind.REPORT, topics.Kind.RTT, topics.Kind.BANDWIDTH, topics.Kind.TRAFFIC),
)


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """PEM files."""

    ca_file: Path = setting(
        REQUIRED,
        "the broker's authority; all three are required unless the broker is this machine",
        read=readable_file,
    )
    cert_file: Path = setting(REQUIRED, "the controller's certificate", read=readable_file)
    key_file: Path = setting(REQUIRED, "its key, without a passphrase", read=readable_file)

    def context(self) -> ssl.SSLContext:
        """A context that trusts this authority only and checks the broker's name. Raises OSError
        (ssl.SSLError is one) when a file is missing or invalid."""
        context = tls_context(self.ca_file)
        # A key with a passphrase must fail here instead of asking at a terminal.
        context.load_cert_chain(str(self.cert_file), str(self.key_file), password=lambda: "")
        return context


def check_cluster(name: str) -> str:
    """Return the name if it can be a topic level. Raises ValueError."""
    return topics.check_level(name, "cluster")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Where the broker is, and our identity there."""

    host: str
    port: int
    cluster: str
    client_id: str
    tls: BrokerTls | None = None


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """How the session is."""

    address: str
    connected: bool
    since_s: float  # when it began or ended, on the session's clock
    heard_s: float | None = None  # when the last packet came, on that clock
    rtt_ms: float | None = None  # the last round trip to the broker
    why: str = ""  # there is no session, "" while there is one
    refused: tuple[str, ...] = ()  # the kinds of messages that the broker does not let us read
    limits: tuple[str, ...] = ()  # what else it does not allow, a phrase each

    def answers(self, now_s: float) -> bool:
        """Whether there is a session, and the broker is not silent in it."""
        return self.connected and self.heard_s is not None and now_s - self.heard_s < SILENT_S


class TopicHandler(Protocol):
    """Uses the session for topics that are not the telemetry's. The network thread calls it."""

    filters: Sequence[str]  # what it subscribes to
    # The topic and the payload that the broker retains when this session ends without a DISCONNECT;
    # None without one.
    will: tuple[str, bytes] | None

    def connected(self) -> None:
        """A session began; the retained messages come again."""
        ...

    def received(self, topic: str, payload: bytes, *, retained: bool) -> None:
        """A message that another client published. It must not raise."""
        ...


class _Client(Client):
    """paho's client, which tells whether its thread runs, and of the last attempt to connect when
    it began and why it failed."""

    def __init__(self, client_id: str, now_s: Callable[[], float]) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTv5)
        self._now_s = now_s
        self.begun_s, self.failure, self.is_running = now_s(), "", False

    def loop_start(self) -> MQTTErrorCode:
        """Start the thread."""
        self.is_running = True
        return super().loop_start()

    def loop_forever(
        self, timeout: float = 1.0, retry_first_connection: bool = False
    ) -> MQTTErrorCode:
        """The body of the thread."""
        try:
            return super().loop_forever(timeout, retry_first_connection)
        finally:
            self.is_running = False

    def reconnect(self) -> MQTTErrorCode:
        """Connect. Raises OSError."""
        self.begun_s = self._now_s()
        try:
            return super().reconnect()
        except (OSError, ValueError) as error:  # ValueError: an invalid host name
            why = getattr(error, "verify_message", "") or getattr(error, "strerror", "")
            self.failure = why or str(error)
            raise OSError(self.failure) from error


class BrokerSession:
    """Connects, reconnects, and passes messages to the ingestor, or to the handler. Call `check`
    twice a second."""

    def __init__(
        self,
        settings: BrokerSettings,
        ingestor: TelemetryIngestor,
        now_s: Callable[[], float] = time.monotonic,
        handler: TopicHandler | None = None,
    ) -> None:
        self._settings = settings
        self._broker = f"{settings.host}:{settings.port}"
        self._ingestor = ingestor
        self._handler = handler
        self._handlers_number: int | None = None  # of its SUBSCRIBE
        self._is_denied_logged = False
        self._now_s = now_s
        self._stopping = False
        self._is_down_logged = False
        self._has_session = self._is_refused = False
        self._is_left = False  # because the broker was silent; what came may still be unread
        self._since_s = now_s()
        self._heard_s: float | None = None
        self._why = "it has not answered yet"
        self._refused: tuple[str, ...] = ()
        self._limits = self._learned = MQTT_DEFAULTS
        self._too_large = 0  # messages that were not sent
        self._largest_bytes = 0  # of the packets of this session
        self._ping: tuple[int | None, float] = (None, -math.inf)
        self._checked_s = self._awake_s = -math.inf
        self._rtt_ms: float | None = None
        client = _Client(settings.client_id, now_s)
        client.reconnect_delay_set(_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S)
        client.on_connect = self._connected
        client.on_connect_fail = lambda *_: self._log_down(client.failure)
        client.on_disconnect = self._disconnected
        client.on_subscribe = self._subscribed
        client.on_unsubscribe = self._unsubscribed
        client.on_message = self._message
        client.max_inflight_messages_set(1)  # the least that a broker may allow
        if handler is not None:
            client.on_publish = self._published
        if settings.tls is not None:
            client.tls_set_context(settings.tls.context())
        self._client = client
        self._set_will()
        # Made once: paho takes longer to make them than to send a lease.
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho
        properties.UserProperty = (topics.SCHEMA_PROPERTY, topics.SCHEMA)
        properties.MessageExpiryInterval = topics.DELIVERY[topics.Kind.LEASE].expiry_s
        self._lease_properties = properties

    def start(self) -> None:
        """Start to connect. Does not raise when the broker is unreachable."""
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho
        properties.MaximumPacketSize = _MAX_PACKET_BYTES
        self._client.connect_async(
            self._settings.host,
            self._settings.port,
            KEEPALIVE_S,
            clean_start=True,
            properties=properties,
        )
        self._client.loop_start()

    def is_running(self) -> bool:
        """Whether the network thread is running. It is never restarted."""
        return self._client.is_running

    def is_prompt(self) -> bool:
        """Whether there is a session, and the broker answered of late: what is sent to one that
        hangs may arrive at any time."""
        return (
            self._client.is_connected()
            and self._heard_s is not None
            and self._now_s() - self._heard_s < _PROMPT_S
        )

    def is_connected(self) -> bool:
        """Whether the broker takes leases now."""
        return self._client.is_connected()

    def status(self) -> BrokerStatus:
        """How the session is now."""
        connected = self._client.is_connected()
        return BrokerStatus(
            address=self._broker,
            connected=connected,
            since_s=self._since_s,
            heard_s=self._heard_s,
            rtt_ms=self._rtt_ms if connected else None,
            why="" if connected else self._why,
            refused=self._refused,
            limits=self._limitations(),
        )

    def check(self) -> None:
        """Measure the round trip to the broker every five seconds, and leave a session in which the
        broker is silent, to begin another one."""
        now_s, connection = self._now_s(), self._client.socket()
        if now_s - self._checked_s > _PING_EVERY_S:
            self._awake_s = now_s  # this process or its machine slept; what came is not read yet
        self._checked_s = now_s
        if not isinstance(connection, socket.socket) or not self._client.is_connected():
            return
        if now_s - max(self._since_s, self._heard_s or -math.inf, self._awake_s) >= SILENT_S:
            self._is_left = True
            with suppress(OSError):  # the network thread sees it end, and connects again
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        elif now_s - self._ping[1] >= _PING_EVERY_S:
            _, number = self._client.unsubscribe(_PING_TOPIC)
            self._ping = (number, now_s)

    def stop(self) -> None:
        """Disconnect and end the thread."""
        self._stopping = True
        self._client.disconnect()
        self._client.loop_stop()

    def send(self, lease: pb.Lease) -> None:
        """Send a lease to its node. Without a connection it is dropped, because it is only valid
        now."""
        if not self._client.is_connected():
            return
        how = topics.DELIVERY[topics.Kind.LEASE]
        topic = topics.topic(self._settings.cluster, lease.node, topics.Kind.LEASE)
        self._publish(topic, encode(lease), how, self._lease_properties)

    def retain(self, topic: str, payload: bytes, expiry_s: int | None = None, qos: int = 0) -> None:
        """Publish a message that the broker retains if it can, for `expiry_s` if that is set; an
        empty one removes what it retains. Without a connection it is dropped. With QoS 1 the log
        tells when the broker refuses it."""
        if not self._client.is_connected():
            return
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho
        if expiry_s is not None:
            properties.MessageExpiryInterval = expiry_s
        self._publish(topic, payload, topics.Delivery(qos, retain=True), properties)

    def request_retained(self, nodes: Sequence[str]) -> None:
        """Request the retained messages of these nodes (birth, status) from the broker again."""
        if not self._client.is_connected():
            return  # it sends all retained messages after connecting
        kept_of = {
            node: [topics.topic(self._settings.cluster, node, kind) for kind in _RETAINED]
            for node in nodes
        }
        # Each topic has three bytes more in a SUBSCRIBE, and the packet a few.
        longest = max((3 + len(topic) for kept in kept_of.values() for topic in kept), default=1)
        fitting = (self._limits.max_packet_bytes - 10) // (len(_RETAINED) * longest)
        at_once = max(1, min(_FETCHED_AT_ONCE, fitting))
        for start in range(0, len(nodes), at_once):
            kept = [topic for node in nodes[start : start + at_once] for topic in kept_of[node]]
            self._largest_bytes = max(self._largest_bytes, len(kept) * longest)
            self._client.subscribe([(topic, SubscribeOptions(qos=_QOS)) for topic in kept])
            self._client.unsubscribe(kept)  # the other subscriptions deliver later messages

    def _publish(self, topic: str, payload: bytes, how: topics.Delivery, properties: Any) -> None:
        """Publish as the broker allows it; a packet that it does not take is dropped."""
        how = self._limits.delivery(how)
        size_bytes = publish_bytes(topic, payload, how, properties.pack())
        if size_bytes > self._limits.max_packet_bytes:
            self._too_large += 1
            if self._too_large == 1:
                line = "the broker at %s takes packets of %d bytes; dropped %s, of %d bytes"
                log.warning(line, self._broker, self._limits.max_packet_bytes, topic, size_bytes)
            return
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        self._client.publish(topic, payload, how.qos, how.retain, properties)

    def _set_will(self) -> None:
        """Set what the broker publishes when the next session breaks, as it allows it."""
        if self._handler is not None and self._handler.will is not None:
            how = self._limits.within(self._learned).delivery(topics.Delivery(0, retain=True))
            self._client.will_set(*self._handler.will, how.qos, how.retain)

    def _limitations(self) -> tuple[str, ...]:
        found = self._limits.shortcomings()
        if self._too_large:
            found += (f"{self._too_large} messages were larger than it takes",)
        return found

    def _log_down(self, reason: str) -> None:
        self._why = reason
        if not self._is_down_logged:
            self._is_down_logged = True
            line = "no broker at %s (%s); measurements are unknown, retrying"
            log.warning(line, self._broker, reason)

    def _connected(
        self, client: Client, _: Any, __: Any, reason: ReasonCode, properties: Any
    ) -> None:
        if reason.is_failure:
            self._is_refused = True
            self._learned = self._learned.after(reason.value)
            self._set_will()
            self._log_down(str(reason))
            return
        client.drop_out_messages()  # paho would send them again, all at once
        self._limits = BrokerLimits.of(properties).within(self._learned)
        self._set_will()
        self._largest_bytes = 0
        self._is_down_logged, self._is_denied_logged, self._has_session = False, False, True
        self._is_left = False
        self._since_s = self._heard_s = self._now_s()
        self._rtt_ms, self._ping = None, (None, -math.inf)
        log.info("connected to the broker at %s", self._broker)
        for shortcoming in self._limits.shortcomings():
            log.warning("the broker at %s: %s", self._broker, shortcoming)
        if not self._limits.has_wildcards:  # it may end a session that asks for them
            self._refused = tuple(str(kind) for kind in _KINDS)
            return
        options = SubscribeOptions(qos=_QOS)
        client.subscribe(
            [(topics.subscription(self._settings.cluster, kind), options) for kind in _KINDS]
        )
        if self._handler is not None:
            self._handler.connected()
            others = SubscribeOptions(qos=_QOS, noLocal=True)
            _, self._handlers_number = client.subscribe(
                [(each, others) for each in self._handler.filters]
            )

    def _disconnected(
        self, _: Client, __: Any, flags: DisconnectFlags, reason: ReasonCode, *___: Any
    ) -> None:
        had_session, is_refused, is_left = self._has_session, self._is_refused, self._is_left
        self._has_session = self._is_refused = self._is_left = False
        if self._stopping or is_refused:  # then why is known
            return
        now_s, told = self._now_s(), flags.is_disconnect_packet_from_server
        if had_session and now_s - self._since_s > _STABLE_S:
            self._learned = MQTT_DEFAULTS
        if told:
            self._learned = self._learned.after(reason.value, 1, self._largest_bytes)
            self._set_will()
        heard_s = max(self._client.begun_s, self._heard_s or -math.inf)
        silent = is_left or now_s - heard_s >= SILENT_S
        lost = f"it did not answer for {SILENT_S:g} s" if silent else "the connection was lost"
        if reason.value == _PROTOCOL_ERROR:
            lost = "a packet of it cannot be read"
        if had_session:  # else an attempt to begin one failed
            self._since_s = now_s
        self._log_down(str(reason) if told else lost)

    def _unsubscribed(self, _: Client, __: Any, number: int, *___: Any) -> None:
        self._heard_s = self._now_s()
        asked, at_s = self._ping
        if number == asked:
            self._rtt_ms = 1000 * (self._heard_s - at_s)

    def _published(self, _: Client, __: Any, ___: int, reason: ReasonCode, *____: Any) -> None:
        if reason.is_failure and not self._is_denied_logged:
            self._is_denied_logged = True
            line = "the broker at %s takes no states of boards (%s); allow them in its ACL"
            log.warning(line, self._broker, reason)

    def _subscribed(
        self, _: Client, __: Any, number: int, reasons: list[ReasonCode], *____: Any
    ) -> None:
        if self._handler is not None and number == self._handlers_number:
            for each, reason in zip(self._handler.filters, reasons, strict=False):
                if reason.is_failure:
                    line = "the broker at %s does not let us read %s; allow it in its ACL"
                    log.warning(line, self._broker, each)
            return
        is_all = len(reasons) == len(_KINDS)  # else it answers request_retained
        kinds = zip(_KINDS if is_all else cycle(_RETAINED), reasons, strict=False)
        refused = tuple(dict.fromkeys(str(kind) for kind, reason in kinds if reason.is_failure))
        if is_all:
            self._refused = refused
        if refused:
            log.warning(
                "the broker at %s does not let us read %s of cluster %s; allow it in its ACL",
                *(self._broker, ", ".join(refused), self._settings.cluster),
            )

    def _message(self, _: Client, __: Any, message: MQTTMessage) -> None:
        self._heard_s = now_s = self._now_s()
        try:
            topic = message.topic
        except UnicodeDecodeError:  # the ingestor refuses and counts it
            topic = "\N{REPLACEMENT CHARACTER}"
        payload, retained = bytes(message.payload), message.retain
        if self._handler is not None and not topic.startswith(_TELEMETRY):
            self._handler.received(topic, payload, retained=retained)
            return
        pairs = getattr(message.properties, "UserProperty", ())
        schema = next((value for name, value in pairs if name == topics.SCHEMA_PROPERTY), None)
        left_s: int | None = getattr(message.properties, "MessageExpiryInterval", None)
        if left_s is None:
            held_s = math.inf if retained else 0.0  # at the broker
        else:
            held_s = max(0, _EXPIRY_S.get(topic.rpartition("/")[2], left_s) - left_s)
        self._ingestor.ingest(topic, payload, schema, now_s - held_s, retained=retained)


_EXPIRY_S = {
    str(kind): delivery.expiry_s
    for kind, delivery in topics.DELIVERY.items()
    if delivery.expiry_s is not None
}
