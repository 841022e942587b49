"""The latest measurements of every agent, each value with its age.

The MQTT thread writes and the event loop reads, hence the lock. Times are seconds on the
controller's monotonic clock. A value that is older than its time to live is unknown.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import inf
from threading import RLock
from typing import NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.node_metrics import NodeMetrics
from leadline_controller.framework.view import NodeTable
from leadline_controller.parsing.settings import setting
from leadline_controller.telemetry.absences import LEAST_AWAY_S, Heard, absence_s
from leadline_controller.telemetry.accepted import Accepted, Agent, Born, Pinged, Reported, Tested
from leadline_controller.telemetry.bandwidth import NodeBandwidths
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.board_columns import LINK, USED, BoardColumns
from leadline_controller.telemetry.board_records import BoardRecord, BoardRecords
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.contradictions import compare, outvoted, to_be_checked
from leadline_controller.telemetry.coordinates import RttEstimates, estimate
from leadline_controller.telemetry.link_bandwidth import PULLS, NodeLink
from leadline_controller.telemetry.link_status import LinkStatus, PairTable
from leadline_controller.telemetry.links import LinkState
from leadline_controller.telemetry.pair_tests import PairTest
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import SequenceStatus, Stamp
from leadline_controller.telemetry.traffic import BoardTraffic, TrafficReports

log = logging.getLogger(__name__)

_DROP_EVERY_S = 60.0
_TOO_MANY_PAIRS = "too_many_pairs"
_LEFT_OUT_S = 300.0  # after its last contradiction
_INTERVAL_S = 10.0  # between reports, if the agent has not said
BROKER = "@broker"
ROUND_TRIPS, BANDWIDTHS = "round trips", "bandwidths"
# The metrics of more nodes are renewed ten times a second at most, as one of them reports before
# nearly every decision.
_FEW_NODES, _RENEWALS_PER_S = 500, 10


@dataclass(frozen=True, slots=True)
class TimesToLive:
    """Seconds after which a value is unknown again."""

    report_s: float = setting(60.0, "a report older than this is unknown again")
    rtt_s: float = setting(600.0, "the same of a round trip")
    bandwidth_s: float = setting(1800.0, "the same of a bandwidth")


class Board(NamedTuple):
    """What is known of one board."""

    agent: Agent
    report: BoardReading | None = None  # the newest one, None if it is too old
    age_s: float | None = None  # of the newest report, None without one
    clock_ahead_s: float | None = None  # by how much the board's wall clock was ahead of ours in it
    lost: int = 0  # lost messages
    # Metric -> (value, age in seconds), without those that are too old.
    values: Mapping[str, tuple[float, float]] = {}
    is_bound: bool = False  # whether the bandwidth is a lower bound


class BoardTable(NamedTuple):
    """What is known of n boards, as `Board` has it."""

    names: Sequence[str]
    agents: Sequence[Agent]
    reports: Sequence[BoardReading | None]
    age_s: NDArray[np.float64]  # infinite without a report, shape (n,)
    lost: Sequence[int]
    is_bound: NDArray[np.bool_]
    # Name -> values, shape (n,), NaN where unknown or too old.
    columns: Mapping[str, NDArray[np.float64]]
    # When each was measured, in the order of the columns, shape (n, columns).
    at_s: NDArray[np.float64]


class TelemetryState:
    """All measurements by node, and counters of messages.

    refused: rejected messages by kind, and rounds of pairs that had no place. accepted: the other
    messages. accepted_kinds: these by the kind of their topic, with each status.
    bandwidth_changes: how often the bandwidth of a node, or whether that is a lower bound,
    changed. contradicting: the nodes whose ROUND_TRIPS or BANDWIDTHS contradict those of their
    peers. observe: is told what is accepted, on the thread that told the state, which waits for it.
    traffic: what the boards counted, until it is taken.
    """

    def __init__(self, ttl: TimesToLive, *, is_passive: bool = False) -> None:
        self.ttl = ttl
        self.is_passive = is_passive
        self.observe: Callable[[Accepted], None] = lambda _: None
        self.traffic = TrafficReports()
        self.refused: Counter[str] = Counter()
        self.accepted = 0
        self.accepted_kinds: Counter[str] = Counter()
        self.bandwidth_changes = 0
        self.contradicting = dict.fromkeys((ROUND_TRIPS, BANDWIDTHS), frozenset[str]())
        self._until_s: dict[str, dict[str, float]] = {ROUND_TRIPS: {}, BANDWIDTHS: {}}
        self._to_check: dict[str, str] = {}
        self._lock = RLock()
        self._links = LinkState(ttl.rtt_s, ttl.bandwidth_s)
        self._bandwidths = NodeBandwidths(ttl.bandwidth_s, is_passive=is_passive)
        self._columns = BoardColumns(ttl.report_s, ttl.bandwidth_s)
        self._boards = BoardRecords(self._columns)
        self._changes = 0
        self._cached: tuple[object, NodeMetrics] | None = None
        self._slots: tuple[object, NDArray[np.int64]] = (None, np.zeros(0, int))
        self._dropped_s = -np.inf
        # When the last message of any board came, and for how long in all none came: the broker or
        # this process was away then.
        self._heard_s, self._silent_s = -np.inf, 0.0

    # Membership: called by the event loop.

    def set_members(self, members: Set[str] | None, now_s: float) -> list[str]:
        """Set the nodes of the cluster (None while unknown) and the time. Call it regularly.

        Returns the new nodes without a birth message, sorted: it may have been dropped before.
        """
        with self._lock:
            unintroduced, gone = self._boards.set_members(members, now_s)
            self._bandwidths.drop(gone)
            if now_s - self._dropped_s >= _DROP_EVERY_S:
                self._dropped_s = now_s
                self._links.drop_old(now_s)
            return unintroduced

    # Writing: called by the MQTT thread.

    def count_refusal(self, kind: str) -> None:
        """Count a rejected message."""
        with self._lock:
            self.refused[kind] += 1

    def birth(self, agent: Agent, stamp: Stamp) -> bool:
        """Store an agent's birth. False when it is not current."""
        with self._lock:
            accepted = self._accept(agent.node, stamp, birth=True)
            record = accepted or self._boards.awaiting_birth(agent.node, stamp)
            if record is None:
                return False
            record.birth_session = (stamp.boot_id, stamp.session)
            # A retained birth does not show that the agent is online; its status does.
            online = record.agent.online if stamp.retained else True
            record.agent = replace(agent, online=online)
            self.observe(Born(agent, stamp))
            return True

    def status(self, node: str, boot_id: bytes, session: int, *, online: bool) -> None:
        """Store whether an agent is online. The will of an earlier session is ignored."""
        with self._lock:
            record = self._boards.of(node)
            if record is None:
                self.refused["too_many_nodes"] += 1
            elif record.sequence.is_current(boot_id, session):
                record.agent = replace(record.agent, online=online)

    def report(
        self,
        node: str,
        stamp: Stamp,
        reading: BoardReading,
        clock_ahead_s: float | None = None,
    ) -> bool:
        """Store a report. clock_ahead_s: by how much the board's wall clock is ahead of ours. False
        when it is not current."""
        with self._lock:
            record = self._accept(node, stamp)
            if record is None:
                return False
            self._changes += 1
            self._columns.report(record.slot, reading.values, reading.flags, stamp.measured_s)
            if (gap_s := stamp.measured_s - record.board_at_s) > 0:
                record.gap_s = gap_s
            record.board, record.board_at_s = reading, stamp.measured_s
            record.clock_ahead_s = clock_ahead_s
            used_mbps, link_mbps = (reading.values.get(name) for name in (USED, LINK))
            if self._bandwidths.carry(node, used_mbps, link_mbps, stamp.measured_s):
                self._refresh_bandwidth(node, stamp.measured_s)
            self.observe(Reported(node, stamp, reading))
            return True

    def take(self, what: Accepted) -> None:
        """Store what another state accepted."""
        match what:
            case Born(agent, stamp):
                self.birth(agent, stamp)
            case Reported(node, stamp, reading):
                self.report(node, stamp, reading)
            case Pinged(node, stamp, rounds):
                self.rtts(node, stamp, rounds)
            case Tested(test):
                self.bandwidth(test)

    def pulled(self, node: str, mbps: float, at_s: float) -> None:
        """Store how fast a node pulled an image, which its kubelet says: its link can do as
        much."""
        with self._lock:
            if node in self._boards.by_name:
                link_mbps = self._value(node, LINK, at_s)
                if self._bandwidths.carry(node, mbps, link_mbps, at_s, PULLS):
                    self._refresh_bandwidth(node, at_s)

    def count_refused_sequence(self, node: str, stamp: Stamp) -> bool:
        """Accept the sequence number of a refused message, so that it does not count as lost.
        False when the message is not current."""
        with self._lock:
            current = self._accept(node, stamp) is not None
            self.accepted -= current
            return current

    def rtts(self, node: str, stamp: Stamp, rounds: Mapping[str, PingRound]) -> bool:
        """Store a round of pings to each peer, and to BROKER. False when not current."""
        with self._lock:
            if self._accept(node, stamp) is None:
                return False
            before = self._links.refused
            for peer, round_ in rounds.items():
                if peer != BROKER:
                    if peer in self._boards.by_name and peer != node:
                        self._links.set_round(node, peer, round_, stamp.measured_s)
                elif round_.rtt_ms is not None:
                    self._links.set_broker_leg(node, round_.rtt_ms, stamp.measured_s)
            if self._links.refused > before:
                self.refused[_TOO_MANY_PAIRS] += self._links.refused - before
            self.observe(Pinged(node, stamp, rounds))
            return True

    def bandwidth_report(self, node: str, stamp: Stamp) -> bool:
        """Accept one end's report of a bandwidth test. False when it is not current."""
        with self._lock:
            return self._accept(node, stamp) is not None

    def traffic_report(self, stamp: Stamp, counted: BoardTraffic) -> bool:
        """Keep what a board counted. False when it is not current."""
        with self._lock:
            if self._accept(counted.node, stamp) is None:
                return False
            self.traffic.add(counted)
            return True

    def bandwidth(self, test: BandwidthTest) -> None:
        """Store the result of a bandwidth test on which both ends agree."""
        with self._lock:
            client, server = test.client, test.server
            if client not in self._boards.by_name or server not in self._boards.by_name:
                return
            self.observe(Tested(test))
            rtt_ms = self._links.rtt_ms_of(client, server, test.at_s)
            test = replace(test, rtt_ms=None if rtt_ms == inf else rtt_ms)
            ends = (client, server)
            link_mbps = {node: self._value(node, LINK, test.at_s) for node in ends}
            used_mbps = {node: self._value(node, USED, test.at_s) or 0.0 for node in ends}
            changed = self._bandwidths.add(test, link_mbps, used_mbps)
            result = PairTest(test.value_mbps, test.at_s, not test.is_exact, test.is_hindered)
            self._links.tests.add(client, server, result)
            for node in changed & self._boards.by_name.keys():
                self._refresh_bandwidth(node, test.at_s)

    # Reading: called by the event loop.

    def agents(self) -> dict[str, Agent]:
        """The birth and status of every agent, by node."""
        with self._lock:
            return {name: record.agent for name, record in self._boards.by_name.items()}

    def board(self, node: str, now_s: float) -> Board:
        """One board, also if it was never heard of."""
        with self._lock:
            record = self._boards.by_name.get(node)
            if record is None:
                return Board(Agent(node))
            at = np.array([record.slot])
            values = self._fresh_values(at, (node,), now_s)[0].tolist()
            ages_s = (now_s - self._columns.at_s[record.slot]).tolist()
            is_fresh = now_s - record.board_at_s <= self.ttl.report_s
            known = zip(self._columns.names, values, ages_s, strict=True)
            return Board(
                agent=record.agent,
                report=record.board if is_fresh else None,
                age_s=None if record.board is None else now_s - record.board_at_s,
                clock_ahead_s=record.clock_ahead_s if is_fresh else None,
                lost=record.sequence.lost,
                values={name: (value, age_s) for name, value, age_s in known if value == value},
                is_bound=bool(self._columns.is_bound[record.slot]),
            )

    def report_timing(self, node: str) -> tuple[float, float]:
        """Over how many seconds the rates of the node's newest report are means, and by how much
        the board's wall clock was ahead of ours in it; 0 where that is unknown. The time since the
        report before, unless one was lost on the way."""
        with self._lock:
            record = self._boards.by_name.get(node)
            if record is None:
                return _INTERVAL_S, 0.0
            interval_s = min(record.gap_s, record.agent.interval_s or np.inf)
            ahead_s = record.clock_ahead_s or 0.0
            return (_INTERVAL_S if interval_s == np.inf else interval_s), ahead_s

    def boards(self, now_s: float) -> BoardTable:
        """Every board, with the values that are known now."""
        with self._lock:
            records = list(self._boards.by_name.values())
            slots = np.array([record.slot for record in records], dtype=np.int64)
            names = tuple(self._boards.by_name)
            values = self._fresh_values(slots, names, now_s)
            at_s = np.array([record.board_at_s for record in records], dtype=np.float64)
            fresh = (now_s - at_s <= self.ttl.report_s).tolist()
            return BoardTable(
                names=names,
                agents=[record.agent for record in records],
                reports=[r.board if f else None for r, f in zip(records, fresh, strict=True)],
                age_s=now_s - at_s,
                lost=[record.sequence.lost for record in records],
                is_bound=self._columns.is_bound[slots],
                columns=dict(zip(self._columns.names, values.T, strict=True)),
                at_s=self._columns.at_s[slots],
            )

    def message_counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """The accepted messages by kind, and the refused ones by reason."""
        with self._lock:
            return dict(self.accepted_kinds), dict(self.refused)

    def links(
        self,
        now_s: float,
        estimated_from: Iterable[str] = (),
        node: str | None = None,
        pairs: Set[tuple[str, str]] | None = None,
    ) -> list[LinkStatus]:
        """Every pair of nodes with a value that is known now, of `node` alone if there is one, or
        the sorted `pairs` alone, and estimates of the unmeasured round trips of these and of those
        from the nodes of `estimated_from`."""
        with self._lock:
            statuses = self._links.fresh(now_s, estimated_from, node, pairs)
        return statuses()

    def pairs(self, now_s: float, *, by_broker: bool = True) -> PairTable:
        """All pairs of nodes with a round trip that is known now, or that get no reply, in columns.
        by_broker: with those of which only the way over the broker is known."""
        with self._lock:
            return self._links.pairs(now_s, by_broker=by_broker)

    def node_links(self, names: Iterable[str], now_s: float) -> list[NodeLink]:
        """What is known of the links of these nodes."""
        with self._lock:
            return [
                NodeLink(
                    name=name,
                    link_mbps=self._value(name, LINK, now_s),
                    bandwidth=self._bandwidths.of(name, now_s),
                    belief=self._bandwidths.belief(name, now_s),
                    last_peer=self._bandwidths.last_peer(name),
                    is_measured=self._bandwidths.is_measured(name),
                    used_mbps=self._value(name, USED, now_s) or 0.0,
                    contradicted_s=max(
                        self._bandwidths.contradicted_s(name), self._links.jumps.last_s(name)
                    ),
                )
                for name in names
            ]

    def contradicted_after(self, since_s: float) -> set[str]:
        """The nodes whose traffic or round trips contradicted what is believed after `since_s`."""
        with self._lock:
            bandwidths, links = self._bandwidths, self._links
            return bandwidths.contradicted_after(since_s) | links.jumps.after(since_s)

    def rtt_ms(self, a: str, b: str, now_s: float) -> float | None:
        """The round trip of a pair, measured or by its coordinates, ms; None if unknown, and
        infinite if the last rounds got no reply."""
        with self._lock:
            return self._links.rtt_ms_of(a, b, now_s)

    def _value(self, node: str, column: str, now_s: float) -> float | None:
        record = self._boards.by_name.get(node)
        return None if record is None else self._columns.value(record.slot, column, now_s)

    def estimate_rtts(self, now_s: float, known: RttEstimates | None = None) -> RttEstimates | None:
        """Estimate the round trips that are not measured. It takes up to seconds, so call it
        regularly on a thread of its own. known: what was estimated from the same measurements
        before, with or without its pairs. Returns the estimates, None if too little is measured."""
        self._judge(now_s)
        with self._lock:
            names, ends, rtt_ms, previous = self._links.measured(now_s)
        if not len(ends):
            return None
        if known is None:
            found = estimate(names, ends, rtt_ms, previous)
        else:
            found = known.with_pairs(ends, rtt_ms)
        with self._lock:
            self._links.set_estimates(found)
        return found

    def _judge(self, now_s: float) -> None:
        """Find the nodes whose round trips contradict those of their peers."""
        with self._lock:
            names, ends, said_ms, moved = self._links.reports(now_s)
        is_said = ~np.isnan(said_ms)
        both = is_said.all(axis=1)
        comparable, differ = compare(said_ms[both], moved[both])
        found = outvoted(len(names), ends[both][comparable], differ[comparable])
        checked = to_be_checked(len(names), ends, is_said, np.random.default_rng(int(now_s)))
        self._to_check = {names[node]: names[peer] for node, peer in checked.tolist()}
        self.judge(ROUND_TRIPS, {names[at] for at in np.flatnonzero(found).tolist()}, now_s)

    def judge(self, what: str, found: Set[str], now_s: float) -> None:
        """Store that the reports of these nodes contradict those of their peers now. `what`:
        ROUND_TRIPS or BANDWIDTHS. Other nodes count again when they did not for five minutes."""
        with self._lock:
            before = self.contradicting[what]
            until_s = {n: at_s for n, at_s in self._until_s[what].items() if at_s > now_s}
            self._until_s[what] = until_s | dict.fromkeys(found, now_s + _LEFT_OUT_S)
            nodes = self.contradicting[what] = frozenset(self._until_s[what])
            if what == ROUND_TRIPS:
                self._links.set_contradicting(nodes)
        for node in sorted(nodes - before):
            log.warning(
                "node %s: its %s contradict those of its peers and do not count; check the load "
                "and the agent of the board, and renew its certificate if another may have its key",
                *(node, what),
            )
        for node in sorted(before - nodes):
            log.info("node %s: its %s agree with those of its peers again", node, what)

    def nearest_unknown(
        self, nodes: Sequence[str], count: int, now_s: float
    ) -> dict[str, list[str]]:
        """For each of these nodes, up to `count` others that are probably nearest to it and whose
        round trip from it is unknown or stale."""
        with self._lock:
            return self._links.nearest_unknown(nodes, count, now_s)

    def pings_wanted(self, nodes: Iterable[str], now_s: float) -> dict[str, list[str]]:
        """For each of these nodes, the peers to ping next: those whose last round differed from the
        ones before, and one that alone has measured the pair so far."""
        with self._lock:
            unconfirmed = self._links.unconfirmed(now_s)
            checked = {node: self._to_check.get(node) for node in nodes}
        return {
            node: [*unconfirmed.get(node, ()), *([peer] if peer else ())]
            for node, peer in checked.items()
        }

    def metrics(self, table: NodeTable, now_s: float) -> NodeMetrics:
        """The metrics of the nodes of `table`, NaN where unknown. The result is cached until a new
        report arrives or a second has passed, as a value may have become too old.

        A report of one of more than 500 nodes counts up to a tenth of a second later, unless a
        bandwidth changes, for which pods may wait.
        """
        with self._lock:
            is_small = len(table) <= _FEW_NODES
            when = (self._changes, int(now_s)) if is_small else int(now_s * _RENEWALS_PER_S)
            # Keeps no nodes in memory.
            key = (ref(table), self._boards.population, self.bandwidth_changes, when)
            if self._cached is None or self._cached[0] != key:
                slots = self._slots_of(table)
                values = self._fresh_values(slots, table.names, now_s)
                self._cached = (key, self._columns.node_metrics(slots, values, now_s))
            return self._cached[1]

    def rtts_since(
        self, since_s: float
    ) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.float64]]:
        """Names of boards, the pairs measured after `since_s` as indices into them, and the round
        trips of these, ms."""
        with self._lock:
            return self._links.since(since_s)

    def confidence(self, metric: str, age_s: float) -> float:
        """How much a value of this age is still worth: 1 when it is measured, 0 when it becomes
        unknown."""
        ttl_s = self._columns.ttl_s(metric)
        return min(1.0, max(0.0, 1.0 - age_s / ttl_s)) if ttl_s else 0.0

    def link_table(self, table: NodeTable, now_s: float) -> LinkTable:
        """The measured round trips between the nodes of `table`."""
        with self._lock:
            return self._links.table(table, now_s)

    def _accept(self, node: str, stamp: Stamp, *, birth: bool = False) -> BoardRecord | None:
        record = self._boards.of(node)
        if record is None:
            self.refused["too_many_nodes"] += 1
            return None
        status = record.sequence.accept(stamp, birth=birth)
        if status is SequenceStatus.CURRENT:
            self.accepted += 1
            self._hear(record, stamp)
            return record
        if not stamp.retained:  # a retained copy of a known message is not an error
            self.refused[status.value] += 1
        return None

    def _hear(self, record: BoardRecord, stamp: Stamp) -> None:
        """Find out whether the board was away before this message."""
        now_s = self._boards.now_s
        if stamp.retained or now_s == -np.inf:  # a copy does not show that the board is there
            return
        if LEAST_AWAY_S < (silent_s := now_s - self._heard_s) < np.inf:
            self._silent_s += silent_s
        self._heard_s = now_s
        heard = Heard(now_s, stamp.boot_id, stamp.session, self._silent_s)
        away_s = absence_s(record.heard, heard, record.agent.interval_s or self.ttl.report_s)
        record.heard = heard
        if away_s is not None:
            self._columns.away(record.slot, away_s, now_s)
            self._changes += 1

    def _refresh_bandwidth(self, node: str, now_s: float) -> None:
        known = self._bandwidths.of(node, now_s)
        slot = self._boards.by_name[node].slot
        self.bandwidth_changes += self._columns.set_bandwidth(slot, known)
        self._changes += 1

    def _fresh_values(
        self, slots: NDArray[np.int64], names: Sequence[str], now_s: float
    ) -> NDArray[np.float64]:
        """Rows of values, NaN where unknown, too old, or the slot is -1. Where a bandwidth is too
        old, another link may have a fresh one."""
        return self._columns.fresh(
            slots, now_s, lambda at: self._refresh_bandwidth(names[at], now_s)
        )

    def _slots_of(self, table: NodeTable) -> NDArray[np.int64]:
        key = (ref(table), self._boards.population)
        if self._slots[0] != key:
            records = map(self._boards.by_name.get, table.names)
            slots = [-1 if record is None else record.slot for record in records]
            self._slots = (key, np.array(slots, dtype=np.int64))
        return self._slots[1]
