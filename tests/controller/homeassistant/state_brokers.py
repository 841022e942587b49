"""Controllers that publish states, on a broker in memory or on a real mosquitto: one interface for
the same tests."""

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Protocol

from leadline_controller.cluster.state import ClusterState
from leadline_controller.homeassistant.messages import PublishSettings
from leadline_controller.homeassistant.publisher import StatePublisher
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.session import BrokerSession, BrokerSettings, BrokerTls
from leadline_controller.telemetry.state import TelemetryState
from paho.mqtt.client import Client, MQTTMessage, MQTTv5, topic_matches_sub
from paho.mqtt.enums import CallbackAPIVersion

from tests.controller.probing.permissive_leases import PermissiveLeases
from tests.support.certificates import Certificate
from tests.support.mosquitto import mosquitto
from tests.support.ports import wait_until

CLUSTER = "home.lab"


class RunningController(Protocol):
    """A publisher with its connection."""

    publisher: StatePublisher
    leads: bool

    def tick(self, now_s: float) -> None:
        """One turn of its loop."""
        ...

    def reconnect(self) -> None:
        """Lose the connection without a DISCONNECT, and begin another one."""
        ...

    def end(self) -> None:
        """End as a service is stopped."""
        ...


class StateBroker(Protocol):
    """What the tests need of a broker. seen: how often each topic was published to."""

    retained: dict[str, bytes]
    seen: Counter[str]

    def start(
        self, settings: PublishSettings, cluster: ClusterState, telemetry: TelemetryState
    ) -> RunningController:
        """Start a controller."""
        ...

    def say(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish as another client."""
        ...

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition holds."""
        ...


class MemoryBroker:
    """A broker whose messages arrive at once."""

    def __init__(self) -> None:
        self.retained: dict[str, bytes] = {}
        self.seen: Counter[str] = Counter()
        self.controllers: list[MemoryController] = []

    def start(
        self, settings: PublishSettings, cluster: ClusterState, telemetry: TelemetryState
    ) -> "MemoryController":
        return MemoryController(self, settings, cluster, telemetry)

    def say(
        self,
        topic: str,
        payload: bytes,
        *,
        retain: bool = False,
        by: "MemoryController | None" = None,
    ) -> None:
        self.seen[topic] += 1
        if retain and payload:
            self.retained[topic] = payload
        elif retain:
            self.retained.pop(topic, None)
        for each in self.controllers:
            if each is not by and each.is_subscribed(topic):
                each.publisher.received(topic, payload, retained=False)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        assert any(condition() for _ in range(200)), what


class MemoryController:
    """A controller on a MemoryBroker."""

    def __init__(
        self,
        broker: MemoryBroker,
        settings: PublishSettings,
        cluster: ClusterState,
        telemetry: TelemetryState,
    ) -> None:
        self._broker = broker
        self.leads = True
        self.publisher = StatePublisher(
            settings, CLUSTER, cluster, telemetry, self._retain, Random(1)
        )
        self._connect()

    def is_subscribed(self, topic: str) -> bool:
        return any(topic_matches_sub(each, topic) for each in self.publisher.filters)

    def tick(self, now_s: float) -> None:
        self.publisher.tick(now_s, acts=self.leads)

    def reconnect(self) -> None:
        self._broker.controllers.remove(self)
        if self.publisher.will is not None:
            self._broker.say(*self.publisher.will, retain=True)
        self._connect()

    def end(self) -> None:
        self.publisher.stop()
        self._broker.controllers.remove(self)

    def _connect(self) -> None:
        self._broker.controllers.append(self)
        self.publisher.connected()
        for topic, payload in self._broker.retained.items():
            if self.is_subscribed(topic):
                self.publisher.received(topic, payload, retained=True)

    def _retain(
        self, topic: str, payload: bytes, expiry_s: int | None = None, qos: int = 0
    ) -> None:
        assert expiry_s is None or expiry_s > 0
        assert qos in (0, 1)
        self._broker.say(topic, payload, retain=True, by=self)


class MosquittoBroker:
    """A real mosquitto, and a client that sees everything."""

    def __init__(
        self, host: str, port: int, tls: Certificate | None = None, own: BrokerTls | None = None
    ) -> None:
        self.host, self.port, self.controllers_tls = host, port, own
        self.retained: dict[str, bytes] = {}
        self.seen: Counter[str] = Counter()
        self.controllers: list[MosquittoController] = []
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        self.client.on_connect = lambda client, *_: client.subscribe("#")
        self.client.on_message = self._receive
        if tls is not None:
            self.client.tls_set(str(tls.ca_file), str(tls.cert_file), str(tls.key_file))
        self.client.connect(host, port)
        self.client.loop_start()

    def start(
        self, settings: PublishSettings, cluster: ClusterState, telemetry: TelemetryState
    ) -> "MosquittoController":
        controller = MosquittoController(self, settings, cluster, telemetry)
        self.controllers.append(controller)
        return controller

    def say(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        seen = self.seen[topic]
        self.client.publish(topic, payload, 1, retain).wait_for_publish(20)
        wait_until(lambda: self.seen[topic] > seen, "what was said is heard")

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what)

    def _receive(self, _: Client, __: Any, message: MQTTMessage) -> None:
        if message.payload:
            self.retained[message.topic] = bytes(message.payload)
        else:
            self.retained.pop(message.topic, None)
        self.seen[message.topic] += 1


class MosquittoController:
    """A controller's real session."""

    def __init__(
        self,
        broker: MosquittoBroker,
        settings: PublishSettings,
        cluster: ClusterState,
        telemetry: TelemetryState,
    ) -> None:
        self.leads = True
        self._connections = 0
        self.publisher = StatePublisher(
            settings,
            CLUSTER,
            cluster,
            telemetry,
            lambda *message: self.session.retain(*message),
            Random(1),
        )
        self.session: BrokerSession = BrokerSession(
            BrokerSettings(
                *(broker.host, broker.port, CLUSTER, f"controller-{id(self)}"),
                broker.controllers_tls,
            ),
            TelemetryIngestor(CLUSTER, telemetry, PermissiveLeases()),
            handler=self.publisher,
        )
        self.session.start()
        wait_until(self.session.is_connected, "the controller is connected")

    def tick(self, now_s: float) -> None:
        self.publisher.tick(now_s, acts=self.leads and self.session.is_connected())

    def reconnect(self) -> None:
        connection: Any = self.session._client.socket()
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
        # For a moment the client has no connection and says that it is connected.
        wait_until(
            lambda: (
                self.session._client.socket() not in (None, connection)
                and self.session.is_connected()
            ),
            "it is connected again",
        )

    def end(self) -> None:
        self.publisher.stop()
        self.session.stop()


@contextmanager
def mosquitto_broker() -> Iterator[MosquittoBroker]:
    """A mosquitto without an ACL."""
    with mosquitto() as broker, observed(MosquittoBroker(broker.host, broker.port)) as found:
        yield found


@contextmanager
def observed(broker: MosquittoBroker) -> Iterator[MosquittoBroker]:
    """The broker with its observer connected; controllers that are left at the end are stopped."""
    with ExitStack() as stack:
        stack.callback(broker.client.loop_stop)
        stack.callback(broker.client.disconnect)
        wait_until(broker.client.is_connected, "the observer is connected")
        try:
            yield broker
        finally:
            for controller in broker.controllers:
                controller.session.stop()
