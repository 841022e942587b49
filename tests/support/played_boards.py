"""Boards of one played network that report over a real broker and follow their leases as agents do,
so that a controller knows links and bandwidths without a network to measure."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from random import Random
from sched import scheduler
from typing import Any

from leadline_agent.clock import boot_ms
from leadline_agent.lease import BandwidthLease, Lease, PingLease, decode_lease
from leadline_agent.probes.iperf3 import unmeasured
from leadline_agent.probes.iperf3_server import leased_bytes
from leadline_agent.probes.ping import summary
from leadline_agent.publish.session import Encoder
from leadline_wire import topics
from leadline_wire.v1 import telemetry_pb2 as pb
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.boards import CLUSTER, birth_of_a_pi, publish, report
from tests.support.mosquitto import Broker

REPORT_S = 5
LINK_MBPS = 100
# (model, cores, memory, Mbit/s): by Ethernet, over an old switch, by Wi-Fi, by a weak Wi-Fi.
KINDS = (
    ("Raspberry Pi 5 Model B Rev 1.0", 4, 8 << 30, 94.0),
    ("Raspberry Pi 4 Model B Rev 1.4", 4, 4 << 30, 94.0),
    ("Raspberry Pi 4 Model B Rev 1.1", 4, 2 << 30, 60.0),
    ("Raspberry Pi 3 Model B Rev 1.2", 4, 1 << 30, 35.0),
    ("Raspberry Pi Zero 2 W Rev 1.0", 4, 512 << 20, 12.0),
)
Sample = pb.Birth | pb.Report | pb.RttReport | pb.BandwidthReport
Publish = Callable[[topics.Kind, tuple[str, bytes]], None]


class _Board:
    """One board and its agent. The network is a plane: a round trip takes 0.3 ms and 1 ms for each
    unit of distance, and a transfer has the speed of the slower board."""

    def __init__(self, at: int, name: str, address: str, events: scheduler, publish: Publish):
        self.name = name
        self._address = address
        self._random = random = Random(at)
        self._place = (random.uniform(0, 8), random.uniform(0, 5))
        self._model, self._cores, self._memory, self._mbps = KINDS[at % len(KINDS)]
        self._busy_percent, self._free = random.uniform(5, 80), random.uniform(0.2, 0.8)
        self._events, self._publish = events, publish
        self._encoder = Encoder(CLUSTER, name, os.urandom(16), 1)
        self._pings: PingLease | None = None

    def announce(self) -> None:
        birth = birth_of_a_pi(self._address, REPORT_S, boot_ms())
        birth.hardware_model, birth.cores = self._model, self._cores
        birth.memory_bytes = self._memory
        self._send(topics.Kind.BIRTH, birth)
        self._publish(topics.Kind.STATUS, self._encoder.status(online=True))

    def report(self) -> None:
        """Send a report now, and each REPORT_S."""
        self._events.enter(REPORT_S, 0, self.report)
        message = report(boot_ms())
        wave = math.sin(time.monotonic() / 60 + self._random.random() + self._place[0])
        busy = max(0.0, min(100.0, self._busy_percent + 10 * wave))
        message.cpu.busy_percent = busy
        message.cpu.cores, message.cpu.load_1m = self._cores, busy / 100 * self._cores
        message.memory.total_bytes = self._memory
        message.memory.available_bytes = round(self._memory * self._free)
        message.temperature.cpu_celsius = 40 + busy * 0.35
        message.network[0].link_mbps = LINK_MBPS
        self._send(topics.Kind.REPORT, message)

    def take(self, lease: Lease, boards: Mapping[str, "_Board"]) -> None:
        """Follow a lease: pings until it ends or another comes, or one end of a bandwidth test."""
        if isinstance(lease, PingLease):
            is_pinging, self._pings = self._pings is not None, lease
            if not is_pinging:
                self._ping(boards)
            return
        mbps = min(self._mbps, boards[lease.peer.node]._mbps)
        seconds = min(leased_bytes(lease) * 8e-6 / mbps, lease.duration_ms / 1000)
        self._events.enter(seconds, 0, self._end_transfer, (lease, mbps, seconds))

    def _ping(self, boards: Mapping[str, "_Board"]) -> None:
        lease = self._pings
        if lease is None or time.monotonic() >= lease.expires_s:
            self._pings = None
            return
        message = pb.RttReport(timing=pb.Timing(measured_boot_ms=boot_ms()))
        for peer in lease.peers:
            distance = math.dist(self._place, boards[peer.node]._place)
            times_ms = [0.3 + distance * self._random.uniform(1.0, 1.1) for _ in range(lease.count)]
            message.peers.append(summary(peer.node, pb.Rtt.ICMP, times_ms))
        self._send(topics.Kind.RTT, message)
        self._events.enter(max(lease.interval_s, 1), 0, self._ping, (boards,))

    def _end_transfer(self, lease: BandwidthLease, mbps: float, seconds: float) -> None:
        message = unmeasured(lease, pb.BandwidthReport.DONE)
        message.transferred_bytes = round(mbps * 125_000 * seconds)
        message.duration_ms = max(1, round(seconds * 1000))
        if lease.role == pb.BandwidthLease.SERVER:
            message.bandwidth_mbps = mbps * self._random.uniform(0.97, 1.0)
            message.measured_us = round(seconds / 2 * 1e6)
            message.steady = True
        self._send(topics.Kind.BANDWIDTH, message)

    def _send(self, kind: topics.Kind, message: Sample) -> None:
        self._publish(kind, self._encoder.sample(message))


@contextmanager
def playing(broker: Broker, addresses: Mapping[str, str]) -> Iterator[None]:
    """Play boards of these names at these addresses during a block, in a thread."""
    events, inbox = scheduler(time.monotonic), SimpleQueue[tuple[str, Lease] | None]()
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    boards = {
        name: _Board(at, name, address, events, partial(publish, client))
        for at, (name, address) in enumerate(addresses.items())
    }

    def on_message(_: Client, __: Any, message: MQTTMessage) -> None:
        schema = dict(getattr(message.properties, "UserProperty", ()))["schema"]
        lease = decode_lease(message.topic, bytes(message.payload), schema, time.monotonic())
        inbox.put((topics.parse(message.topic).node, lease))

    def play() -> None:
        for at, board in enumerate(boards.values()):
            board.announce()
            events.enter(REPORT_S * at / len(boards), 0, board.report)
        while True:
            try:
                received = inbox.get(timeout=events.run(blocking=False))
            except Empty:
                continue
            if received is None:
                return
            name, lease = received
            boards[name].take(lease, boards)

    subscribed = threading.Event()
    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect(broker.host, broker.port)
    client.loop_start()
    client.subscribe(topics.subscription(CLUSTER, topics.Kind.LEASE), qos=1)
    subscribed.wait()
    thread = threading.Thread(target=play, name="boards")
    thread.start()
    try:
        yield
    finally:
        inbox.put(None)
        thread.join()
        client.disconnect()
        client.loop_stop()
