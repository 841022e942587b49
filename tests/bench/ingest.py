"""The number of reports that one core ingests from a real mosquitto in a second.

A hundred boards send the reports of agents (every collector, two interfaces, QoS 1, schema, content
type and expiry). Processes of their own send as fast as the broker accepts, so that the ingest is
always behind. The receiver has one core, the other processes share the rest. The same run also
measures paho's client, which counts the same messages without reading them, and the ingestor
without a broker and a network.
"""

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

from leadline_agent.publish.session import Encoder
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.session import BrokerSession, BrokerSettings
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_wire import codec, topics
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests.bench.boards import report
from tests.controller.probing.permissive_leases import PermissiveLeases
from tests.controller.telemetry.wire_client import properties_of
from tests.support.mosquitto import Broker, mosquitto

CLUSTER = "home"
BOARDS = 100
SENDERS = 2
TARGET = 15_000
QUIET_S = 3.0
_CONTEXT = get_context("spawn")


@dataclass(frozen=True)
class Rate:
    """The ingested reports, and the time for them. cpu_s: of the whole process."""

    reports: int
    wall_s: float
    cpu_s: float

    def show(self, name: str) -> None:
        per_core, wall = self.reports / self.cpu_s, self.reports / self.wall_s
        print(f"{name:<44}{per_core:>12,.0f}{wall:>12,.0f}{1e6 * self.cpu_s / self.reports:>10.1f}")


def reports(nodes: list[str], each: int) -> Iterator[tuple[str, bytes]]:
    """(topic, payload) of `each` reports of every node, in turn."""
    encoders = [Encoder(CLUSTER, node, os.urandom(16), 3) for node in nodes]
    for turn in range(each):
        boot_ms = 86_400_000 + 10_000 * turn
        for encoder in encoders:
            topic, payload = encoder.sample(report(boot_ms))
            yield topic, codec.stamp_sent(topics.Kind.REPORT, payload, boot_ms + 12)


# The senders.


def send(broker: Broker, nodes: list[str], each: int, cores: set[int], go: Event) -> None:
    """Send a report now and then until `go`, and then all reports as fast as the broker accepts."""
    _stay_on(cores)
    packets = [
        _publication(*message, number) for number, message in enumerate(reports(nodes, each))
    ]
    with socket.create_connection((broker.host, broker.port)) as connection:
        connection.sendall(_packet(0x10, b"\x00\x04MQTT\x05\x02\x00\x00\x00" + _text(nodes[0])))
        number = 60_000
        while not go.wait(0.1):
            for topic, payload in reports([f"{nodes[0]}-early"], 1):
                connection.sendall(_publication(topic, payload, number := number + 1))
        time.sleep(0.5)  # until the early reports have arrived
        connection.setblocking(False)
        for start in range(0, len(packets), 50):
            send_all(connection, b"".join(packets[start : start + 50]))
        connection.setblocking(True)
        while connection.recv(1 << 16):
            pass


def send_all(connection: socket.socket, data: bytes) -> None:
    while data:
        with suppress(BlockingIOError):
            connection.recv(1 << 16)  # the broker's confirmations
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            time.sleep(0.001)


def _publication(topic: str, payload: bytes, number: int) -> bytes:
    properties = properties_of(topics.DELIVERY[topics.Kind.REPORT]).pack()
    message_id = struct.pack("!H", 1 + number % 65_535)
    return _packet(0x32, _text(topic) + message_id + properties + payload)


def _packet(header: int, body: bytes) -> bytes:
    low, high = len(body) % 128, len(body) // 128
    return bytes([header, low | 0x80, high] if high else [header, low]) + body


def _text(text: str) -> bytes:
    return struct.pack("!H", len(text)) + text.encode()


# The receivers.


def into_state(broker: Broker, expected: int, results: Connection) -> None:
    """As the controller does: session, ingestor, state."""
    state = TelemetryState(TimesToLive())
    ingestor = TelemetryIngestor(CLUSTER, state, PermissiveLeases())
    session = BrokerSession(BrokerSettings(broker.host, broker.port, CLUSTER, "ingest"), ingestor)
    session.start()
    _measure(lambda: state.accepted, expected, results)
    session.stop()
    if state.refused:
        print(f"refused: {dict(state.refused)}")


def count_only(broker: Broker, expected: int, results: Connection, qos: int) -> None:
    """paho alone, which only counts."""
    seen = [0]
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)

    def on_message(*_: Any) -> None:
        seen[0] += 1

    client.on_message = on_message
    client.connect(broker.host, broker.port)
    client.subscribe(topics.subscription(CLUSTER, topics.Kind.REPORT), qos)
    client.loop_start()
    _measure(lambda: seen[0], expected, results)
    client.disconnect()
    client.loop_stop()


def paho_qos_0(broker: Broker, expected: int, results: Connection) -> None:
    """With the controller's subscription."""
    count_only(broker, expected, results, 0)


def paho_qos_1(broker: Broker, expected: int, results: Connection) -> None:
    """With a subscription at QoS 1, for comparison."""
    count_only(broker, expected, results, 1)


Receiver = Callable[[Broker, int, Connection], None]


def _measure(count: Callable[[], int], expected: int, results: Connection) -> None:
    """Report that messages arrive; then measure from the first of the flood to the last."""
    _stay_on(_cores()[0])
    while not count():
        time.sleep(0.02)
    results.send("listening")
    time.sleep(0.4)
    early = count()
    while count() == early:
        time.sleep(0.001)
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    seen, seen_s, seen_cpu_s = early, begin_s, begin_cpu_s
    while count() < early + expected and time.monotonic() < seen_s + QUIET_S:
        time.sleep(0.01)
        if count() > seen:
            seen, seen_s, seen_cpu_s = count(), time.monotonic(), time.process_time()
    results.send(Rate(seen - early, seen_s - begin_s, seen_cpu_s - begin_cpu_s))


def _cores() -> tuple[set[int], set[int]]:
    """The receiver's core, and the cores that the other processes share."""
    cores = sorted(os.sched_getaffinity(os.getppid()))
    return {cores[0]}, set(cores[1:] or cores)


def _stay_on(cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)


@contextmanager
def _started(target: Callable[..., None], *arguments: Any) -> Iterator[None]:
    process = _CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def measure(receiver: Receiver, each: int) -> Rate:
    """Flood a receiver with `each` reports of every board."""
    nodes = [f"rpi-kitchen-{number:02}" for number in range(BOARDS)]
    go = _CONTEXT.Event()
    results, sender = _CONTEXT.Pipe()
    others = set(sorted(os.sched_getaffinity(0))[1:]) or os.sched_getaffinity(0)
    with (
        mosquitto() as broker,
        _started(receiver, broker, BOARDS * each, sender),
        _started(send, broker, nodes[0::SENDERS], each, others, go),
        _started(send, broker, nodes[1::SENDERS], each, others, go),
    ):
        os.sched_setaffinity(broker.pid, others)
        _next(results)
        go.set()
        rate = _next(results)
    assert isinstance(rate, Rate)
    lost = BOARDS * each - rate.reports
    if lost:
        print(f"{lost} of {BOARDS * each} reports did not arrive within {QUIET_S:g} s of silence")
    return rate


def _next(results: Connection) -> object:
    if not results.poll(120):
        raise TimeoutError("the receiver sent nothing for two minutes")
    return results.recv()


def ingest_alone(each: int) -> Rate:
    """The rate of decoding, checking and storing."""
    state = TelemetryState(TimesToLive())
    ingestor = TelemetryIngestor(CLUSTER, state, PermissiveLeases())
    messages = list(reports([f"rpi-kitchen-{number:02}" for number in range(BOARDS)], each))
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    for topic, payload in messages:
        ingestor.ingest(topic, payload, topics.SCHEMA, begin_s, retained=False)
    return Rate(state.accepted, time.monotonic() - begin_s, time.process_time() - begin_cpu_s)


def main() -> None:
    """Print the rates and the size of a report."""
    topic, payload = next(iter(reports(["rpi-kitchen-01"], 1)))
    whole = len(_publication(topic, payload, 1))
    print(f"a report: {len(payload)} bytes of at most 400, {whole} with topic and properties")
    print(f"\n{BOARDS} boards, QoS 1{'':<30}{'reports/s':>11}{'reports/s':>12}{'CPU us':>10}")
    print(f"{'':<44}{'a core':>12}{'by the wall':>12}{'each':>10}")
    measure(into_state, 600).show(f"leadline, into state (at least {TARGET:,})")
    measure(paho_qos_0, 300).show("paho alone, QoS 0, messages not read")
    measure(paho_qos_1, 300).show("paho alone, QoS 1, messages not read")
    ingest_alone(300).show("ingestor alone, no broker and no network")


if __name__ == "__main__":
    main()
