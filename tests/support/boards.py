"""Thousands of simulated boards that report from one process, so that a controller decides by
measurements while it receives new ones."""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from threading import Event

from leadline_agent.publish.session import Encoder
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests.controller.telemetry.wire_client import properties_of
from tests.support.mosquitto import Broker

CLUSTER = "home"
PEERS = 4
REPORT_EVERY_S = 10.0
_CONTEXT = get_context("spawn")


def report(boot_ms: int) -> pb.Report:
    """A report of an agent on a board with two interfaces."""
    report = pb.Report(timing=pb.Timing(measured_boot_ms=boot_ms))
    for name in ("cpu", "memory", "disk", "network", "temperature"):
        report.collectors.add(name=name, outcome=pb.CollectorRun.OK, duration_us=150)
    cpu = pb.Cpu(
        busy_percent=12.5,
        load_1m=0.52,
        cores=4,
        frequency_mhz=1500.0,
        throttled=False,
        under_voltage=False,
    )
    memory = pb.Memory(total_bytes=4_000_000_000, available_bytes=2_500_000_000)
    disk = pb.Disk(read_bytes_per_s=10_240.5, written_bytes_per_s=20_480.7)
    network = [
        pb.NetworkInterface(
            name=name,
            packets_sent_per_s=packets_sent,
            packets_received_per_s=packets_received,
            bytes_sent_per_s=bytes_sent,
            bytes_received_per_s=bytes_received,
        )
        for name, packets_sent, packets_received, bytes_sent, bytes_received in (
            ("eth0", 120.3, 80.1, 90_400.6, 45_678.9),
            ("wlan0", 1.5, 2.5, 300.1, 400.2),
        )
    ]
    temperature = pb.Temperature(cpu_celsius=48.3)
    values = pb.Report(cpu=cpu, memory=memory, disk=disk, network=network, temperature=temperature)
    report.MergeFrom(values)
    return report


def birth_of_a_pi(address: str, interval_s: int, boot_ms: int) -> pb.Birth:
    """The birth of an agent on a Raspberry Pi 4."""
    return pb.Birth(
        timing=pb.Timing(measured_boot_ms=boot_ms),
        agent_version="0.1.0",
        hardware_model="Raspberry Pi 4 Model B Rev 1.4",
        architecture="aarch64",
        kernel="6.1.0-rpi7-rpi-v8",
        cores=4,
        memory_bytes=4 << 30,
        address=address,
        interval_s=interval_s,
        probes=["iperf3", "icmp"],
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """How boards report."""

    report_s: float = REPORT_EVERY_S  # seconds between two reports of a board
    # None for boards that only report; otherwise each announces itself, goes offline after so long,
    # and returns `away_s` later with another session of its agent.
    life_s: float | None = None
    away_s: float = 3.0
    rtt_every: int = 6  # reports for one round of pings; 0 for none


@contextmanager
def reporting(
    broker: Broker,
    nodes: Sequence[str] | Mapping[str, str],
    pace: Pace | None = None,
    cluster: str = CLUSTER,
) -> Iterator[Callable[[], int]]:
    """Reports of all nodes (names, or names with addresses) during a block, by default every 10 s,
    and with every sixth report the round trips to four other nodes. Yields a function that counts
    the sent reports."""
    sent = _CONTEXT.Value("Q", 0)
    if not isinstance(nodes, Mapping):
        nodes = {name: address_of(at) for at, name in enumerate(nodes)}
    arguments = (broker, dict(nodes), pace or Pace(), cluster, sent)
    process = _CONTEXT.Process(target=_report_forever, args=arguments, daemon=True)
    process.start()
    try:
        yield lambda: sent.value
    finally:
        process.terminate()
        process.join()


def address_of(at: int) -> str:
    """The address of a board by its number."""
    return f"10.99.{(at + 1) // 250}.{(at + 1) % 250}"


class _Board:
    """The MQTT messages of one node's agent."""

    def __init__(
        self, client: Client, cluster: str, node: str, address: str, at: int, ends_s: float
    ) -> None:
        self._client, self._cluster, self._node, self._at = client, cluster, node, at
        self._address = address
        self._boot_id = os.urandom(16)
        self._session = 0
        self._encoder = Encoder(cluster, node, self._boot_id, 1)
        self.is_away = False
        self.changes_s = ends_s

    def announce(self) -> None:
        """Publish the birth and the status online."""
        birth = birth_of_a_pi(self._address, 1, _now_ms())
        publish(self._client, topics.Kind.BIRTH, self._encoder.sample(birth))
        publish(self._client, topics.Kind.STATUS, self._encoder.status(online=True))

    def change(self, pace: Pace, now_s: float) -> None:
        """Go offline, or return with another session."""
        assert pace.life_s is not None
        self.is_away = not self.is_away
        self.changes_s = now_s + (pace.away_s if self.is_away else pace.life_s)
        if self.is_away:
            publish(self._client, topics.Kind.STATUS, self._encoder.status(online=False))
            return
        self._session += 1
        self._encoder = Encoder(self._cluster, self._node, self._boot_id, 1 + self._session)
        self.announce()

    def report(self, nodes: Sequence[str], with_rtts: bool) -> None:
        """Publish the messages of a turn."""
        publish(self._client, topics.Kind.REPORT, self._encoder.sample(report(_now_ms())))
        if with_rtts:
            round_trips = self._encoder.sample(_rtt_round(nodes, self._at))
            publish(self._client, topics.Kind.RTT, round_trips)


def _report_forever(
    broker: Broker, addresses: dict[str, str], pace: Pace, cluster: str, sent: "Synchronized[int]"
) -> None:
    os.nice(19)  # must not slow down what is measured
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.reconnect_delay_set(1, 1)
    connected = Event()
    client.on_connect = lambda *_: connected.set()
    client.connect(broker.host, broker.port)
    client.loop_start()
    connected.wait()
    begin_s, turn = time.monotonic(), 0
    life_s = math.inf if pace.life_s is None else pace.life_s
    # Their ends are spread over time.
    nodes = list(addresses)
    boards = [
        _Board(client, cluster, node, addresses[node], at, begin_s + life_s * (1 + at / len(nodes)))
        for at, node in enumerate(nodes)
    ]
    while True:
        for at, board in enumerate(boards):
            # Spread over the interval, like boards that were started one by one.
            due_s = begin_s + pace.report_s * (turn + at / len(nodes))
            time.sleep(max(0.0, due_s - time.monotonic()))
            if pace.life_s is not None:
                if connected.is_set():  # also after the broker was away, which forgot them all
                    connected.clear()
                    for each in boards:
                        if not each.is_away:
                            each.announce()
                if time.monotonic() >= board.changes_s:
                    board.change(pace, time.monotonic())
            if not board.is_away:
                board.report(nodes, pace.rtt_every > 0 and turn % pace.rtt_every == 0)
                sent.value += 1
        turn += 1


def _rtt_round(nodes: Sequence[str], at: int) -> pb.RttReport:
    peers = (nodes[(at + step) % len(nodes)] for step in range(1, PEERS + 1))
    rtt_ms = 0.2 + (at % 50) / 10
    rtts = [
        pb.Rtt(peer=peer, method=pb.Rtt.ICMP, sent=5, received=5, rtt_ms=rtt_ms, deviation_ms=0.1)
        for peer in peers
    ]
    return pb.RttReport(timing=pb.Timing(measured_boot_ms=_now_ms()), peers=rtts)


def publish(client: Client, kind: topics.Kind, message: tuple[str, bytes]) -> None:
    """Publish a message of an `Encoder`, as its kind is delivered but for QoS 0."""
    topic, payload = message
    sent = codec.stamp_sent(kind, payload, _now_ms())
    delivery = topics.DELIVERY[kind]
    client.publish(topic, sent, retain=delivery.retain, properties=properties_of(delivery))


def _now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
