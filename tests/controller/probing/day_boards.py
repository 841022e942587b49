"""The boards of a simulated day, their agents, and a network that loses, doubles and delays
messages.

Real: the wire's codec, the agent's encoder, `decode_lease` and the `start_lease` of both probes,
which refuse and queue. Simulated: the clock, which jumps from event to event; the broker; and TCP.

The promise of exclusive tests rests on this: a lease reaches its board within DELIVERY_S or never.
"""

import heapq
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address
from math import ceil, hypot, inf, log2
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from leadline_agent.config import Probe as ProbeCaps
from leadline_agent.lease import BandwidthLease, PingLease, decode_lease
from leadline_agent.probes import iperf3, ping
from leadline_agent.probes.base import ProbeContext
from leadline_agent.probes.iperf3_server import LEAST_MEASURED_S, LEAST_SHARE, leased_bytes
from leadline_agent.publish.session import Encoder
from leadline_controller.probing.budgets import BandwidthBudget, Uplink
from leadline_controller.probing.planning import DELIVERY_S, ProbeLimits
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.state import TimesToLive
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.day_audit import Allowance, Auditor

CLUSTER = "day"
_FIRST_ADDRESS = IPv4Address("10.0.0.1")
_FIRST_WINDOW_BYTES = 14_600
_RETRY_S = 0.3  # the client's, until the server listens
_BEHIND_BACKHAUL = 6
# A round of pings a minute instead of six, because they are not the subject.
PING_RARELY = ProbeLimits(ping_interval_s=60, ping_ttl_s=180)
DEFAULT_BUDGET = BandwidthBudget()
DEFAULT_TTL = TimesToLive()


@dataclass(frozen=True, slots=True)
class Plan:
    """How a day goes. The rates of faults: shares of messages; deaths and departures an hour and
    board; throttlings an hour of the whole cluster; a change of leader every so many seconds."""

    boards: int
    hours: float
    seed: int = 0
    tick_s: float = 0.5
    report_every_s: float = 30.0
    estimate_every_s: float = 60.0
    limits: ProbeLimits = PING_RARELY
    budget: BandwidthBudget = DEFAULT_BUDGET
    ttl: TimesToLive = DEFAULT_TTL
    lost: float = 0.01
    doubled: float = 0.01
    delayed: float = 0.02
    deaths: float = 0.2
    departures: float = 0.05
    clock_steps: float = 0.5
    throttlings: float = 20.0
    leader_every_s: float = 3600.0


class _Iperf3(iperf3.Iperf3):
    """The agent's probe without its thread."""

    def start(self) -> None:
        """The simulation runs the tests."""

    @property
    def lease(self) -> BandwidthLease | None:
        return self._lease

    def finish(self) -> None:
        self._lease = None


class _Ping(ping.Ping):
    def start(self) -> None:
        """The simulation sends the pings."""

    @property
    def lease(self) -> PingLease | None:
        return self._lease

    @property
    def expires_s(self) -> float:
        return self._expires_s


@dataclass(slots=True, eq=False)
class Transfer:
    client: "Board"
    server: "Board"
    lease: BandwidthLease
    begin_s: float
    end_s: float
    moved: int
    half_s: float
    takers: dict[str, float]
    is_over: bool = False

    @property
    def name(self) -> str:
        return f"{self.lease.lease_id} {self.client.name}->{self.server.name}"


@dataclass(slots=True, eq=False)
class Board:
    """A board and its agent. clock_s: its monotonic clock at time 0; wall_s: how far its wall
    clock is off. behind: the declared uplinks between it and the LAN."""

    name: str
    address: str
    mbps: float
    interface_mbps: int
    place: tuple[float, float]
    clock_s: float
    wall_s: float
    behind: frozenset[str] = frozenset()
    full_mbps: float = 0.0
    boot: int = 0
    session: int = 0
    is_member: bool = True
    is_running: bool = False
    since_s: float = 0.0
    is_throttled: bool = False
    encoder: Encoder = field(init=False)
    bandwidth: _Iperf3 = field(init=False)
    pings: _Ping = field(init=False)
    pinged: PingLease | None = None
    transfer: Transfer | None = None
    sent_s: float = 0.0  # when its newest message reached the broker
    leased_s: float = 0.0  # when its newest lease reached it
    clock_set_s: float = -inf
    leases: deque[str] = field(default_factory=lambda: deque(maxlen=16))  # that it accepted


class Boards(ABC):
    """The boards' side of one run. `audit` has the findings, `counts` what happened."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now_s = 0.0
        self.counts: Counter[str] = Counter()
        self.random = Random(plan.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self.retained: dict[str, bytes] = {}
        self._clock_of: Board | None = None
        self._sites: list[str] = []
        self.boards, self.uplinks = self._network()
        self._by_address = {board.address: board for board in self.boards}
        self.by_name = {board.name: board for board in self.boards}
        self.uplinks_of = {uplink.name: uplink for uplink in self.uplinks}
        self.audit = Auditor(
            {board.name: Allowance(plan.budget.link_time_share, plan.budget.bytes_per_day)
             for board in self.boards}
            | {uplink.name: Allowance(
                plan.budget.link_time_share,
                plan.budget.bytes_per_day
                if uplink.bytes_per_day is None
                else uplink.bytes_per_day,
            ) for uplink in self.uplinks}
        )  # fmt: skip

    @abstractmethod
    def ingestors(self) -> list[TelemetryIngestor]:
        """Those of the controllers that receive the boards' messages."""

    # Time.

    def run_events(self, until_s: float) -> None:
        """Let everything happen that is due until then."""
        with self.agents_clock():
            while self._events and self._events[0][0] <= until_s:
                self.now_s, _, event = heapq.heappop(self._events)
                event()

    def at(self, when_s: float, event: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (when_s, self._scheduled, event))

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        self.at(self.now_s + delay_s, event)

    @contextmanager
    def agents_clock(self) -> Iterator[None]:
        """The agents' code reads the clocks of the board that it runs on."""

        def monotonic() -> float:
            assert self._clock_of is not None
            return self.now_s + self._clock_of.clock_s

        def wall() -> float:
            assert self._clock_of is not None
            return self.now_s + self._clock_of.wall_s

        clock = SimpleNamespace(monotonic=monotonic, time=wall)
        with (
            patch.object(iperf3, "time", clock),
            patch.object(ping, "time", clock),
            patch.object(iperf3, "boot_ms", lambda: round(monotonic() * 1000)),
            patch.object(iperf3, "is_installed", lambda: True),
        ):
            yield

    # The network.

    def _network(self) -> tuple[list[Board], tuple[Uplink, ...]]:
        """70 % of the boards are on one LAN. The others are alone behind a metered modem, or on a
        site with an uplink, or behind a radio link each and a backhaul that six of them share."""
        random, plan = self.random, self.plan
        boards: list[Board] = []
        uplinks: list[Uplink] = []
        place = (0.0, 0.0)
        site: tuple[str, ...] = ()
        left, backhaul = plan.boards * 7 // 10, ""
        for at in range(plan.boards):
            if left == 0:
                number = len(self._sites)
                left = (1, random.randint(2, 20), _BEHIND_BACKHAUL)[number % 3]
                left = min(left, plan.boards - at)
                place = (
                    (25.0, 25.0) if left == 1 else (random.uniform(2, 15), random.uniform(2, 15))
                )
                name = ("modem", "site", "backhaul")[number % 3] + f"-{number}"
                backhaul = name if number % 3 == 2 else ""
                site = (name,)
                self._sites.append(name)
                per_day = (20_000_000, None, None, 20_000_000, 0, None)[number % 6]
                members = frozenset(f"n{i:05}" for i in range(at, at + left))
                mbps = random.choice((5.0, 20.0, 50.0))
                uplinks.append(Uplink(name, members, mbps, per_day))
            left -= 1
            name = f"n{at:05}"
            if backhaul:
                site = (backhaul, f"radio-{at}")
                uplinks.append(Uplink(site[1], frozenset({name}), 20.0))
            mbps = random.choices((10.0, 40.0, 100.0, 1000.0), (5, 5, 60, 30))[0]
            boards.append(
                Board(
                    name=name,
                    address=str(_FIRST_ADDRESS + at),
                    mbps=mbps,
                    interface_mbps=max(100, ceil(mbps)),
                    place=place,
                    clock_s=random.uniform(10, 1e6),
                    wall_s=random.uniform(-600, 600),
                    behind=frozenset(site),
                    full_mbps=mbps,
                )
            )
        return boards, tuple(uplinks)

    def _rtt_ms(self, a: Board, b: Board) -> float:
        return 0.4 + hypot(a.place[0] - b.place[0], a.place[1] - b.place[1])

    def _takers(self, client: Board, server: Board) -> dict[str, float]:
        """What a transfer takes, with the true speed of each, Mbit/s."""
        takers = {client.name: client.mbps, server.name: server.mbps}
        for uplink in client.behind ^ server.behind:
            takers[uplink] = self.uplinks_of[uplink].mbps or inf
        return takers

    # Messages.

    def _publish(self, board: Board, kind: topics.Kind, message: Any) -> None:
        """An agent's message, to the broker and on to the controllers. The messages of a board stay
        in order, but a second copy may come later."""
        random, plan = self.random, self.plan
        message.timing.measured_boot_ms = round((self.now_s + board.clock_s) * 1000)
        topic, payload = board.encoder.sample(message)
        if random.random() < plan.lost and kind is not topics.Kind.BIRTH:
            self.counts["messages lost"] += 1
            return
        buffered_s = held_s = late_s = 0.0
        if random.random() < plan.delayed:
            self.counts["messages delayed"] += 1
            late_s = random.expovariate(1 / 5)
            if (how := random.random()) < 0.6:
                buffered_s, late_s = (late_s, 0.0) if how < 0.3 else (0.0, 0.0)
                held_s = 0.0 if buffered_s else random.expovariate(1 / 5)
        payload = codec.stamp_sent(
            kind, payload, round((self.now_s + buffered_s + board.clock_s) * 1000)
        )
        arrival_s = max(self.now_s + buffered_s + held_s + late_s, board.sent_s)
        board.sent_s = arrival_s
        deliver = partial(self._receive, topic, payload, kind, int(held_s))
        if arrival_s > self.now_s:
            self.at(arrival_s, deliver)
        else:
            deliver()
        if random.random() < plan.doubled:
            self.counts["messages doubled"] += 1
            self.at(arrival_s + random.expovariate(1 / 5), deliver)

    def _receive(self, topic: str, payload: bytes, kind: topics.Kind, held_s: int) -> None:
        if topics.DELIVERY[kind].retain:
            self.retained[topic] = payload
        for ingestor in self.ingestors():
            ingestor.ingest(topic, payload, topics.SCHEMA, self.now_s - held_s, retained=False)

    def _status(self, board: Board, *, online: bool) -> None:
        self._receive(*board.encoder.status(online=online), topics.Kind.STATUS, 0)

    def send(self, lease: pb.Lease) -> None:
        """A controller's lease, to its board: within DELIVERY_S or never."""
        random, plan = self.random, self.plan
        self.counts["leases"] += 1
        if random.random() < plan.lost:
            self.counts["leases lost"] += 1
            return
        board, payload = self.by_name[lease.node], codec.encode(lease)
        is_late = random.random() < plan.delayed
        arrival_s = self.now_s + (random.uniform(0, DELIVERY_S) if is_late else 0.0)
        board.leased_s = arrival_s = max(arrival_s, board.leased_s)
        deliver = partial(self._lease, board, payload)
        self.at(arrival_s, deliver)
        if random.random() < plan.doubled:
            self.counts["leases doubled"] += 1
            self.at(random.uniform(arrival_s, self.now_s + DELIVERY_S), deliver)

    # Agents.

    def start_agent(self, board: Board, *, rebooted: bool) -> None:
        board.session += 1
        if rebooted:
            board.boot += 1
            board.clock_s = 20.0 - self.now_s
        self._clock_of = board
        boot_id = self.plan.seed.to_bytes(4) + board.boot.to_bytes(4) + bytes(8)
        board.encoder = Encoder(CLUSTER, board.name, boot_id, board.session)
        context = ProbeContext(
            limits=ProbeCaps("", 32, 1 << 28, 10_000),
            own_address=lambda: board.address,
            broker_rtts_ms=list,
            report=lambda result: self._publish(board, topics.Kind.BANDWIDTH, result),
            watch_hindrances=lambda: list,
        )
        board.bandwidth = _Iperf3(context)
        board.pings, board.pinged = _Ping(context, permitted=lambda: True), None
        board.is_running, board.since_s = True, self.now_s
        self._status(board, online=True)
        birth = pb.Birth(address=board.address, probes=["icmp", "iperf3"])
        self._publish(board, topics.Kind.BIRTH, birth)

    def _lease(self, board: Board, payload: bytes) -> None:
        if not board.is_running:
            return
        self._clock_of = board
        topic = topics.topic(CLUSTER, board.name, topics.Kind.LEASE)
        lease = decode_lease(topic, payload, topics.SCHEMA, self.now_s + board.clock_s)
        if isinstance(lease, PingLease):
            board.pings.start_lease(lease)
            if board.pings.lease is not board.pinged:
                board.pinged = board.pings.lease
                self._ping(board, board.pinged)
            return
        earlier = board.bandwidth.lease
        board.bandwidth.start_lease(lease)
        if earlier and earlier.lease_id != lease.lease_id and lease.lease_id not in board.leases:
            leaders = [each.lease_id.partition("-")[0] for each in (lease, earlier)]
            conflicts = self.audit.conflicts if leaders[0] != leaders[1] else self.audit.early
            conflicts.append(
                f"{self.now_s:.1f} s: {board.name}: {lease.lease_id} during {earlier.lease_id}"
            )
        if board.bandwidth.lease is lease:
            board.leases.append(lease.lease_id)
            left_s = lease.expires_s - board.clock_s - self.now_s
            self.after(left_s, partial(self._expire, board, lease))
            self._connect(board, lease)

    def report(self, board: Board) -> None:
        if board.is_running:
            interface = pb.NetworkInterface(name="eth0", link_mbps=board.interface_mbps)
            self._publish(board, topics.Kind.REPORT, pb.Report(network=[interface]))
        self.after(self.plan.report_every_s, partial(self.report, board))

    def _ping(self, board: Board, lease: PingLease | None) -> None:
        """One round of pings, and the next one, until another lease comes."""
        if not board.is_running or lease is None or board.pings.lease is not lease:
            return
        if self.now_s + board.clock_s >= board.pings.expires_s:
            board.pinged = None
            board.pings._lease = None
            return
        report = pb.RttReport()
        for peer in lease.peers:
            there = self._by_address[peer.address]
            if there.is_running:
                noise = self.random.gauss(1.0, 0.07)
                rtt_ms = self._rtt_ms(board, there) * max(noise, 0.2)
                report.peers.add(
                    peer=peer.node, method=pb.Rtt.ICMP, sent=2, received=2, rtt_ms=rtt_ms,
                    deviation_ms=0.0,
                )  # fmt: skip
        if report.peers:
            self._publish(board, topics.Kind.RTT, report)
        self.after(max(lease.interval_s, 1), partial(self._ping, board, lease))

    def stop_agent(self, board: Board) -> None:
        board.is_running = False
        if transfer := board.transfer:
            passed = (self.now_s - transfer.begin_s) / (transfer.end_s - transfer.begin_s)
            self._stop_transfer(transfer, transfer.moved * passed)
            other = transfer.server if board is transfer.client else transfer.client
            self._fail(other, "the other end is gone")
        will = partial(self._status, board, online=False)
        encoder = board.encoder

        def publish_will() -> None:
            if not board.is_running and board.encoder is encoder:
                will()

        self.after(self.random.choice((0.0, 20.0, 45.0)), publish_will)

    # Bandwidth tests: as iperf3's two ends, which know addresses and not lease ids.

    def _connect(self, board: Board, lease: BandwidthLease) -> None:
        """The other end may be waiting."""
        peer = self._by_address[lease.peer.address]
        if not _fits(board, peer):
            return
        is_client = lease.role == pb.BandwidthLease.CLIENT
        client, server = (board, peer) if is_client else (peer, board)
        delay_s = 0.01 if is_client else self.random.uniform(0.0, _RETRY_S)
        leases = (client.bandwidth.lease, server.bandwidth.lease)
        self.after(delay_s, partial(self._begin, client, server, leases))

    def _begin(self, client: Board, server: Board, leases: tuple[Any, Any]) -> None:
        if (client.bandwidth.lease, server.bandwidth.lease) != leases or not _fits(client, server):
            return
        lease, rtt_s = client.bandwidth.lease, self._rtt_ms(client, server) / 1000
        assert lease is not None
        takers = self._takers(client, server)
        mbps, wanted = min(takers.values()), leased_bytes(lease)
        half_s = max(wanted / 2 * 8e-6 / mbps, rtt_s)
        whole_s = 2 * half_s + max(0.0, log2(wanted / _FIRST_WINDOW_BYTES)) * rtt_s
        share = min(1.0, lease.duration_ms / 1000 / whole_s)
        end_s = self.now_s + whole_s * share
        moved = int(wanted * share)
        transfer = Transfer(client, server, lease, self.now_s, end_s, moved, half_s * share, takers)
        client.transfer = server.transfer = transfer
        self.audit.begin(takers, transfer.name, self.now_s)
        self.at(end_s, partial(self._end, transfer))

    def _end(self, transfer: Transfer) -> None:
        if transfer.is_over:
            return
        self._stop_transfer(transfer, transfer.moved)
        is_cut_off = transfer.moved < LEAST_SHARE * leased_bytes(transfer.lease)
        for board in (transfer.client, transfer.server):
            lease = board.bandwidth.lease
            assert lease is not None
            if is_cut_off:
                self._fail(board, f"cut off: {transfer.moved} bytes")
            elif board is transfer.server and board.clock_set_s >= transfer.begin_s:
                self._fail(board, "the clock was set during the test")
            else:
                self._finish(board, self._result(board, lease, transfer))

    def _result(
        self, board: Board, lease: BandwidthLease, transfer: Transfer
    ) -> pb.BandwidthReport:
        whole_s = transfer.end_s - transfer.begin_s
        report = pb.BandwidthReport(
            lease_id=lease.lease_id,
            peer=lease.peer.node,
            outcome=pb.BandwidthReport.DONE,
            transferred_bytes=transfer.moved,
            duration_ms=max(1, ceil(whole_s * 1000)),
        )
        if board is transfer.server:
            is_timed = transfer.half_s >= LEAST_MEASURED_S
            measured_s = transfer.half_s if is_timed else whole_s
            noise = min(max(self.random.gauss(1.0, 0.01), 0.97), 1.03)
            report.bandwidth_mbps = transfer.moved / 2 * 8e-6 / measured_s * noise
            report.lower_bound = not is_timed
            report.measured_us = round(measured_s * 1e6)
        return report

    def _stop_transfer(self, transfer: Transfer, moved: float) -> None:
        transfer.is_over = True
        transfer.client.transfer = transfer.server.transfer = None
        self.audit.end(transfer.takers, transfer.name, moved, self.now_s)

    def _expire(self, board: Board, lease: BandwidthLease) -> None:
        if board.is_running and board.bandwidth.lease is lease and board.transfer is None:
            self._fail(board, "the other end did not come before the lease expired")

    def _fail(self, board: Board, why: str) -> None:
        lease = board.bandwidth.lease
        assert lease is not None
        self.counts[f"tests failed: {why.partition(':')[0]}"] += 1
        self._clock_of = board
        self._finish(board, iperf3.unmeasured(lease, pb.BandwidthReport.FAILED, why))

    def _finish(self, board: Board, report: pb.BandwidthReport) -> None:
        board.bandwidth.finish()
        self._publish(board, topics.Kind.BANDWIDTH, report)


def _fits(board: Board, peer: Board) -> bool:
    """Whether both ends would run a test with each other now."""
    a, b = board.bandwidth.lease, peer.bandwidth.lease
    return (
        board.is_running
        and peer.is_running
        and a is not None
        and b is not None
        and board.transfer is None
        and peer.transfer is None
        and a.role != b.role
        and (a.peer.address, b.peer.address) == (peer.address, board.address)
        and (a.port, leased_bytes(a)) == (b.port, leased_bytes(b))
    )
