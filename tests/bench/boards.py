"""Thousands of boards that report as agents do, from one process, so that a controller decides
by measurements and takes new ones in at the same time."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context

from leadline_agent import sample
from leadline_agent.publish.encode import Encoder
from leadline_wire import codec, topics
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests.controller.ingest.wire_client import properties_of
from tests.support.mosquitto import Broker

CLUSTER = "home"
PEERS = 4
REPORT_EVERY_S = 10.0
RTT_EVERY_TURNS = 6
_CONTEXT = get_context("spawn")


def report(boot_ms: int) -> sample.Report:
    """What an agent on a board with two interfaces reports."""
    names = ("cpu", "memory", "disk", "network", "temperature")
    return sample.Report(
        measured_boot_ms=boot_ms,
        collectors=tuple(
            sample.CollectorRun(name, sample.CollectorOutcome.OK, 150) for name in names
        ),
        cpu=sample.Cpu(12.5, 0.52, 4, 1500.0, throttled=False, under_voltage=False),
        memory=sample.Memory(4_000_000_000, 2_500_000_000),
        disk=sample.Disk(10_240.5, 20_480.7),
        network=(
            sample.Interface("eth0", 120.3, 80.1, 90_400.6, 45_678.9),
            sample.Interface("wlan0", 1.5, 2.5, 300.1, 400.2),
        ),
        temperature=sample.Temperature(48.3),
    )


@contextmanager
def reporting(broker: Broker, nodes: Sequence[str]) -> Iterator[None]:
    """Every node reports every 10 s, and once a minute its round trips to four others, while
    this lasts."""
    process = _CONTEXT.Process(target=_report_for_ever, args=(broker, tuple(nodes)), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _report_for_ever(broker: Broker, nodes: tuple[str, ...]) -> None:
    os.nice(19)  # they are to take nothing from what is measured
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.connect(broker.host, broker.port)
    client.loop_start()
    encoders = [Encoder(CLUSTER, node, os.urandom(16), 1) for node in nodes]
    begin_s, turn = time.monotonic(), 0
    while True:
        for at, encoder in enumerate(encoders):
            # Spread over the interval, as boards that were switched on one by one are.
            due_s = begin_s + REPORT_EVERY_S * (turn + at / len(nodes))
            time.sleep(max(0.0, due_s - time.monotonic()))
            _publish(client, topics.Kind.REPORT, encoder.sample(report(_now_ms())))
            if turn % RTT_EVERY_TURNS == 0:
                _publish(client, topics.Kind.RTT, encoder.sample(_round(nodes, at)))
        turn += 1


def _round(nodes: Sequence[str], at: int) -> sample.RttRound:
    peers = (nodes[(at + step) % len(nodes)] for step in range(1, PEERS + 1))
    return sample.RttRound(
        _now_ms(),
        tuple(
            sample.RttSample(peer, sample.RttMethod.ICMP, 5, 5, 0.2 + (at % 50) / 10, 0.1)
            for peer in peers
        ),
    )


def _publish(client: Client, kind: topics.Kind, message: tuple[str, bytes]) -> None:
    topic, payload = message
    sent = codec.stamp_sent(kind, payload, _now_ms())
    client.publish(topic, sent, properties=properties_of(topics.DELIVERY[kind]))


def _now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
