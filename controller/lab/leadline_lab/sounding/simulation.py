"""Runs the real probe scheduler, ingestor and estimates on a network that a file describes.

No packet is sent: simulated boards obey the leases and report what the file says, with its noise.
So users can see, before they buy or cable anything, how well and how soon Leadline would know their
network, and tests can compare what it believes with the truth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import combinations
from math import ceil, log2
from typing import Any

import numpy as np
from leadline_controller.framework.model import Node
from leadline_controller.probing.budgets import Uplink
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.link_status import LinkStatus
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_wire import topics
from leadline_wire.codec import encode
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_lab.sounding.simulated_network import Change, SimulatedNetwork

_CLUSTER = "sounding"
_TICK_S = 0.5
_REPORT_EVERY_S = 30.0
_ESTIMATE_EVERY_S = 10.0
_FIRST_ADDRESS = IPv4Address("10.0.0.1")
# A value counts as known when it is within this share of the truth.
_NOTICED_SHARE = 0.25
_COVERED_SHARE = 0.9
_FIRST_WINDOW_BYTES = 14_600  # ten packets (RFC 6928)


@dataclass(slots=True)
class _Board:
    """A simulated agent: it obeys its leases and numbers its messages."""

    name: str
    at: int
    messages: int = 0
    ping: pb.PingLease | None = None
    ping_until_s: float = 0.0
    next_round_s: float = 0.0
    pings: int = 0
    test_bytes: int = 0
    test_s: float = 0.0


@dataclass(slots=True)
class _Test:
    """A bandwidth test in progress."""

    client: int
    server: int
    lease: pb.BandwidthLease
    duration_s: float
    end_s: float
    transferred_bytes: int
    measured_s: float  # the time of the second half of its bytes
    link_s: tuple[float, float]  # what it takes of the client's link and of the server's


class Sounding:
    """One run of `network`, whose changes take effect when they are due."""

    def __init__(
        self, network: SimulatedNetwork, seed: int = 0, limits: ProbeLimits | None = None
    ) -> None:
        self.network = network
        self.now_s = 0.0
        self.telemetry = TelemetryState(TimesToLive())
        self._random = np.random.default_rng(seed)
        self._rtt_ms, self._link_mbps = network.rtt_ms.copy(), network.link_mbps.copy()
        self._index = {name: at for at, name in enumerate(network.names)}
        self._boards = [_Board(name, at) for name, at in self._index.items()]
        self.leases: list[pb.Lease] = []  # the scheduler's, until the boards take them
        self._servers: dict[str, int] = {}  # lease id -> the board that serves the test
        self._tests: list[_Test] = []
        self._noticed_s: dict[int, float] = {}
        self.nodes = {
            name: Node(name, allocatable={}, addresses=(str(_FIRST_ADDRESS + at),))
            for name, at in self._index.items()
        }
        uplinks = tuple(
            Uplink(each.name, frozenset(network.names[at] for at in each.nodes), each.mbps)
            for each in network.uplinks
        )
        self._scheduler = ProbeScheduler(
            self.telemetry,
            self.leases.append,
            ProbeSettings(limits or ProbeLimits(), uplinks=uplinks),
            lambda: self.nodes,
        )
        self._ingestor = TelemetryIngestor(_CLUSTER, self.telemetry, self._scheduler)

    def use(self, telemetry: TelemetryState, scheduler: ProbeScheduler) -> None:
        """Let those of a controller know and lease, from the start. It adds its leases itself."""
        self.telemetry, self._scheduler = telemetry, scheduler
        self._ingestor = TelemetryIngestor(_CLUSTER, telemetry, scheduler)

    def run(self, minutes: float, on_second: Callable[[float], None] = lambda _: None) -> None:
        """Let this much time pass. on_second: called with the time, s, once a simulated second."""
        if self.now_s == 0.0:
            self.telemetry.set_members(frozenset(self._index), 0.0)
            for board in self._boards:
                self._birth(board)
        pending = sorted(
            (c for c in self.network.changes if c.at_s >= self.now_s), key=lambda each: each.at_s
        )
        end_s, estimated_s = self.now_s + minutes * 60, self.now_s
        while self.now_s < end_s:
            while pending and pending[0].at_s <= self.now_s:
                self._apply(pending.pop(0))
            self.telemetry.set_members(frozenset(self._index), self.now_s)
            self._scheduler.tick(self.now_s)
            self._deliver()
            for board in self._boards:
                if self.now_s % _REPORT_EVERY_S == 0.0:
                    self._report(board)
                self._ping(board)
            self._end_tests()
            if self.now_s - estimated_s >= _ESTIMATE_EVERY_S:
                self.telemetry.estimate_rtts(self.now_s)
                estimated_s = self.now_s
            if self.now_s % 1.0 == 0.0:
                self._notice()
                on_second(self.now_s)
            self.now_s += _TICK_S

    def document(self) -> dict[str, Any]:
        """What is believed beside the truth: pairs, nodes, changes and a summary."""
        pairs = self._pairs()
        return {
            "pairs": pairs,
            "nodes": [self._node(board) for board in self._boards],
            "changes": [
                {"at_s": each.at_s, "noticed_after_s": self._noticed_s.get(at)}
                for at, each in enumerate(self.network.changes)
            ],
            "summary": self._summary(pairs),
        }

    def _pairs(self) -> list[dict[str, Any]]:
        names = self.network.names
        known = {(x.a, x.b): x for x in self.telemetry.links(self.now_s, names)}
        pairs = []
        for a, b in combinations(range(len(names)), 2):
            ends = (names[a], names[b]) if names[a] < names[b] else (names[b], names[a])
            link = known.get(ends, LinkStatus(*ends))
            pairs.append(
                {
                    "a": names[a],
                    "b": names[b],
                    "rtt_ms": link.rtt_ms,
                    "error_ms": link.rtt_error_ms,
                    "source": link.rtt_source or "unknown",
                    "true_rtt_ms": float(self._rtt_ms[a, b]),
                }
            )
        return pairs

    def _node(self, board: _Board) -> dict[str, Any]:
        (link,) = self.telemetry.node_links((board.name,), self.now_s)
        known = link.bandwidth
        minutes = max(self.now_s, _TICK_S) / 60
        return {
            "name": board.name,
            "bandwidth_mbps": None if known is None else known.mbps,
            "bound": None if known is None else "at-least" if known.lower_bound else "exact",
            "true_mbps": float(self._link_mbps[board.at]),
            "pings_per_minute": board.pings / minutes,
            "test_bytes": board.test_bytes,
            "link_time_share": board.test_s / (minutes * 60),
        }

    def _summary(self, pairs: list[dict[str, Any]]) -> dict[str, Any]:
        known = [pair for pair in pairs if pair["rtt_ms"] is not None]
        errors = [abs(x["rtt_ms"] - x["true_rtt_ms"]) / x["true_rtt_ms"] for x in known]
        covered = [abs(x["rtt_ms"] - x["true_rtt_ms"]) <= (x["error_ms"] or 0.0) for x in known]
        sources = sorted({pair["source"] for pair in pairs})
        return {
            "minutes": self.now_s / 60,
            "nodes": len(self._boards),
            "pairs": len(pairs),
            "pairs_by_source": {
                source: sum(pair["source"] == source for pair in pairs) for source in sources
            },
            "median_relative_error": float(np.median(errors)) if errors else None,
            "p90_relative_error": float(np.quantile(errors, _COVERED_SHARE)) if errors else None,
            "within_error_share": float(np.mean(covered)) if covered else None,
            "nearest_rtt_ratio": self._nearest_ratio(pairs),
        }

    def _nearest_ratio(self, pairs: list[dict[str, Any]]) -> float | None:
        """The mean true round trip from each node to the one that is believed nearest, divided by
        that to the one that is."""
        believed = np.full(self._rtt_ms.shape, np.inf)
        for pair in pairs:
            if pair["rtt_ms"] is not None:
                a, b = self._index[pair["a"]], self._index[pair["b"]]
                believed[a, b] = believed[b, a] = pair["rtt_ms"]
        rows = np.flatnonzero(np.isfinite(believed).any(axis=1))
        if not rows.size:
            return None
        true = self._rtt_ms.copy()
        np.fill_diagonal(true, np.inf)
        chosen = true[rows, believed[rows].argmin(axis=1)]
        return float(chosen.mean() / true[rows].min(axis=1).mean())

    def _birth(self, board: _Board) -> None:
        birth = pb.Birth(address=str(_FIRST_ADDRESS + board.at), probes=["icmp", "iperf3"])
        self._publish(board, topics.Kind.BIRTH, birth)

    def _report(self, board: _Board) -> None:
        """The interface has the speed that the link has at the start."""
        interface = pb.NetworkInterface(
            name="eth0", link_mbps=ceil(self.network.link_mbps[board.at]), bytes_sent_per_s=0.0
        )
        self._publish(board, topics.Kind.REPORT, pb.Report(network=[interface]))

    def _publish(self, board: _Board, kind: topics.Kind, message: Any) -> None:
        board.messages += 1
        message.origin.CopyFrom(
            pb.Origin(node=board.name, boot_id=bytes(16), session=1, sequence=board.messages)
        )
        boot_ms = round(self.now_s * 1000) + board.messages
        message.timing.CopyFrom(pb.Timing(measured_boot_ms=boot_ms, sent_boot_ms=boot_ms))
        topic = topics.topic(_CLUSTER, board.name, kind)
        self._ingestor.ingest(topic, encode(message), topics.SCHEMA, self.now_s, retained=False)

    def _deliver(self) -> None:
        leases, self.leases[:] = list(self.leases), []
        for lease in leases:
            board = self._boards[self._index[lease.node]]
            if lease.HasField("ping"):
                if board.ping is None or lease.ping.peers != board.ping.peers:
                    board.ping, board.next_round_s = lease.ping, self.now_s
                board.ping_until_s = self.now_s + lease.ping.ttl_s
            elif lease.bandwidth.role == pb.BandwidthLease.SERVER:
                self._servers[lease.bandwidth.lease_id] = board.at
            else:
                self._start_test(board.at, lease.bandwidth)

    def _ping(self, board: _Board) -> None:
        if board.ping is None or not board.next_round_s <= self.now_s <= board.ping_until_s:
            return
        board.next_round_s = self.now_s + board.ping.interval_s
        peers = [self._index[peer.node] for peer in board.ping.peers]
        shape = (len(peers), board.ping.count)
        board.pings += shape[0] * shape[1]
        noise = np.maximum(1 + self.network.noise * self._random.standard_normal(shape), 0.05)
        lost = self._random.random(shape) < self.network.loss
        replies = np.where(lost, np.nan, self._rtt_ms[board.at, peers][:, np.newaxis] * noise)
        report = pb.RttReport()
        for peer, row in zip(peers, replies, strict=True):
            known = row[~np.isnan(row)]
            rtt = report.peers.add(
                peer=self.network.names[peer],
                sent=shape[1],
                received=len(known),
                method=pb.Rtt.ICMP,
            )
            if len(known):
                rtt.rtt_ms, rtt.deviation_ms = float(np.median(known)), float(known.std())
        self._publish(board, topics.Kind.RTT, report)

    def _start_test(self, client: int, lease: pb.BandwidthLease) -> None:
        """The path carries the bytes at its speed, and TCP needs a round trip for each doubling."""
        server = self._servers.pop(lease.lease_id, None)
        if server is None:
            return
        mbps = float(min(self._link_mbps[client], self._link_mbps[server]))
        for uplink in self.network.uplinks:
            if (client in uplink.nodes) != (server in uplink.nodes):
                mbps = min(mbps, uplink.mbps)
        rtt_s = float(self._rtt_ms[client, server]) / 1000
        half_s = max(lease.max_bytes / 2 * 8e-6 / mbps, rtt_s)
        doublings = max(0.0, log2(lease.max_bytes / _FIRST_WINDOW_BYTES))
        whole_s = 2 * half_s + doublings * rtt_s
        share = min(1.0, lease.duration_ms / 1000 / whole_s)
        megabits = round(lease.max_bytes * share) * 8e-6
        self._tests.append(
            _Test(
                client,
                server,
                lease,
                whole_s * share,
                self.now_s + whole_s * share,
                round(lease.max_bytes * share),
                half_s * share,
                (
                    megabits / float(self._link_mbps[client]),
                    megabits / float(self._link_mbps[server]),
                ),
            )
        )

    def _end_tests(self) -> None:
        ended = [test for test in self._tests if test.end_s <= self.now_s]
        self._tests = [test for test in self._tests if test.end_s > self.now_s]
        for test in ended:
            for end, link_s in zip((test.client, test.server), test.link_s, strict=True):
                self._boards[end].test_bytes += test.transferred_bytes
                self._boards[end].test_s += link_s
            for end, peer in ((test.client, test.server), (test.server, test.client)):
                report = pb.BandwidthReport(
                    lease_id=test.lease.lease_id,
                    peer=self.network.names[peer],
                    outcome=pb.BandwidthReport.DONE,
                    transferred_bytes=test.transferred_bytes,
                    duration_ms=ceil(test.duration_s * 1000),
                )
                if end == test.server:
                    report.bandwidth_mbps = test.transferred_bytes / 2 * 8e-6 / test.measured_s
                    report.measured_us = round(test.measured_s * 1e6)
                self._publish(self._boards[end], topics.Kind.BANDWIDTH, report)

    def _apply(self, change: Change) -> None:
        if change.b is None:
            self._link_mbps[change.a] = change.value
        else:
            self._rtt_ms[change.a, change.b] = self._rtt_ms[change.b, change.a] = change.value

    def _notice(self) -> None:
        """Note which changes are believed by now."""
        for at, change in enumerate(self.network.changes):
            if at in self._noticed_s or change.at_s > self.now_s:
                continue
            believed = self._believed(change)
            if believed is not None and abs(believed / change.value - 1) <= _NOTICED_SHARE:
                self._noticed_s[at] = self.now_s - change.at_s

    def _believed(self, change: Change) -> float | None:
        node = self.network.names[change.a]
        if change.b is None:
            known = self.telemetry.board(node, self.now_s).values.get("bandwidth_mbps")
            return None if known is None else known[0]
        ends = {node, self.network.names[change.b]}
        links = self.telemetry.links(self.now_s, (node,))
        return next((x.rtt_ms for x in links if {x.a, x.b} == ends), None)
