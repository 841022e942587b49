"""A controller for up to 10,000 boards, through a real mosquitto.

Each board sends what an agent sends: a report every 10 s, a round of 16 pings every 10 s to the
peers of its lease, and both ends' reports of each bandwidth test. The controller runs as it does in
a cluster: session, ingestor, state, estimates of the round trips, ping leases and bandwidth tests;
only its cluster is in memory. It has one core. The broker and one process that plays all boards
share the rest; the boards share two connections.

The table shows, over a time in which every board has leases and all pairs are stored that the
controller keeps: the CPU share of its process, its memory, the lag of the reports from the board to
the state, how late the event loop wakes up, and the estimates. Then the controller starts again
while the boards go on, and no retained birth may be missing.
"""

import asyncio
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any

import numpy as np
import psutil
from leadline_agent.publish.session import Encoder
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node
from leadline_controller.settings import Settings
from leadline_controller.telemetry.coordinates import RttEstimates
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.wiring import Controller, running
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests.controller.telemetry.wire_client import properties_of
from tests.support.boards import address_of, birth_of_a_pi, report
from tests.support.memory import peak_bytes
from tests.support.memory_cluster import MemoryCluster
from tests.support.mosquitto import Broker, mosquitto
from tests.support.mqtt_packets import connect, packet, send_all, text

CLUSTER = "home"
SIZES = (100, 1_000, 3_000, 10_000)
EVERY_S = 10.0
# Of more boards, it takes longer until all pairs are stored that the controller keeps.
WARM_S, WARM_S_PER_BOARD, MEASURED_S = 30.0, 0.006, 30.0
RESTART_S = 15.0
_SLOTS = 1_000  # of an interval
_TEST_S, _LINK_MBPS = 0.3, 94.0
_CONTEXT = get_context("spawn")
# What the processes of a run share.
_SENT, _LATEST_MS, _CPU_S, _STOP = range(4)


@dataclass(frozen=True)
class Load:
    """What the controller's process needed in a time. CPU in shares of a core, sizes in MB."""

    boards: int
    cpu: float
    rss_mb: float
    peak_mb: float
    reports: int
    lost: int
    refused: dict[str, int]
    lag_ms: tuple[float, float, float]
    loop_ms: tuple[float, float]
    fit_s: float
    fits: int
    pairs: int
    tested: int

    def show(self, generator: float, broker: float, latest_ms: float) -> None:
        lag, loop = self.lag_ms, self.loop_ms
        print(
            f"{self.boards:>7,}{100 * self.cpu:>8.1f}{self.rss_mb:>7.0f}{self.peak_mb:>7.0f}"
            f"{self.reports:>9,}{self.lost:>6}{lag[0]:>8.1f}{lag[1]:>8.1f}{lag[2]:>8.0f}"
            f"{loop[0]:>8.1f}{loop[1]:>8.0f}{self.fit_s:>8.2f}{self.fits:>5}{self.pairs:>9,}"
            f"{self.tested:>8,}{100 * generator:>7.0f}{100 * broker:>7.0f}{latest_ms:>7.0f}"
            f"  {self.refused or ''}",
            flush=True,
        )


HEAD = (
    f"{'':>7}{'CPU %':>8}{'RSS':>7}{'peak':>7}{'':>9}{'':>6}{'lag of reports, ms':>24}"
    f"{'event loop, ms':>16}{'estimates':>13}{'':>9}{'':>8}{'CPU % of':>14}{'late':>7}\n"
    f"{'boards':>7}{'a core':>8}{'MB':>7}{'MB':>7}{'reports':>9}{'lost':>6}{'50th':>8}{'99th':>8}"
    f"{'most':>8}{'99th':>8}{'most':>8}{'s each':>8}{'':>5}{'pairs':>9}{'tested':>8}{'boards':>7}"
    f"{'broker':>7}{'ms':>7}"
)


# The boards.


def boards(broker: Broker, names: Sequence[str], cores: set[int], shared: Any) -> None:
    """Play all boards until the process is terminated."""
    os.sched_setaffinity(0, cores)
    _Boards(broker, names, shared).play()


class _Boards:
    def __init__(self, broker: Broker, names: Sequence[str], shared: Any) -> None:
        self._broker, self._names, self._shared = broker, names, shared
        self._encoders = {name: Encoder(CLUSTER, name, os.urandom(16), 1) for name in names}
        random = np.random.default_rng(0)
        sites = random.normal(size=(max(1, len(names) // 50), 2)) * 20
        # Boards of a site are near each other, and sites are far.
        self._at = sites[random.integers(0, len(sites), len(names))]
        self._access_ms = random.uniform(0.2, 1.0, len(names))
        self._index = {name: at for at, name in enumerate(names)}
        self._noise = random.lognormal(sigma=0.05, size=4096)
        self._peers: dict[str, list[str]] = {}
        self._tests: deque[tuple[float, str, pb.BandwidthLease]] = deque()
        self._report, self._number = report(0), 0
        self._properties = {
            kind: properties_of(topics.DELIVERY[kind]).pack() for kind in topics.Kind
        }

    def play(self) -> None:
        with socket.create_connection((self._broker.host, self._broker.port)) as connection:
            connection.sendall(connect("boards"))
            time.sleep(0.5)
            connection.setblocking(False)
            for start in range(0, len(self._names), 100):
                born = (self._birth(at) for at in range(start, min(start + 100, len(self._names))))
                send_all(connection, b"".join(born))
                time.sleep(0.02)
            leases = Client(CallbackAPIVersion.VERSION2, "boards-leases", protocol=MQTTv5)
            leases.on_message = self._lease
            leases.on_connect = lambda client, *_: client.subscribe(
                topics.subscription(CLUSTER, topics.Kind.LEASE), 0
            )
            leases.connect(self._broker.host, self._broker.port)
            leases.loop_start()
            self._report_for_ever(connection)

    def _report_for_ever(self, connection: socket.socket) -> None:
        begin_s, turn = time.monotonic(), 0
        while True:
            due_s = begin_s + turn * EVERY_S / _SLOTS
            late_s = time.monotonic() - due_s
            if late_s < 0:
                time.sleep(-late_s)
            self._shared[_LATEST_MS] = max(self._shared[_LATEST_MS], 1000 * late_s)
            packets = [self._sent_report(at) for at in self._slot(turn)]
            self._shared[_SENT] += len(packets)
            packets += [self._round(at) for at in self._slot(turn + _SLOTS // 2)]
            while self._tests and self._tests[0][0] <= time.monotonic():
                _, node, lease = self._tests.popleft()
                packets.append(self._tested(node, lease))
            send_all(connection, b"".join(packets))
            self._shared[_CPU_S] = time.process_time()
            turn += 1

    def _slot(self, turn: int) -> range:
        at, count = turn % _SLOTS, len(self._names)
        return range(at * count // _SLOTS, (at + 1) * count // _SLOTS)

    def _birth(self, at: int) -> bytes:
        name = self._names[at]
        birth = birth_of_a_pi(address_of(at), 10, _boot_ms())
        encoder = self._encoders[name]
        return self._packet(topics.Kind.BIRTH, *encoder.sample(birth)) + self._packet(
            topics.Kind.STATUS, *encoder.status(online=True)
        )

    def _sent_report(self, at: int) -> bytes:
        self._report.timing.measured_boot_ms = _boot_ms()
        sample = self._encoders[self._names[at]].sample(self._report)
        return self._packet(topics.Kind.REPORT, *sample)

    def _round(self, at: int) -> bytes:
        node = self._names[at]
        if not (peers := self._peers.get(node)):
            return b""
        others = [self._index[peer] for peer in peers]
        distance = np.sqrt(((self._at[others] - self._at[at]) ** 2).sum(axis=1))
        noise = self._noise[np.random.randint(0, 4096, len(others))]
        rtts_ms = (distance + self._access_ms[others] + self._access_ms[at]) * noise
        rtts = [
            pb.Rtt(peer=peer, method=pb.Rtt.ICMP, sent=2, received=2, rtt_ms=ms, deviation_ms=0.1)
            for peer, ms in zip(peers, rtts_ms.tolist(), strict=True)
        ]
        message = pb.RttReport(timing=pb.Timing(measured_boot_ms=_boot_ms()), peers=rtts)
        return self._packet(topics.Kind.RTT, *self._encoders[node].sample(message))

    def _lease(self, _: Client, __: Any, message: MQTTMessage) -> None:
        lease = pb.Lease.FromString(bytes(message.payload))
        if lease.HasField("ping"):
            self._peers[lease.node] = [peer.node for peer in lease.ping.peers]
        else:
            self._tests.append((time.monotonic() + _TEST_S, lease.node, lease.bandwidth))

    def _tested(self, node: str, lease: pb.BandwidthLease) -> bytes:
        seconds = lease.max_bytes * 8e-6 / _LINK_MBPS
        message = pb.BandwidthReport(
            timing=pb.Timing(measured_boot_ms=_boot_ms()),
            lease_id=lease.lease_id,
            peer=lease.peer.node,
            outcome=pb.BandwidthReport.DONE,
            transferred_bytes=lease.max_bytes,
            duration_ms=round(1000 * seconds) + 5,
        )
        if lease.role == pb.BandwidthLease.SERVER:
            message.bandwidth_mbps = _LINK_MBPS
            message.measured_us = round(0.5e6 * seconds)
        return self._packet(topics.Kind.BANDWIDTH, *self._encoders[node].sample(message))

    def _packet(self, kind: topics.Kind, topic: str, payload: bytes) -> bytes:
        self._number += 1
        payload = codec.stamp_sent(kind, payload, _boot_ms())
        header = 0x32 | topics.DELIVERY[kind].retain
        number = (1 + self._number % 65_535).to_bytes(2, "big")
        return packet(header, text(topic) + number + self._properties[kind] + payload)


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


# The controller.


def control(
    broker: Broker, names: Sequence[str], warm_s: float, core: set[int], results: Connection
) -> None:
    """Run a controller. Sends how long it took until every birth was known, or how many were not
    after RESTART_S; then, unless warm_s is infinite, the Load."""
    os.sched_setaffinity(0, core)
    asyncio.run(_Measured(broker, names).run(warm_s, results))


class _Measured:
    def __init__(self, broker: Broker, names: Sequence[str]) -> None:
        self._names = names
        capacity = {CPU: 4000, MEMORY: 4 << 30, PODS: 110}
        nodes = [
            Node(name, allocatable=capacity, addresses=(address_of(at),))
            for at, name in enumerate(names)
        ]
        settings = Settings(CLUSTER, broker.host, broker.port)
        self._controller = Controller(settings, MemoryCluster(nodes))
        self._telemetry = self._controller.telemetry
        self._lags_ms: list[float] = []
        self._loop_ms: list[float] = []
        self._fits_s: list[float] = []
        store, fit = self._telemetry.report, self._telemetry.estimate_rtts

        def timed_report(
            node: str, stamp: Stamp, reading: Any, clock_ahead_s: float | None = None
        ) -> bool:
            stored = store(node, stamp, reading, clock_ahead_s)
            now_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6
            self._lags_ms.append(now_ms - stamp.measured_boot_ms)
            return stored

        def timed_fit(now_s: float, known: RttEstimates | None = None) -> RttEstimates | None:
            begin_s = time.thread_time()
            found = fit(now_s, known)
            self._fits_s.append(time.thread_time() - begin_s)
            return found

        self._telemetry.report = timed_report  # type: ignore[method-assign]  # it is timed
        self._telemetry.estimate_rtts = timed_fit  # type: ignore[method-assign]  # it is timed

    async def run(self, warm_s: float | None, results: Connection) -> None:
        controller, begin_s = self._controller, time.monotonic()
        async with running(controller.follow(), controller.measure(), self._loop()):
            while (missing := self._missing()) and time.monotonic() < begin_s + RESTART_S:  # noqa: ASYNC110  # a poll
                await asyncio.sleep(0.1)
            results.send((time.monotonic() - begin_s, missing))
            if warm_s is not None:
                await asyncio.sleep(warm_s)
                results.send("warm")
                results.send(await self._load())

    def _missing(self) -> int:
        """Boards that the controller may not probe yet, as it does not know where they are."""
        agents = self._telemetry.agents()
        known = (agents.get(name) for name in self._names)
        return sum(agent is None or not (agent.online and agent.address) for agent in known)

    async def _loop(self) -> None:
        while True:
            begin_s = time.monotonic()
            await asyncio.sleep(0.01)
            self._loop_ms.append(1000 * (time.monotonic() - begin_s) - 10)

    async def _load(self) -> Load:
        telemetry, process = self._telemetry, psutil.Process()
        for each in (self._lags_ms, self._loop_ms, self._fits_s):
            each.clear()
        refused, lost = telemetry.refused.copy(), self._lost()
        begin_s, begin_cpu_s = time.monotonic(), time.process_time()
        await asyncio.sleep(MEASURED_S)
        cpu = (time.process_time() - begin_cpu_s) / (time.monotonic() - begin_s)
        lags, loop = np.array(self._lags_ms), np.array(self._loop_ms)
        now_s = self._controller.clock.now_s()
        known = telemetry.node_links(self._names, now_s)
        return Load(
            boards=len(self._names),
            cpu=cpu,
            rss_mb=process.memory_info().rss / 1e6,
            peak_mb=peak_bytes(os.getpid()) / 1e6,
            reports=len(lags),
            lost=self._lost() - lost,
            refused=dict(telemetry.refused - refused),
            lag_ms=(float(np.median(lags)), float(np.quantile(lags, 0.99)), float(lags.max())),
            loop_ms=(float(np.quantile(loop, 0.99)), float(loop.max())),
            fit_s=float(np.mean(self._fits_s)) if self._fits_s else float("nan"),
            fits=len(self._fits_s),
            pairs=sum(each.rtt_ms is not None for each in telemetry.links(now_s)),
            tested=sum(each.bandwidth is not None for each in known),
        )

    def _lost(self) -> int:
        return sum(self._telemetry.board(name, 0.0).lost for name in self._names)


def _broker_lines(port: int) -> Sequence[str]:
    """As the role `broker` sets it up, without TLS."""
    return (
        *(["user root"] if os.geteuid() == 0 else []),
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "persistence false",
        "log_dest stderr",
        "max_queued_messages 10000",
        "max_queued_bytes 16777216",
        "max_packet_size 262144",
    )


@contextmanager
def _started(target: Any, *arguments: Any) -> Iterator[psutil.Process]:
    process = _CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.join()


def measure(count: int) -> None:
    """Measure one number of boards."""
    cores = sorted(os.sched_getaffinity(0))
    core, others = {cores[0]}, set(cores[1:] or cores)
    names = [f"rpi-{number:05}" for number in range(count)]
    shared: SynchronizedArray[float] = _CONTEXT.Array("d", 4)
    receive, send = _CONTEXT.Pipe(duplex=False)
    with (
        mosquitto(whole=_broker_lines) as broker,
        _started(boards, broker, names, others, shared),
    ):
        os.sched_setaffinity(broker.pid, others)
        mqtt = psutil.Process(broker.pid)
        while shared[_SENT] < 1:
            time.sleep(0.1)
        warm_s = WARM_S + WARM_S_PER_BOARD * count
        with _started(control, broker, names, warm_s, core, send):
            first_s, first_missing = _next(receive, RESTART_S + 30)
            assert _next(receive, warm_s + 60) == "warm"
            shared[_LATEST_MS] = 0.0
            before = shared[_CPU_S], _cpu_s(mqtt), time.monotonic()
            load = _next(receive, MEASURED_S + 60)
            passed_s = time.monotonic() - before[2]
            generator = (shared[_CPU_S] - before[0]) / passed_s
            load.show(generator, (_cpu_s(mqtt) - before[1]) / passed_s, shared[_LATEST_MS])
        with _started(control, broker, names, None, core, send):
            again_s, again_missing = _next(receive, RESTART_S + 30)
    print(
        f"{'':7} births at the first start: {first_missing} missing after {first_s:.1f} s; "
        f"at the second: {again_missing} missing after {again_s:.1f} s",
        flush=True,
    )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _next(results: Connection, limit_s: float) -> Any:
    if not results.poll(limit_s):
        raise TimeoutError(f"the controller sent nothing for {limit_s:g} s")
    return results.recv()


def main(sizes: Sequence[int] = SIZES) -> None:
    """Print a line for each number of boards."""
    print(HEAD)
    for count in sizes:
        measure(count)


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or SIZES)
