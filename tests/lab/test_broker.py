"""The lab's broker with a real client: the features that Leadline needs of a broker."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from leadline_lab.broker import broker_command
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.ports import free_port, listens, wait_until

WAIT_S = 90.0

_DYING_CLIENT = """
import sys, time
import paho.mqtt.client as mqtt
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
client.will_set("a/n1/status", b"offline", qos=1, retain=True)
client.on_connect = lambda *_: print("connected", flush=True)
client.connect(sys.argv[1], int(sys.argv[2]))
client.loop_forever()
"""


class Listener:
    """A client that stores the received messages."""

    def __init__(self, broker: tuple[str, int], topic: str) -> None:
        self.messages: list[mqtt.MQTTMessage] = []
        self._subscribed = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self.client.on_message = lambda _client, _data, message: self.messages.append(message)
        self.client.on_connect = lambda client, *_: client.subscribe(topic, qos=1)
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.connect(*broker)
        self.client.loop_start()
        assert self._subscribed.wait(WAIT_S)

    def wait_for(self, count: int) -> list[mqtt.MQTTMessage]:
        wait_until(lambda: len(self.messages) >= count, f"{count} messages arrive", WAIT_S)
        return self.messages


Listen = Callable[[str], Listener]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    host, port = "127.0.0.1", free_port()
    argv = broker_command(tmp_path_factory.mktemp("broker"), host, port)
    with subprocess.Popen(argv) as process:
        wait_until(lambda: listens(host, port), "the broker listens", WAIT_S)
        yield host, port
        process.terminate()


@pytest.fixture
def listen(broker: tuple[str, int]) -> Iterator[Listen]:
    listeners: list[Listener] = []

    def begin(topic: str) -> Listener:
        listeners.append(Listener(broker, topic))
        return listeners[-1]

    yield begin
    for one in listeners:
        one.client.disconnect()
        one.client.loop_stop()


def _publish(listener: Listener, topic: str, payload: bytes, expiry_s: int | None = None) -> None:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # so in paho
    properties.UserProperty = ("schema", "1")
    if expiry_s is not None:
        properties.MessageExpiryInterval = expiry_s
    listener.client.publish(topic, payload, 1, True, properties).wait_for_publish(WAIT_S)


def _properties(message: mqtt.MQTTMessage) -> dict[str, Any]:
    assert message.properties is not None
    return vars(message.properties)


def test_user_properties_and_retained_messages_pass(listen: Listen) -> None:
    early = listen("a/+/birth")
    _publish(early, "a/n1/birth", b"hello")
    assert _properties(early.wait_for(1)[0])["UserProperty"] == [("schema", "1")]
    late = listen("a/+/birth").wait_for(1)[0]
    assert (late.payload, late.retain) == (b"hello", True)
    assert _properties(late)["UserProperty"] == [("schema", "1")]


def test_an_expired_message_is_not_delivered(listen: Listen) -> None:
    sender = listen("unused")
    _publish(sender, "b/short", b"gone", expiry_s=1)
    _publish(sender, "b/stays", b"here", expiry_s=600)
    time.sleep(2.1)
    late = listen("b/#")
    assert [message.topic for message in late.wait_for(1)] == ["b/stays"]
    assert 1 <= _properties(late.messages[0])["MessageExpiryInterval"] < 600


def test_the_will_of_a_killed_client_is_published_and_retained(
    broker: tuple[str, int], listen: Listen
) -> None:
    watcher = listen("a/+/status")
    argv = [sys.executable, "-c", _DYING_CLIENT, broker[0], str(broker[1])]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"connected\n"
        dying.kill()
    assert watcher.wait_for(1)[0].payload == b"offline"
    assert listen("a/+/status").wait_for(1)[0].retain
