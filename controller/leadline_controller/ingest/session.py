"""The controller's MQTT session: subscriptions in, leases out.

paho runs its own network thread; messages are folded on it, so that the event loop that
decides is never behind a flood of reports.
"""

import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline_wire import topics
from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from leadline_controller.ingest.fold import Folder

log = logging.getLogger(__name__)

_KEEPALIVE_S = 30
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 1, 15  # one controller does not return in step
_KINDS = (
    topics.Kind.STATUS,
    topics.Kind.BIRTH,
    topics.Kind.REPORT,
    topics.Kind.RTT,
    topics.Kind.BANDWIDTH,
)


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """Files of a verified TLS session with a client certificate."""

    ca_file: Path
    cert_file: Path
    key_file: Path

    def context(self) -> ssl.SSLContext:
        """Trusts this authority alone and checks the broker's name. Raises OSError
        (ssl.SSLError is one) when the files are not what they should be."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        # A key with a passphrase must fail here and not ask at a terminal.
        context.load_cert_chain(str(self.cert_file), str(self.key_file), password=lambda: "")
        return context


def check_cluster(name: str) -> str:
    """Return the name if it can be a level of a topic. Raises ValueError that says what can."""
    return topics.check_level(name, "cluster")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Where the broker is, and who we are there."""

    host: str
    port: int
    cluster: str
    client_id: str
    tls: BrokerTls | None = None


class BrokerSession:
    """Connects, stays connected, folds what comes in."""

    def __init__(
        self, settings: BrokerSettings, folder: Folder, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._now_s = now_s
        self._stopping = False
        self._told_down = False
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id=settings.client_id, protocol=MQTTv5
        )
        self._client.max_queued_messages_set(1000)
        self._client.reconnect_delay_set(_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S)
        self._client.on_connect = self._connected
        self._client.on_connect_fail = self._connect_failed
        self._client.on_disconnect = self._disconnected
        self._client.on_message = self._message
        if settings.tls is not None:
            self._client.tls_set_context(settings.tls.context())

    def start(self) -> None:
        """Begin to connect; never raises for a broker that is not there."""
        self._client.connect_async(
            self._settings.host, self._settings.port, _KEEPALIVE_S, clean_start=True
        )
        self._client.loop_start()

    def stop(self) -> None:
        """Say goodbye and end the thread."""
        self._stopping = True
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, topic: str, kind: topics.Kind, payload: bytes) -> None:
        """Send one message by its kind's delivery; without a broker it is dropped, since
        what the controller sends is only good now."""
        if not self._client.is_connected():
            return
        delivery = topics.DELIVERY[kind]
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho
        properties.UserProperty = (topics.SCHEMA_PROPERTY, topics.SCHEMA)
        if delivery.expiry_s is not None:
            properties.MessageExpiryInterval = delivery.expiry_s
        self._client.publish(topic, payload, delivery.qos, delivery.retain, properties)

    def _tell_down(self, reason: str) -> None:
        if not self._told_down:
            self._told_down = True
            log.warning(
                "no broker at %s:%d (%s); measurements stay unknown, trying on",
                self._settings.host,
                self._settings.port,
                reason,
            )

    def _connected(
        self, client: Client, _: Any, __: ConnectFlags, reason: ReasonCode, ___: Properties | None
    ) -> None:
        if reason.is_failure:
            self._tell_down(str(reason))
            return
        self._told_down = False
        log.info("connected to the broker at %s:%d", self._settings.host, self._settings.port)
        options = SubscribeOptions(qos=1)
        client.subscribe(
            [(topics.subscription(self._settings.cluster, kind), options) for kind in _KINDS]
        )

    def _connect_failed(self, _: Client, __: Any) -> None:
        self._tell_down("it does not answer, or its certificate is not trusted")

    def _disconnected(
        self, _: Client, __: Any, ___: DisconnectFlags, reason: ReasonCode, ____: Properties | None
    ) -> None:
        if not self._stopping:
            self._tell_down(str(reason))

    def _message(self, _: Client, __: Any, message: MQTTMessage) -> None:
        schema, held_s = _read_properties(message)
        self._folder.fold(
            message.topic,
            bytes(message.payload),
            schema,
            self._now_s() - held_s,
            retained=message.retain,
        )


def _read_properties(message: MQTTMessage) -> tuple[str | None, float]:
    """The schema, and for how many seconds the broker held the message."""
    properties = message.properties
    if properties is None:
        return None, 0.0
    pairs = getattr(properties, "UserProperty", ())
    schema = next((value for name, value in pairs if name == topics.SCHEMA_PROPERTY), None)
    left_s = getattr(properties, "MessageExpiryInterval", None)
    if left_s is None:
        return schema, 0.0
    kind = message.topic.rpartition("/")[2]
    expiry_s = topics.DELIVERY[topics.Kind(kind)].expiry_s if kind in _WITH_EXPIRY else None
    return schema, max(0.0, (expiry_s or left_s) - left_s)


_WITH_EXPIRY = {kind.value for kind, delivery in topics.DELIVERY.items() if delivery.expiry_s}
