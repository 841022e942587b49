"""Sends the planned probe leases and checks the results.

The event loop calls it periodically and the MQTT thread at births and results, hence the lock.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from math import inf
from statistics import median_low
from threading import Lock

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.framework.model import Node
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import BandwidthBudget, PlannedTest, Uplink
from leadline_controller.probing.grants import BandwidthGrants, PingGrants
from leadline_controller.probing.planning import (
    CHOSEN_PEERS,
    DELIVERY_S,
    MAX_ROW_PAIRS,
    MAX_ROW_PEERS,
    MAX_ROWS,
    NEAR_PEERS,
    PingRing,
    ProbeLimits,
)
from leadline_controller.probing.spending import Account, AccountStatus
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.state import BANDWIDTHS, TelemetryState

log = logging.getLogger(__name__)

_WARN_EVERY_S = 600.0
_PING_LEASES_PER_TICK = 100
_JUDGE_EVERY_S = 10.0
_ROUND_S = 1.0  # how long a round of pings takes
# The search for near nodes is O(n) for each of n nodes; beyond this many, only some get one a turn.
_NEAR_NODES = 2000
# Planning tests takes 20 us for a node, while the event loop waits. Of more nodes than this, each
# tick plans for those of which a test is due, with so many others as peers and some of each
# one's neighbours behind its uplinks; and whether a board may be probed is checked less often.
_PLANNED_AT_ONCE = 500
_PEERS_AT_ONCE = 100
_CHECK_EVERY_S = 0.001  # for each board
_URGENT_S = 60.0  # after a contradiction


@dataclass(frozen=True, slots=True)
class ProbingStatus:
    """What probing costs each node and uplink, sorted by name, and the tests in progress."""

    nodes: tuple[AccountStatus, ...] = ()
    uplinks: tuple[AccountStatus, ...] = ()
    running: tuple[PlannedTest, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """What to probe."""

    limits: ProbeLimits = field(default_factory=ProbeLimits)
    budget: BandwidthBudget = field(default_factory=BandwidthBudget)
    uplinks: tuple[Uplink, ...] = ()
    anchors: tuple[str, ...] = ()  # the nodes with which all others test their bandwidth
    address_policy: AddressPolicy = field(default_factory=AddressPolicy)


class ProbeScheduler:
    """Renews every board's ping lease, runs bandwidth tests, and checks the results.

    send: sends a lease to its node. nodes: the nodes of the cluster by name, None while unknown.
    Only they are probed, at addresses that the policy allows. wanted_mbps: the bandwidth that the
    pods of a node request, by node. wanted_rows: the nodes whose round trips to all others
    strategies need, most needed first. is_prompt: whether leases arrive at once.
    """

    def __init__(
        self,
        telemetry: TelemetryState,
        send: Callable[[pb.Lease], None],
        probing: ProbeSettings,
        nodes: Callable[[], Mapping[str, Node] | None],
        wanted_mbps: Callable[[], Mapping[str, float]] = dict,
        is_prompt: Callable[[], bool] = lambda: True,
        wanted_rows: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._telemetry = telemetry
        self._send = send
        self._limits = probing.limits
        self._anchors = probing.anchors
        self.address_policy = probing.address_policy
        self._nodes = nodes
        self._wanted_mbps = wanted_mbps
        self._is_prompt, self._was_prompt = is_prompt, True
        self._wanted_rows = wanted_rows
        limits = probing.limits
        self._planner = BandwidthPlanner(
            probing.budget, probing.uplinks, probing.anchors, limits.interval_s, limits.max_bytes
        )
        self._bandwidth_grants = BandwidthGrants()
        self._tests = 0
        self._under_test: dict[str, tuple[float, float]] = {}  # the last test: from, until
        self._ping_grants = PingGrants()
        self._nonce = secrets.token_hex(8)  # part of our lease ids, unlike an earlier controller's
        self._pinged_s: dict[str, float] = {}  # the oldest first
        self._renewals = 0
        self._turn, self._ring_start = -1, 0
        self._ring_steps: list[int] = []
        self._row_of: dict[str, str] = {}  # the node whose row this one is to measure in this turn
        self._agents: dict[str, Agent] = {}
        self._addresses: dict[str, str] = {}
        self._testable: dict[str, None] = {}  # sorted
        self._checked_s = float("-inf")
        self._planned = 0  # where in the order of names the next plan starts
        self._warned_s: dict[str, float] = {}
        self._now_s = self._judged_s = float("-inf")
        self._lock = Lock()

    # Called on the MQTT thread.

    def on_birth(self, node: str) -> None:
        """The agent has (re)started and has no ping lease."""
        with self._lock:
            self._pinged_s.pop(node, None)

    def bandwidth_refusal(self, node: str, report: pb.BandwidthReport) -> str | None:
        """Why a result is refused, as a kind; None if it is valid."""
        with self._lock:
            return self._bandwidth_grants.refusal(node, report, self._now_s)

    def on_bandwidth(
        self, node: str, report: pb.BandwidthReport, at_s: float
    ) -> BandwidthTest | None:
        """One end sent its valid report. The result once both have, and agree."""
        with self._lock:
            transferred_bytes, test = self._bandwidth_grants.report(node, report, at_s)
            if transferred_bytes is not None:
                if test is not None:
                    for end in (test.client, test.server):
                        since_s = self._under_test.get(end, (test.at_s,))[0]
                        self._under_test[end] = (since_s, max(test.at_s, at_s))
                mbps = None if test is None else test.window().high_mbps
                self._planner.finish(report.lease_id, transferred_bytes, mbps)
            return test

    def rtt_refusal(self, node: str, measured_s: float) -> str | None:
        """Why a round of pings is refused, as a kind; None if it is valid."""
        with self._lock:
            return self._ping_grants.refusal(node, measured_s, self._now_s)

    def ping_peers(self, node: str) -> frozenset[str]:
        """The peers to which the node may report round trips."""
        with self._lock:
            return self._ping_grants.peers(node, self._now_s)

    def is_under_test(self, nodes: Sequence[str], at_s: float) -> bool:
        """Whether one of the nodes had a bandwidth test during a round of pings that ended then."""
        tests = (self._under_test.get(node) for node in nodes)
        return any(x is not None and x[0] <= at_s <= x[1] + _ROUND_S for x in tests)

    # Called on any thread.

    def budget(self, now_s: float) -> ProbingStatus:
        """What probing has cost up to now."""
        with self._lock:
            pings = self._ping_grants.pings_per_minute(self._limits.ping_count, now_s)
            accounts = self._planner.accounts(now_s, pings)
            nodes, uplinks = (sorted(each.items()) for each in accounts)
            running = self._planner.running(now_s)

        def read(name: str, account: Account, pings_per_minute: float | None) -> AccountStatus:
            with self._lock:  # for one at a time, because all take 0.1 s for 10,000 nodes
                return account.read(name, pings_per_minute)

        return ProbingStatus(
            tuple(read(name, account, pings.get(name, 0.0)) for name, account in nodes),
            tuple(read(name, account, None) for name, account in uplinks),
            running,
        )

    # Called from the event loop.

    def on_started_leading(self, now_s: float) -> None:
        """This controller becomes the leader: send all ping leases anew, and wait until a
        bandwidth test of the previous leader must have ended."""
        with self._lock:
            self._pinged_s.clear()
        self._await_tests(now_s)

    def _await_tests(self, now_s: float) -> None:
        """Start no bandwidth test while one of an earlier lease may still run."""
        with self._lock:
            self._planner.pause(now_s + self._lease_s(self._limits.duration_ms))

    def tick_as_standby(self, now_s: float) -> None:
        """Only let leases expire, because another controller leads or the broker is away."""
        with self._lock:
            self._now_s = now_s
            self._ping_grants.drop_expired(now_s)

    def tick(self, now_s: float) -> None:
        """Send the leases that are due. Those that cannot be sent would still be paid for."""
        if not self._is_prompt():
            self._was_prompt = False
            self.tick_as_standby(now_s)
            return
        if not self._was_prompt:
            self._was_prompt = True
            self._await_tests(now_s)  # a broker that hung may deliver old leases only now
        count = len(self._agents)
        check_every_s = _CHECK_EVERY_S * count if count > _PLANNED_AT_ONCE else 0.0
        if now_s - self._checked_s >= check_every_s:
            agents = self._agents = self._probeable_agents(now_s)
            self._addresses = {name: agent.address for name, agent in agents.items()}
            testable = (name for name, agent in agents.items() if "iperf3" in agent.probes)
            self._testable = dict.fromkeys(testable)
            self._checked_s = now_s
        with self._lock:
            self._now_s = now_s
            self._judge_bandwidths(now_s)
            self._renew_ping_leases(now_s)
            self._start_bandwidth_tests(now_s)

    def _judge_bandwidths(self, now_s: float) -> None:
        if now_s - self._judged_s >= _JUDGE_EVERY_S:
            self._judged_s = now_s
            self._ping_grants.drop_expired(now_s)
            found = self._bandwidth_grants.contradicting(now_s)
            self._telemetry.judge(BANDWIDTHS, found, now_s)
            self._planner.not_believed = self._telemetry.contradicting[BANDWIDTHS]

    def _probeable_agents(self, now_s: float) -> dict[str, Agent]:
        """The agents to probe, sorted by name. It logs at intervals why others are not."""
        nodes = self._nodes()
        if nodes is None:
            return {}
        agents = self._telemetry.agents()
        probeable = {}
        for name in sorted(agents.keys() & nodes.keys()):
            agent = agents[name]
            if not (agent.online and agent.address):
                continue
            reason = self.address_policy.refusal(agent.address, nodes[name])
            if reason is None:
                probeable[name] = agent
            elif now_s - self._warned_s.get(name, float("-inf")) >= _WARN_EVERY_S:
                self._warned_s[name] = now_s
                log.warning(
                    "node %s is not probed: %s; set probe.address on the board, or probe.networks "
                    "here",
                    *(name, reason),
                )
        self._warned_s = {n: at_s for n, at_s in self._warned_s.items() if n in nodes}
        return probeable

    def _renew_ping_leases(self, now_s: float) -> None:
        renew_s, addresses = self._limits.ping_ttl_s / 3, self._addresses
        due = sorted(addresses.keys() - self._pinged_s.keys())
        due += takewhile(lambda name: now_s - self._pinged_s[name] >= renew_s, self._pinged_s)
        if due:
            if (turn := int(now_s // renew_s)) != self._turn:
                self._turn = turn
                self._begin_turn(addresses, now_s)
            ring = PingRing(addresses, self._anchors, self._limits, self._ring_start)
            # Sending all at once would block the event loop. At two ticks a second, a thirtieth per
            # tick renews all leases in 15 s, in time for a third of the default time to live.
            at_once = max(_PING_LEASES_PER_TICK, len(addresses) // 30)
            renewed = [node for node in due if node in addresses][:at_once]
            self._renewals += 1
            stride = 1 + len(addresses) // _NEAR_NODES
            searched = renewed[self._renewals % stride :: stride]
            near = self._telemetry.nearest_unknown(searched, NEAR_PEERS, now_s)
            wanted = self._telemetry.pings_wanted(renewed, now_s)
            for node in renewed:
                row = (self._row_of[node],) if node in self._row_of else ()
                first = (*wanted[node][:2], *row, *near.get(node, ()))
                work = ring.work(node, first[:CHOSEN_PEERS])
                self._send(pb.Lease(node=node, ping=work))
                self._ping_grants.add(node, work, now_s)
                self._pinged_s.pop(node, None)
                self._pinged_s[node] = now_s
            self._ring_steps += ring.steps
            for node in [node for node in due if node not in addresses]:
                self._pinged_s.pop(node, None)
        if len(self._under_test) > 2 * len(addresses):
            self._under_test = {n: x for n, x in self._under_test.items() if n in addresses}

    def _begin_turn(self, addresses: Mapping[str, str], now_s: float) -> None:
        """Where all begin on the ring, and which nodes measure the wanted rows: first those that
        are probably nearest, because strategies choose among them."""
        if self._ring_steps:
            self._ring_start += max(median_low(self._ring_steps), 1)
            self._ring_steps = []
        most = max(1, min(MAX_ROWS, MAX_ROW_PAIRS // max(len(addresses), 1)))
        rows = [x for x in self._wanted_rows() if x in addresses and x not in self._anchors][:most]
        self._row_of = {}
        unknown = self._telemetry.nearest_unknown(rows, MAX_ROW_PEERS, now_s)
        for row in rows:
            for node in unknown.get(row, ()):
                self._row_of.setdefault(node, row)

    def _to_plan(self, now_s: float) -> Collection[str]:
        """The nodes to plan tests for, and those that may be their peers."""
        if len(self._testable) <= _PLANNED_AT_ONCE:
            return self._testable
        names = list(self._testable)
        urgent = self._telemetry.contradicted_after(now_s - _URGENT_S)
        due = self._planner.due(names, now_s)[: _PLANNED_AT_ONCE - _PEERS_AT_ONCE]
        start = self._planned % len(names)
        self._planned = start + _PEERS_AT_ONCE
        peers = (
            *names[start : start + _PEERS_AT_ONCE],
            *names[: max(0, self._planned - len(names))],
        )
        chosen = dict.fromkeys((*sorted(urgent)[:_PLANNED_AT_ONCE], *due, *self._anchors, *peers))
        for name in due:
            chosen.update(dict.fromkeys(self._planner.budgets.neighbours(name)))
        return [name for name in chosen if name in self._testable]

    def _start_bandwidth_tests(self, now_s: float) -> None:
        agents, names = self._agents, self._to_plan(now_s)
        links = {link.name: link for link in self._telemetry.node_links(names, now_s)}
        for name, wanted_mbps in self._wanted_mbps().items():
            if name in links:
                links[name] = replace(links[name], wanted_mbps=wanted_mbps)
        rtt_ms = partial(self._telemetry.rtt_ms, now_s=now_s)
        for planned in self._planner.plan(list(links.values()), rtt_ms, now_s):
            self._tests += 1
            lease_id = f"{self._nonce}-{self._tests}"
            duration_ms = round(1000 * planned.most_s(self._limits.duration_ms / 1000))
            ends_s = now_s + self._lease_s(duration_ms)
            ends = (planned.client, planned.server)
            most_mbps = min(links[end].link_mbps or inf for end in ends)
            self._planner.start(planned, lease_id, now_s, ends_s, duration_ms / 1000)
            self._under_test.update(dict.fromkeys(ends, (now_s, ends_s)))
            requested_mbps = {end: links[end].wanted_mbps for end in ends}
            self._bandwidth_grants.add(planned, lease_id, most_mbps, now_s, ends_s, requested_mbps)
            for node, peer, role in (
                (planned.server, planned.client, pb.BandwidthLease.SERVER),
                (planned.client, planned.server, pb.BandwidthLease.CLIENT),
            ):
                work = pb.BandwidthLease(
                    lease_id=lease_id,
                    role=role,
                    peer=pb.Peer(node=peer, address=agents[peer].address),
                    port=self._limits.port,
                    duration_ms=duration_ms,
                    max_bytes=planned.max_bytes,
                    ttl_ms=self._limits.ttl_ms,
                )
                self._send(pb.Lease(node=node, bandwidth=work))

    def _lease_s(self, duration_ms: int) -> float:
        # Both ends count from the receipt; one second covers the difference of their clocks.
        return DELIVERY_S + (self._limits.ttl_ms + duration_ms) / 1000 + 1
