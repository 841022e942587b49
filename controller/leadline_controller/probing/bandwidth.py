"""Plans bandwidth tests within a budget. No I/O.

A test runs where it says most for its cost: first where a result contradicts what is believed, then
where nothing is known or only a lower bound, then where the last test is oldest. It transfers no
more bytes than a measurement of that link needs. A test takes both nodes, each declared uplink
between them, and its part of their budgets, all in one step.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, islice
from math import ceil, inf

from leadline_controller.telemetry.bandwidth import (
    AGREEING_SHARE,
    EXACT_ROUND_TRIPS,
    EXACT_S,
    NodeLink,
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
# The first test of a node, and one that settles a contradiction, may come before it is paid.
_FIRST_DEBT_S, _SETTLING_DEBT_S = 0.5, 0.05
# A link that carries this share of its bandwidth for users is left alone as long as possible.
_BUSY_SHARE = 0.3
_MAX_STARTED_AT_ONCE = 50
_MAX_PEERS_COMPARED = 16
_RETRY_S = 3.0  # after a test without a result
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
    since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.since_s = self.at_s

    def refill(self, now_s: float) -> None:
        """Add what the time since the last call is worth."""
        passed_s = max(0.0, now_s - self.at_s)
        self.at_s = max(self.at_s, now_s)
        link_s = self.link_s + passed_s * self.share * _PLANNED_SHARE
        self.link_s = min(link_s, _SAVED_LINK_S)
        saved_bytes = min(_SAVED_BYTES, self.bytes_per_day / 4)  # they count for the next day too
        amount = self.bytes + passed_s * (self.bytes_per_day - saved_bytes) / DAY_S
        self.bytes = min(amount, saved_bytes)

    def can_pay(self, link_s: float, amount: int, debt_s: float = 0.0) -> bool:
        """Whether a test fits the budget now, with a debt of up to `debt_s` of link time."""
        if not self.share:
            return False
        debt_bytes = debt_s * self.bytes_per_day / DAY_S * 1000
        return self.link_s + debt_s >= link_s and self.bytes + debt_bytes >= amount

    def pay(self, link_s: float, amount: int) -> None:
        """Charge a test. Negative values correct the plan by what it took."""
        self.link_s -= link_s
        self.bytes -= amount
        self.spent_link_s += link_s
        self.spent_bytes += amount


@dataclass(slots=True)
class _Running:
    planned: PlannedTest
    ends_s: float


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
        self._not_before_s = float("-inf")

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
        nodes, uplinks = self._taken()
        free = {link.name: link for link in links if link.name not in nodes}
        due = sorted(
            (urgency, self._tested_s.get(link.name, float("-inf")), link.name)
            for link in free.values()
            if (urgency := self._urgency(link, now_s)) is not None
        )
        # Those with the most left serve first, so that no node serves all others.
        servers = sorted(free, key=lambda name: (-self._node_accounts[name].link_s, name))
        planned: list[PlannedTest] = []
        for urgency, _, name in due:
            if len(planned) == _MAX_STARTED_AT_ONCE:
                break
            if name not in free:
                continue
            others = (free[each] for each in servers if each in free and each != name)
            test = self._test_of(
                free[name], islice(others, _MAX_PEERS_COMPARED), urgency, uplinks, rtt_ms
            )
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
        self._charge(planned, 1.0)
        for account in self._accounts_of(planned):
            account.tests += 1

    def finish(self, lease_id: str, transferred_bytes: int) -> None:
        """The test ended: it is charged for the bytes that it transferred."""
        running = self._running.pop(lease_id, None)
        if running is not None:
            share = transferred_bytes / running.planned.max_bytes
            self._charge(running.planned, share - 1.0)

    def is_running(self, lease_id: str) -> bool:
        """Whether this lease is in progress."""
        return lease_id in self._running

    def accounts(self, now_s: float) -> tuple[Mapping[str, Account], Mapping[str, Account]]:
        """The budgets of the nodes and of the uplinks by name."""
        self._refill((), now_s)
        return self._node_accounts, self._uplink_accounts

    def _urgency(self, link: NodeLink, now_s: float) -> int | None:
        """How urgent a test of the node is, 0 first; None if none is due."""
        bandwidth, waited_s = link.bandwidth, now_s - self._tested_s.get(link.name, -DAY_S)
        if waited_s < _RETRY_S:
            return None
        if bandwidth is None:
            return 1
        if bandwidth.is_suspect:
            return 0
        interval_s = self._interval_s
        if bandwidth.is_short or link.used_mbps > _BUSY_SHARE * bandwidth.mbps:
            interval_s *= _RARELY
        if waited_s < interval_s:
            return None
        return 2 if _is_open(link) else 3

    def _test_of(
        self,
        link: NodeLink,
        others: Iterable[NodeLink],
        urgency: int,
        busy_uplinks: Set[str],
        rtt_ms: Callable[[str, str], float | None],
    ) -> PlannedTest | None:
        """The best test of a node that can be paid."""
        debt_s = (_SETTLING_DEBT_S, _FIRST_DEBT_S, 0.0, 0.0)[urgency]
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
                _expected_mbps(other) < AGREEING_SHARE * _expected_mbps(link),
                rtt or 0.0,
                other.name,
            )
            options.append((rank, other, uplinks, rtt))
        for _, other, uplinks, rtt in sorted(options, key=lambda option: option[0]):
            test = self._sized(link, other, urgency, uplinks, rtt)
            if all(
                account.can_pay(test.link_s[name], test.max_bytes, debt_s)
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
        seconds = max(EXACT_S, EXACT_ROUND_TRIPS * (rtt or 0.0) / 1000)
        most = (LEAST_BYTES, LEAST_BYTES, self._max_bytes, REFRESH_BYTES)[urgency]
        wanted = mbps * 1e6 / 8 * seconds / _MEASURED_SHARE
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

    def _taken(self) -> tuple[set[str], set[str]]:
        running = [each.planned for each in self._running.values()]
        nodes = {name for planned in running for name in (planned.client, planned.server)}
        return nodes, {name for planned in running for name in planned.uplinks}

    def _release(self, now_s: float) -> None:
        """End the leases that no node reported on; they stay charged."""
        self._running = {k: each for k, each in self._running.items() if now_s < each.ends_s}

    def _refill(self, nodes: Iterable[str], now_s: float) -> None:
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
        for account in chain(self._node_accounts.values(), self._uplink_accounts.values()):
            account.refill(now_s)

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
