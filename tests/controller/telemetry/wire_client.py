"""An MQTT v5 client that sends and receives as an agent does."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.controller.telemetry.board_builder import BoardMessages
from tests.support.certificates import Certificate
from tests.support.mosquitto import Broker
from tests.support.ports import wait_until


class WireClient:
    """Publishes messages of boards, and records the leases of one of them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.leases: list[pb.Lease] = []

    def send(
        self,
        board: BoardMessages,
        message: codec.TelemetryMessage,
        schema: str = topics.SCHEMA,
        **delivery: Any,
    ) -> None:
        kind = codec.kind_of(message)
        self.publish(board.topic(kind), codec.encode(message), kind, schema, **delivery)

    def send_soon(self, board: BoardMessages, message: codec.TelemetryMessage) -> None:
        """Send from the client's own thread, which must not wait for the broker."""
        kind = codec.kind_of(message)
        how = topics.DELIVERY[kind]
        payload, properties = codec.encode(message), properties_of(how)
        self._client.publish(board.topic(kind), payload, how.qos, how.retain, properties)

    def publish(
        self,
        topic: str,
        payload: bytes,
        kind: topics.Kind,
        schema: str = topics.SCHEMA,
        *,
        retain: bool | None = None,
        expiry_s: int | None = None,
    ) -> None:
        """Publish with the kind's delivery by default; returns when the broker has the message."""
        how = topics.DELIVERY[kind]
        properties = properties_of(how, schema)
        if expiry_s is not None:
            properties.MessageExpiryInterval = expiry_s
        keep = how.retain if retain is None else retain
        self._client.publish(topic, payload, how.qos, keep, properties).wait_for_publish(20)

    def listen(
        self, board: BoardMessages, answer: Callable[[pb.Lease], None] | None = None
    ) -> None:
        """Record this board's leases, and call `answer` with each on the client's thread."""
        self._listen(board.topic(topics.Kind.LEASE), answer)

    def listen_to_all(self, cluster: str) -> None:
        """Record the leases of every board."""
        self._listen(topics.subscription(cluster, topics.Kind.LEASE))

    def _listen(self, topic: str, answer: Callable[[pb.Lease], None] | None = None) -> None:
        subscribed = threading.Event()

        def on_message(_: Client, __: Any, message: MQTTMessage) -> None:
            schema = dict(getattr(message.properties, "UserProperty", ()))["schema"]
            lease = codec.decode(topics.parse(message.topic), bytes(message.payload), schema)
            assert isinstance(lease, pb.Lease)
            self.leases.append(lease)
            if answer is not None:
                answer(lease)

        self._client.on_message = on_message
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.subscribe(topic, qos=1)
        assert subscribed.wait(20)

    def drop(self) -> None:
        """Disconnect without DISCONNECT, as a board that loses its power."""
        sock: Any = self._client.socket()
        self._client.on_disconnect = lambda client, *_: client.disconnect()
        sock.close()


def properties_of(how: topics.Delivery, schema: str = topics.SCHEMA) -> Any:
    properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho
    properties.ContentType = topics.CONTENT_TYPE
    properties.UserProperty = (topics.SCHEMA_PROPERTY, schema)
    if how.expiry_s is not None:
        properties.MessageExpiryInterval = how.expiry_s
    return properties


@contextmanager
def connected(
    broker: Broker, *, will: BoardMessages | None = None, tls: Certificate | None = None
) -> Iterator[WireClient]:
    """A connected client until the block ends; `will`: the board of its last will."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    if tls is not None:
        client.tls_set_context(tls.context())
    if will is not None:
        how = topics.DELIVERY[topics.Kind.STATUS]
        properties: Any = Properties(PacketTypes.WILLMESSAGE)  # type: ignore[no-untyped-call]  # paho
        properties.UserProperty = (topics.SCHEMA_PROPERTY, topics.SCHEMA)
        last = codec.encode(will.status(online=False))
        client.will_set(will.topic(topics.Kind.STATUS), last, how.qos, how.retain, properties)
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        wait_until(client.is_connected, "the test's client is connected")
        yield WireClient(client)
    finally:
        client.disconnect()
        client.loop_stop()
