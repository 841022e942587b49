"""What a CONNACK says, as a value: defaults, what is narrower, and the size of a packet."""

from types import SimpleNamespace
from typing import Any

import pytest
from leadline_wire.broker_limits import MQTT_DEFAULTS, BrokerLimits, publish_bytes
from leadline_wire.topics import DELIVERY, Delivery, Kind
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


@pytest.mark.parametrize("properties", [None, SimpleNamespace()])
def test_what_is_not_said_has_mqtts_default(properties: object) -> None:
    assert BrokerLimits.of(properties) == MQTT_DEFAULTS
    assert MQTT_DEFAULTS.delivery(DELIVERY[Kind.BIRTH]) == DELIVERY[Kind.BIRTH]
    assert MQTT_DEFAULTS.shortcomings() == ()


def test_what_is_said_counts() -> None:
    said: Any = Properties(PacketTypes.CONNACK)  # type: ignore[no-untyped-call] # paho's own gap
    said.ReceiveMaximum, said.MaximumPacketSize, said.MaximumQoS = 10, 1000, 0
    said.RetainAvailable, said.WildcardSubscriptionAvailable = 0, 0
    limits = BrokerLimits.of(said)
    assert limits == BrokerLimits(10, 1000, 0, False, False)
    assert limits.delivery(DELIVERY[Kind.BIRTH]) == Delivery(0, retain=False)
    assert limits.delivery(DELIVERY[Kind.REPORT]).expiry_s == 3600
    assert len(limits.shortcomings()) == 4


@pytest.mark.parametrize(
    ("reason", "learned"),
    [
        (0x93, BrokerLimits(receive_maximum=5)),
        (0x95, BrokerLimits(max_packet_bytes=999)),
        (0x9A, BrokerLimits(retains=False)),
        (0x9B, BrokerLimits(max_qos=0)),
        (0x8B, MQTT_DEFAULTS),
        (0, MQTT_DEFAULTS),
    ],
)
def test_a_refusal_teaches_a_limit(reason: int, learned: BrokerLimits) -> None:
    assert MQTT_DEFAULTS.after(reason, 10, 1000) == learned
    assert learned.within(MQTT_DEFAULTS) == MQTT_DEFAULTS.within(learned) == learned


def test_nothing_is_learned_of_messages_that_were_not_sent() -> None:
    assert MQTT_DEFAULTS.after(0x93) == MQTT_DEFAULTS.after(0x95) == MQTT_DEFAULTS
    assert BrokerLimits(receive_maximum=1).after(0x93, 1).receive_maximum == 1


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("size", [0, 90, 110, 130, 16_000, 16_360, 16_400, 70_000])
def test_the_size_of_a_packet_is_that_of_pahos(
    qos: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call] # paho's own gap
    properties.ContentType = "application/protobuf"
    sent: list[bytes] = []
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    monkeypatch.setattr(client, "_sock", object())
    monkeypatch.setattr(client, "_packet_queue", lambda _command, packet, *_: sent.append(packet))
    client.publish("a/topic", bytes(size), qos, properties=properties)
    (packet,) = sent
    how = Delivery(qos, retain=False)
    assert publish_bytes("a/topic", bytes(size), how, properties.pack()) == len(packet)
    client._sock = None
