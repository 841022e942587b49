"""Plans bandwidth tests within a budget. No I/O.

A test runs where it says most for its cost: first where a result contradicts what is believed, then
where nothing is known or only a lower bound, first one below what pods request, then where the last
test is oldest. It transfers no more bytes than a measurement of that link needs. A test takes both
nodes, each declared uplink between them, and its part of their budgets, all in one step. A peer
that is too slow to show what the node's link can do is left alone.

A test is charged at the speed that is believed of each link, and corrected once its result counts:
on a link that was throttled it took longer than planned.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, islice
from math import ceil, inf

from leadline_controller.probing.spending import HOUR_S, AccountReading, HourlySpending
from leadline_controller.telemetry.bandwidth import (
    AGREEING_SHARE,
    UNKNOWN_RTT_MS,
    NodeLink,
    exact_s,
)

DAY_S = 86_400.0
# Agents transfer whole blocks.
BLOCK_BYTES = 16 * 1024
# Enough for an exact measurement of 100 Mbit/s, and 10 ms of such a link.
REFRESH_BYTES = 8 * BLOCK_BYTES
# Fewer packets say nothing about a link.
LEAST_BYTES = 4 * BLOCK_BYTES
# The measurement is on the second half of the bytes.
_MEASURED_SHARE = 0.5
_FIRST_MBPS = 50.0  # assumed for a link of unknown speed
_LARGER_EACH_TIME = 4.0  # the next test after a lower bound
# A lower bound of this share of the link's speed is as good as the speed.
_SHARE_OF_LINK_SPEED = 0.8
# A part of the budget stays unused, because tests take a little longer than planned.
_PLANNED_SHARE = 0.95
# The most that a budget saves while no test runs.
_SAVED_LINK_S, _SAVED_BYTES = 1.0, 30_000_000
_MOST_DEBT = 0.1  # of the bytes that can be saved
# The first test of a node, and one that settles a contradiction, may come before it is paid.
_FIRST_DEBT_S, _SETTLING_DEBT_S = 0.5, 0.05
_DEBTS_S = (_SETTLING_DEBT_S, _FIRST_DEBT_S, 0.0, 0.0)  # by urgency
# A link that carries this share of its bandwidth for users is left alone as long as possible.
_BUSY_SHARE = 0.3
_MAX_STARTED_AT_ONCE = 50
_MAX_PEERS_COMPARED = 16
# After a test without a result, and twice as long each time.
_RETRY_S, _MAX_DOUBLINGS = 3.0, 5
# A little more than it takes to measure what a test suspects.
_SETTLING_SIZE = 1.25
_RARELY = 3.0


@dataclass(frozen=True, slots=True)
class Uplink:
    """A link that several nodes share on their way to all others. mbps: None if unknown.
    bytes_per_day: for tests, None for no limit of its own."""

    name: str
    nodes: frozenset[str]
    mbps: float | None = None
    bytes_per_day: int | None = None


@dataclass(frozen=True, slots=True)
class BandwidthBudget:
    """What tests may cost each node and uplink: a share of the link's time, and bytes a day."""

    link_time_share: float = 0.001
    bytes_per_day: int = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """A test and what it takes: uplinks by name, the bytes, and the seconds of each one's link."""

    client: str
    server: str
    max_bytes: int
    uplinks: tuple[str, ...]
    link_s: Mapping[str, float]


@dataclass(slots=True)
class Account:
    """The budget of one node or uplink, and what was spent since the start."""

    share: float
    bytes_per_day: float
    at_s: float
    link_s: float = 0.0
    bytes: float = 0.0
    spent_link_s: float = 0.0
    spent_bytes: int = 0
    tests: int = 0
    recent: HourlySpending = field(default_factory=HourlySpending)
    since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.since_s = self.at_s

    def refill(self, now_s: float) -> None:
        """Add what the time since the last call is worth."""
        passed_s = max(0.0, now_s - self.at_s)
        self.at_s = max(self.at_s, now_s)
        link_s = self.link_s + passed_s * self.share * _PLANNED_SHARE
        self.link_s = min(link_s, _SAVED_LINK_S)
        # What was saved, and debts, count for the next day too.
        bytes_per_day = self.bytes_per_day - (1 + _MOST_DEBT) * self._saved_bytes
        self.bytes = min(self.bytes + passed_s * bytes_per_day / DAY_S, self._saved_bytes)

    def can_pay(self, link_s: float, amount: int, debt_s: float = 0.0) -> bool:
        """Whether a test fits the budget now, with a debt of up to `debt_s` of link time."""
        if not self.share:
            return False
        debt_bytes = min(debt_s * self.bytes_per_day / DAY_S * 1000, _MOST_DEBT * self._saved_bytes)
        return self.link_s + debt_s >= link_s and self.bytes + debt_bytes >= amount

    @property
    def _saved_bytes(self) -> float:
        """The most that can be saved."""
        return min(_SAVED_BYTES, self.bytes_per_day / 4)

    def pay(self, link_s: float, amount: int) -> None:
        """Charge a test. Negative values correct the plan by what it took."""
        self.link_s -= link_s
        self.bytes -= amount
        self.spent_link_s += link_s
        self.spent_bytes += amount
        self.recent.add(link_s, amount, self.at_s)

    def read(self, name: str, pings_per_minute: float | None = None) -> AccountReading:
        """The account as of the last `refill`."""
        age_s = self.at_s - self.since_s
        hour_s, _ = self.recent.of_last(1, self.at_s)
        day_s, day_bytes = self.recent.of_last(24, self.at_s)
        return AccountReading(
            name=name,
            allowed_share=self.share,
            share=self.spent_link_s / max(age_s, 1.0),
            hour_share=hour_s / min(max(age_s, 1.0), HOUR_S),
            day_share=day_s / min(max(age_s, 1.0), DAY_S),
            bytes_per_day=round(self.bytes_per_day),
            bytes=self.spent_bytes,
            day_bytes=round(day_bytes),
            tests=self.tests,
            age_s=age_s,
            pings_per_minute=pings_per_minute,
        )


@dataclass(slots=True)
class _Running:
    planned: PlannedTest
    ends_s: float


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """What a node was charged for a test that ended before plan number `plan`."""

    amount: int
    link_s: float
    plan: int


class BandwidthPlanner:
    """Plans tests and keeps the budgets. anchors: the preferred servers. interval_s: the least time
    between two tests of a node as client. max_bytes: of one test."""

    def __init__(
        self,
        budget: BandwidthBudget,
        uplinks: Sequence[Uplink] = (),
        anchors: Sequence[str] = (),
        interval_s: float = 22.0,
        max_bytes: int = 30_000_000,
    ) -> None:
        self._budget = budget
        self._anchors = frozenset(anchors)
        self._uplinks = {uplink.name: uplink for uplink in uplinks}
        self._interval_s = interval_s
        self._max_bytes = max_bytes
        self._node_accounts: dict[str, Account] = {}
        self._uplink_accounts: dict[str, Account] = {}
        self._running: dict[str, _Running] = {}
        self._tested_s: dict[str, float] = {}
        self._failures: dict[str, int] = {}  # tests as client since the last result
        self._unsettled: dict[str, list[_Unsettled]] = {}
        self._plans = 0
        self._not_before_s = float("-inf")
        self.not_believed: Set[str] = frozenset()  # these nodes measure nothing

    def pause(self, until_s: float) -> None:
        """Plan nothing while a lease of the previous leader may still run."""
        self._not_before_s = max(self._not_before_s, until_s)

    def plan(
        self, links: Sequence[NodeLink], rtt_ms: Callable[[str, str], float | None], now_s: float
    ) -> list[PlannedTest]:
        """The tests to start now; call `start` for each. rtt_ms: of a pair, None if unknown.

        O(n log n) for n boards.
        """
        if now_s < self._not_before_s:
            return []
        self._release(now_s)
        self._refill([link.name for link in links], now_s)
        self._settle(links)
        self._forget_old(now_s)
        nodes, uplinks = self._taken()
        free = {link.name: link for link in links if link.name not in nodes}
        due = sorted(
            (urgency, not link.is_wanted, self._tested_s.get(link.name, float("-inf")), link.name)
            for link in free.values()
            if (urgency := self._urgency(link, now_s)) is not None
        )
        # Those with the most left serve first, so that no node serves all others.
        believed = free.keys() - self.not_believed
        servers = sorted(believed, key=lambda name: (-self._node_accounts[name].link_s, name))
        paying = [name for name in servers if self._can_pay(free[name], 3)]
        planned: list[PlannedTest] = []
        for urgency, _, _, name in due:
            if len(planned) == _MAX_STARTED_AT_ONCE:
                break
            if name not in free or not self._can_pay(free[name], urgency):
                continue
            waited_s = self._waited_s(name, now_s)
            is_any_useful = waited_s >= _RARELY * self._interval_s
            useful = (
                free[each]
                for each in (servers if urgency < 2 else paying)
                if each in free
                and each != name
                and (is_any_useful or _is_fast_enough(free[each], free[name]))
            )
            others = list(islice(useful, _MAX_PEERS_COMPARED))
            test = self._test_of(free[name], others, urgency, uplinks, rtt_ms)
            if test is None and urgency == 2 and waited_s >= self._interval_s:
                test = self._test_of(free[name], others, 3, uplinks, rtt_ms)
            if test is not None:
                planned.append(test)
                uplinks |= set(test.uplinks)
                del free[test.client], free[test.server]
        return planned

    def start(self, planned: PlannedTest, lease_id: str, now_s: float, ends_s: float) -> None:
        """A lease for the test was granted: it takes the nodes and uplinks until it ends, and their
        budgets are charged. ends_s: the latest end."""
        self._running[lease_id] = _Running(planned, ends_s)
        self._tested_s[planned.client] = now_s
        self._failures[planned.client] = self._failures.get(planned.client, 0) + 1
        self._charge(planned, 1.0)
        for account in self._accounts_of(planned):
            account.tests += 1

    def finish(self, lease_id: str, transferred_bytes: int, *, is_measured: bool) -> None:
        """The test ended: it is charged for the bytes that it transferred. is_measured: with a
        result."""
        running = self._running.pop(lease_id, None)
        if running is None:
            return
        planned = running.planned
        share = transferred_bytes / planned.max_bytes
        self._charge(planned, share - 1.0)
        for name in (planned.client, planned.server):
            charged = _Unsettled(transferred_bytes, planned.link_s[name] * share, self._plans)
            self._unsettled.setdefault(name, []).append(charged)
        if is_measured:
            self._failures.pop(planned.client, None)

    def is_running(self, lease_id: str) -> bool:
        """Whether this lease is in progress."""
        return lease_id in self._running

    def running(self, now_s: float) -> tuple[PlannedTest, ...]:
        """The tests in progress."""
        self._release(now_s)
        return tuple(each.planned for each in self._running.values())

    def accounts(
        self, now_s: float, nodes: Iterable[str] = ()
    ) -> tuple[Mapping[str, Account], Mapping[str, Account]]:
        """The budgets of the nodes and of the uplinks by name, with new ones for `nodes`."""
        self._refill({*self._node_accounts, *nodes}, now_s)
        return self._node_accounts, self._uplink_accounts

    def _urgency(self, link: NodeLink, now_s: float) -> int | None:
        """How urgent a test of the node is, 0 first; None if none is due."""
        bandwidth, waited_s = link.bandwidth, self._waited_s(link.name, now_s)
        doublings = min(max(self._failures.get(link.name, 0) - 1, 0), _MAX_DOUBLINGS)
        if waited_s < _RETRY_S * 2**doublings:
            return None
        if bandwidth is None:
            return 1
        if bandwidth.is_suspect:
            return 0
        interval_s = self._interval_s
        if link.used_mbps > _BUSY_SHARE * bandwidth.mbps:
            interval_s *= _RARELY
        if waited_s < interval_s and not (link.is_wanted and _is_open(link)):
            return None
        return 2 if _is_open(link) else 3

    def _can_pay(self, link: NodeLink, urgency: int) -> bool:
        """Whether the node itself can pay a test. It spares most nodes the search for a peer."""
        least = self._sized(link, link, 3 if urgency == 2 else urgency, (), 0.0)
        account = self._node_accounts[link.name]
        return account.can_pay(least.link_s[link.name], least.max_bytes, _DEBTS_S[urgency])

    def _waited_s(self, node: str, now_s: float) -> float:
        return now_s - self._tested_s.get(node, -DAY_S)

    def _test_of(
        self,
        link: NodeLink,
        others: Iterable[NodeLink],
        urgency: int,
        busy_uplinks: Set[str],
        rtt_ms: Callable[[str, str], float | None],
    ) -> PlannedTest | None:
        """The best test of a node that can be paid."""
        options = []
        for other in others:
            uplinks = self._uplinks_between(link.name, other.name)
            if busy_uplinks & set(uplinks):
                continue
            rtt = rtt_ms(link.name, other.name)
            rank = (
                len(uplinks),
                other.name in link.last_peers[:1],
                other.name not in self._anchors,
                other.bandwidth is None or other.bandwidth.is_suspect,
                urgency == 3 and _is_open(other),  # it saves for a larger test
                _expected_mbps(other) < AGREEING_SHARE * _expected_mbps(link),
                UNKNOWN_RTT_MS if rtt is None else rtt,
                other.name,
            )
            options.append((rank, other, uplinks, rtt))
        for _, other, uplinks, rtt in sorted(options, key=lambda option: option[0]):
            test = self._sized(link, other, urgency, uplinks, rtt)
            if all(
                account.can_pay(test.link_s[name], test.max_bytes, _DEBTS_S[urgency])
                for name, account in zip(_takers(test), self._accounts_of(test), strict=True)
            ):
                return test
        return None

    def _sized(
        self,
        link: NodeLink,
        other: NodeLink,
        urgency: int,
        uplinks: tuple[str, ...],
        rtt: float | None,
    ) -> PlannedTest:
        mbps = min(_expected_mbps(link), _expected_mbps(other))
        if urgency == 0 and link.bandwidth is not None:
            mbps = min(mbps, link.bandwidth.suspected_mbps * _SETTLING_SIZE)
        # A link that is open saves for a larger test.
        refresh = LEAST_BYTES if _is_open(link) else REFRESH_BYTES
        most = (self._max_bytes, LEAST_BYTES, self._max_bytes, refresh)[urgency]
        wanted = mbps * 1e6 / 8 * exact_s(rtt) / _MEASURED_SHARE
        size = max(LEAST_BYTES, min(most, ceil(wanted / BLOCK_BYTES) * BLOCK_BYTES))
        link_s = {each.name: size * 8e-6 / _assumed_mbps(each) for each in (link, other)}
        for name in uplinks:
            link_s[name] = size * 8e-6 / (self._uplinks[name].mbps or _FIRST_MBPS)
        return PlannedTest(link.name, other.name, size, uplinks, link_s)

    def _uplinks_between(self, a: str, b: str) -> tuple[str, ...]:
        return tuple(
            name
            for name, uplink in self._uplinks.items()
            if (a in uplink.nodes) != (b in uplink.nodes)
        )

    def _settle(self, links: Sequence[NodeLink]) -> None:
        """Charge tests at what their link can do as one knows by now. While a node is suspect that
        is open, and at the first plan after a test its result may not be stored."""
        self._plans += 1
        for link in links:
            unsettled = self._unsettled.get(link.name)
            if not unsettled or (link.bandwidth is not None and link.bandwidth.is_suspect):
                continue
            account = self._node_accounts[link.name]
            for each in unsettled:
                if each.plan < self._plans - 1:
                    link_s = each.amount * 8e-6 / _assumed_mbps(link)
                    account.pay(link_s - each.link_s, 0)
            kept = [each for each in unsettled if each.plan >= self._plans - 1]
            self._unsettled[link.name] = kept

    def _taken(self) -> tuple[set[str], set[str]]:
        running = [each.planned for each in self._running.values()]
        nodes = {name for planned in running for name in (planned.client, planned.server)}
        return nodes, {name for planned in running for name in planned.uplinks}

    def _release(self, now_s: float) -> None:
        """End the leases that no node reported on; they stay charged."""
        self._running = {k: each for k, each in self._running.items() if now_s < each.ends_s}

    def _refill(self, nodes: Collection[str], now_s: float) -> None:
        budget = self._budget
        for name in nodes:
            if name not in self._node_accounts:
                account = Account(budget.link_time_share, budget.bytes_per_day, now_s)
                self._node_accounts[name] = account
        for name, uplink in self._uplinks.items():
            if name not in self._uplink_accounts:
                per_day = uplink.bytes_per_day
                limit = budget.bytes_per_day if per_day is None else per_day
                self._uplink_accounts[name] = Account(budget.link_time_share, limit, now_s)
        of_nodes = (self._node_accounts[name] for name in nodes)
        for account in chain(of_nodes, self._uplink_accounts.values()):
            account.refill(now_s)

    def _forget_old(self, now_s: float) -> None:
        """Drop the nodes that were not there for a day."""
        old = [name for name, x in self._node_accounts.items() if now_s - x.at_s > DAY_S]
        for name in old:
            for of_nodes in (self._node_accounts, self._tested_s, self._failures, self._unsettled):
                of_nodes.pop(name, None)

    def _accounts_of(self, planned: PlannedTest) -> list[Account]:
        return [
            *(self._node_accounts[name] for name in (planned.client, planned.server)),
            *(self._uplink_accounts[name] for name in planned.uplinks),
        ]

    def _charge(self, planned: PlannedTest, share: float) -> None:
        for name, account in zip(_takers(planned), self._accounts_of(planned), strict=True):
            account.pay(planned.link_s[name] * share, round(planned.max_bytes * share))


def _takers(planned: PlannedTest) -> tuple[str, ...]:
    return (planned.client, planned.server, *planned.uplinks)


def _is_open(link: NodeLink) -> bool:
    """Whether a larger test could find more than is known."""
    bandwidth = link.bandwidth
    if bandwidth is None or not bandwidth.is_short:
        return False
    return link.link_mbps is None or bandwidth.mbps < _SHARE_OF_LINK_SPEED * link.link_mbps


def _is_fast_enough(peer: NodeLink, link: NodeLink) -> bool:
    """Whether a test with the peer can show if the link is as fast as is believed."""
    known = link.bandwidth
    if known is None:
        return True
    if known.is_suspect:
        return _expected_mbps(peer) * AGREEING_SHARE > known.suspected_mbps
    return _expected_mbps(peer) >= AGREEING_SHARE * known.mbps


def _expected_mbps(link: NodeLink) -> float:
    """What a test may find at most, as far as one can know."""
    most = link.link_mbps or inf
    bandwidth = link.bandwidth
    if bandwidth is None:
        return min(_FIRST_MBPS, most)
    return min(bandwidth.mbps * (_LARGER_EACH_TIME if bandwidth.lower_bound else 1.0), most)


def _assumed_mbps(link: NodeLink) -> float:
    """The speed at which a test is charged."""
    if link.bandwidth is not None:
        return link.bandwidth.mbps
    return min(_FIRST_MBPS, link.link_mbps or inf)
