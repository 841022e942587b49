"""Plans bandwidth tests within a budget: the most information for the least link time. No I/O.

A test of a node is due if it would tell enough, or if the node was in none for a while. A test
takes both nodes, each declared uplink between them, and its part of all their budgets, in one step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from math import inf

from leadline_controller.probing.budgets import (
    MOST_LINK_S,
    BandwidthBudget,
    Budgets,
    PlannedTest,
    Uplink,
)
from leadline_controller.probing.information import (
    BLOCK_BYTES,
    LEAST_BYTES,
    Knowledge,
    Purpose,
    change_tells,
    check_bytes,
    sizes,
)
from leadline_controller.probing.spending import DAY_S, Account
from leadline_controller.telemetry.bandwidth_tests import AGREEING_SHARE, UNKNOWN_RTT_MS
from leadline_controller.telemetry.link_bandwidth import SHORT, TESTS, NodeLink

# A link that carries this share of its bandwidth for users is checked rarely; one that carries as
# much as is believed shows by itself that it can.
_BUSY_SHARE = 0.3
_RARELY, _RARELY_S = 3.0, 900.0
# What a test must tell to be due, nats, and as a multiple of what a check tells.
_WORTH, _WORTH_CHECKS = 0.1, 1.5
# A size that tells this share of the best one's for its cost is as good: fewer tests, but on a link
# that turns out to be slow a larger one takes longer, and each new leader finds that out anew.
_AS_GOOD = 0.6
# The link time of a test if a link does no more than was shown.
_MOST_SHOWN_S = 0.5 * MOST_LINK_S
_MAX_STARTED_AT_ONCE = 50
_MAX_PEERS_COMPARED = 16
# After a test without a result, and twice as long each time.
_RETRY_S, _MAX_DOUBLINGS = 3.0, 5
_MAX_FAILURES = 16  # of a node, that are remembered
_FAILED_OFTEN = 3  # with one server; then another one is better, even over a declared uplink
# A node is looked at again after so long: tests cost less than charged, and traffic changes what is
# due.
_LOOK_SOON_S, _LOOK_AGAIN_S = 5.0, 60.0
_FORGET_EVERY_S = 600.0


@dataclass(slots=True)
class _Running:
    planned: PlannedTest
    starts_s: float
    ends_s: float
    most_s: float


class BandwidthPlanner:
    """Plans tests within the budgets. anchors: the preferred servers. interval_s: a node that was
    in no test for so long is checked. max_bytes: of one test."""

    def __init__(
        self,
        budget: BandwidthBudget,
        uplinks: Sequence[Uplink] = (),
        anchors: Sequence[str] = (),
        interval_s: float = 22.0,
        max_bytes: int = 30_000_000,
    ) -> None:
        self._anchors = frozenset(anchors)
        self.budgets = Budgets(budget, uplinks)
        self._interval_s = interval_s
        # However long the interval is, what is known must not become too old meanwhile.
        self._rarely_s = max(interval_s, min(_RARELY * interval_s, _RARELY_S))
        self._worth = max(_WORTH, _WORTH_CHECKS * change_tells(interval_s))
        self._max_bytes = max_bytes
        self._running: dict[str, _Running] = {}
        self._tested_s: dict[str, float] = {}  # as client
        self._checked_s: dict[str, float] = {}  # as either, with a peer that was fast enough
        self._look_s: dict[str, float] = {}  # before then no test of the node is due, or paid
        # The servers of the node's tests as client since its last result, the newest last.
        self._failures: dict[str, list[str]] = {}
        self._forgot_s = float("-inf")
        self._not_before_s = float("-inf")
        self.not_believed: Set[str] = frozenset()  # these nodes measure nothing

    def pause(self, until_s: float) -> None:
        """Plan nothing while a lease of the previous leader may still run."""
        self._not_before_s = max(self._not_before_s, until_s)

    def plan(
        self, links: Sequence[NodeLink], rtt_ms: Callable[[str, str], float | None], now_s: float
    ) -> list[PlannedTest]:
        """The tests to start now; call `start` for each. links: of the nodes to test and of those
        that may serve. rtt_ms: of a pair, None if unknown, infinite if it does not reply to pings.

        O(n log n) for n links.
        """
        if now_s < self._not_before_s:
            return []
        self._release(now_s)
        self.budgets.refill([link.name for link in links], now_s)
        self._forget_old(now_s)
        known = Knowledge(links, [self._is_contradicted(link) for link in links])
        self.budgets.charge_known({name: known.mbps(name) for name in known.row}, known.exact)
        nodes, uplinks = self._taken()
        free = {link.name: link for link in links if link.name not in nodes}
        # Those with the most left serve first, so that no node serves all others.
        believed = free.keys() - self.not_believed
        servers = sorted(believed, key=lambda name: (-self.budgets.nodes[name].link_s, name))
        planned: list[PlannedTest] = []
        for *_, name in sorted(self._due(free.values(), known, now_s)):
            if len(planned) == _MAX_STARTED_AT_ONCE:
                break
            if name not in free:
                continue
            # Neighbours before others, because they may be the only ones that can be paid.
            near = (each for each in self.budgets.neighbours(name) if each in believed)
            peers = (free[x] for x in dict.fromkeys((*near, *servers)) if x in free and x != name)
            test, wait_s = self._test_of(free[name], peers, known, uplinks, rtt_ms, now_s)
            if test is None:
                wait_s = _LOOK_SOON_S if wait_s == inf else min(wait_s, _LOOK_AGAIN_S)
                check_s = max(self._check_s(free[name], known), now_s + _LOOK_SOON_S)
                self._look_s[name] = min(now_s + wait_s, check_s)
            else:
                planned.append(test)
                uplinks |= set(test.uplinks)
                del free[test.client], free[test.server]
        return planned

    def _due(
        self, links: Iterable[NodeLink], known: Knowledge, now_s: float
    ) -> Iterator[tuple[Purpose, bool, float, float, str]]:
        """The nodes of which a test is due, with their order: what is urgent, whether no pods want
        it, minus what is to be learned, the last test, name."""
        for link in links:
            name, tested_s = link.name, self._tested_s.get(link.name, -inf)
            retry_s, check_s = tested_s + self._retry_s(name), self._check_s(link, known)
            purpose, most = _purpose(link), known.most(name)
            is_due = purpose < Purpose.ROUTINE or most >= self._worth or now_s >= check_s
            if is_due and purpose == Purpose.ROUTINE and not self._is_contradicted(link):
                retry_s = max(retry_s, self._look_s.get(name, -inf))
            if now_s >= retry_s and is_due:
                yield purpose, not link.is_wanted, -most, tested_s, name
            else:
                next_s = max(retry_s, check_s if not is_due else retry_s)
                self._look_s[name] = min(next_s, now_s + _LOOK_AGAIN_S)

    def due(self, names: Iterable[str], now_s: float) -> list[str]:
        """Those of the nodes of which a test may be due, the most overdue first: the others need
        not be looked at, unless something contradicts what is believed of them."""
        look_s = self._look_s
        due = [(at, n) for n in names if (at := look_s.get(n, -inf)) <= now_s]
        return [name for _, name in sorted(due)]

    def start(
        self,
        planned: PlannedTest,
        lease_id: str,
        now_s: float,
        ends_s: float,
        most_s: float = inf,
    ) -> None:
        """A lease for the test was granted: it takes the nodes and uplinks until it ends, and their
        budgets are charged. ends_s: the latest end. most_s: how long it may transfer."""
        self._running[lease_id] = _Running(planned, now_s, ends_s, most_s)
        self._tested_s[planned.client] = now_s
        if planned.checks_client:  # else it is still due, with a faster peer
            self._checked_s[planned.client] = now_s
        self._look_s.update(dict.fromkeys((planned.client, planned.server), ends_s))
        failures = self._failures.setdefault(planned.client, [])
        failures.append(planned.server)
        del failures[:-_MAX_FAILURES]
        self.budgets.begin(planned)

    def finish(self, lease_id: str, transferred_bytes: int, mbps: float | None) -> None:
        """The test ended: it is charged for the bytes that it transferred. mbps: the most that it
        showed the links to do, None without a result."""
        running = self._running.pop(lease_id, None)
        if running is None:
            return
        planned = running.planned
        for name in (planned.client, planned.server):
            self._look_s.pop(name, None)
        self.budgets.end(planned, transferred_bytes, running.most_s, mbps)
        if mbps is not None:
            self._failures.pop(planned.client, None)
            if planned.checks_server:
                self._checked_s[planned.server] = running.starts_s

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
        """The budgets of the nodes and of the uplinks by name, with new ones for `nodes`. Those of
        other nodes, which may have left, are as of the last plan with them."""
        self.budgets.refill(nodes, now_s)
        return self.budgets.nodes, self.budgets.uplinks

    def _is_contradicted(self, link: NodeLink) -> bool:
        return link.contradicted_s > self._tested_s.get(link.name, -inf)

    def _retry_s(self, node: str) -> float:
        """How long the node waits after a test."""
        failures = len(self._failures.get(node, ()))
        return _RETRY_S * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS)

    def _check_s(self, link: NodeLink, known: Knowledge) -> float:
        """When the node was in no test for long enough. One that saves for a larger test is checked
        rarely meanwhile, as is one whose users' traffic shows what its link can do."""
        carried_share = link.used_mbps / known.mbps(link.name)
        interval_s = self._interval_s
        if carried_share >= AGREEING_SHARE:
            interval_s = _RARELY_S
        elif carried_share > _BUSY_SHARE or known.most(link.name) >= self._worth:
            interval_s = self._rarely_s
        return self._checked_s.get(link.name, -inf) + interval_s

    def _test_of(
        self,
        link: NodeLink,
        peers: Iterable[NodeLink],
        known: Knowledge,
        busy_uplinks: Set[str],
        rtt_ms: Callable[[str, str], float | None],
        now_s: float,
    ) -> tuple[PlannedTest | None, float]:
        """The test of a node that tells most for its link time and can be paid. If there is none,
        in how many seconds there may be one."""
        options = []
        # Of two nodes that tested each other only, nobody knows which one is slow.
        own_purpose = _purpose(link)
        is_urgent = self._is_contradicted(link) or own_purpose == Purpose.SETTLE
        is_short = link.bandwidth is not None and link.bandwidth.reason == SHORT
        is_open = known.most(link.name) >= self._worth and not is_short
        # A test over a declared uplink would measure the uplink, so there the same peer is better.
        has_others = len(known.row) > 2 and not self.budgets.uplinks
        for other in islice(peers, _MAX_PEERS_COMPARED):
            uplinks = self.budgets.uplinks_between(link.name, other.name)
            if busy_uplinks & set(uplinks):
                continue
            rtt = rtt_ms(link.name, other.name)
            # Where pings are blocked, a test may still succeed.
            is_reachable, rtt = rtt != inf, None if rtt == inf else rtt
            failures = self._failures.get(link.name, []).count(other.name)
            rank = (
                failures >= _FAILED_OFTEN,
                len(uplinks),
                not is_reachable,
                failures,
                other.bandwidth is None or _is_suspect(other),
                is_urgent and other.name == link.last_peer,
                known.shortfall(link.name, other.name),
                is_open and other.name == link.last_peer,
                known.most(other.name) >= self._worth,  # it saves for that
                other.name not in self._anchors,
                UNKNOWN_RTT_MS if rtt is None else rtt,
                other.name,
            )
            options.append((rank, other, uplinks, rtt))
        options.sort(key=lambda option: option[0])
        least_s = inf if options else 0.0  # all peers are busy
        for is_check in (False, True):
            if is_check and now_s < self._check_s(link, known):
                break
            for _, other, uplinks, rtt in options:
                test = self._sized(link, other, uplinks, rtt, known, is_check=is_check)
                # What settles nothing is worth no debt.
                is_again = has_others and other.name == link.last_peer
                settles = not (_is_suspect(other) or (own_purpose == Purpose.FIRST and is_again))
                purpose = own_purpose if settles else Purpose.ROUTINE
                wait_s = self.budgets.wait_s(test, purpose, least_s) if test else inf
                if test and not wait_s:
                    return test, 0.0
                least_s = min(least_s, wait_s)
        return None, least_s

    def _sized(
        self,
        link: NodeLink,
        other: NodeLink,
        uplinks: tuple[str, ...],
        rtt: float | None,
        known: Knowledge,
        *,
        is_check: bool,
    ) -> PlannedTest | None:
        """A test with a peer: the smallest one, or that which tells most for its cost; None if it
        tells too little."""
        ends = (link.name, other.name)
        mbps_of = {name: known.planned_mbps(name) for name in ends}
        mbps_of |= {
            name: self.budgets.uplink_mbps(name) or max(mbps_of.values()) for name in uplinks
        }
        shown_mbps = min(known.shown_mbps(name) for name in ends)
        # More than can be saved is never paid, nor owed if a link does no more than was shown.
        # Fewer bytes give a lower bound.
        most = min(
            self._max_bytes,
            MOST_LINK_S * min(mbps_of.values()) * 1e6 / 8,
            _MOST_SHOWN_S * shown_mbps * 1e6 / 8,
            self.budgets.most_bytes(ends, uplinks),
        )
        purpose = _purpose(link)
        is_settled = purpose == Purpose.SETTLE and not is_check
        least = LEAST_BYTES if is_settled else check_bytes(rtt)
        choice = sizes(least, most // BLOCK_BYTES * BLOCK_BYTES)
        checks_server, checks_client = (
            mbps_of[a.name] >= AGREEING_SHARE * _mbps(b) for a, b in ((link, other), (other, link))
        )
        at, is_worth = 0, checks_client
        if not is_check:
            tells = known.tells(link.name, choice, rtt, other.name)
            tells[tells < (self._worth if purpose == Purpose.ROUTINE else 1e-9)] = 0.0
            # Of the sizes that tell nearly as much for their cost as the best, the one that tells
            # most: fewer tests, and larger. What is in debt for it takes the best.
            for_cost = tells / choice
            as_good = 1.0 if purpose == Purpose.SETTLE else _AS_GOOD
            at = int((tells * (for_cost >= as_good * for_cost.max())).argmax())
            is_worth = tells[at] > 0.0
        size = int(choice[at])
        link_s = {name: size * 8e-6 / mbps for name, mbps in mbps_of.items()}
        shown_s = size * 8e-6 / shown_mbps
        test = PlannedTest(*ends, size, uplinks, link_s, checks_server, checks_client, shown_s)
        return test if is_worth else None

    def _taken(self) -> tuple[set[str], set[str]]:
        running = [each.planned for each in self._running.values()]
        nodes = {name for planned in running for name in (planned.client, planned.server)}
        return nodes, {name for planned in running for name in planned.uplinks}

    def _release(self, now_s: float) -> None:
        """End the leases that no node reported on; they stay charged."""
        self._running = {k: each for k, each in self._running.items() if now_s < each.ends_s}

    def _forget_old(self, now_s: float) -> None:
        """Drop the nodes that were not there for a day."""
        if now_s - self._forgot_s < _FORGET_EVERY_S:
            return
        self._forgot_s = now_s
        old = [name for name, x in self.budgets.nodes.items() if now_s - x.at_s > DAY_S]
        for name in old:
            times = (self._tested_s, self._checked_s, self._look_s)
            self.budgets.forget(name)
            for of_nodes in (*times, self._failures):
                of_nodes.pop(name, None)


def _mbps(link: NodeLink) -> float:
    """What is believed of a link, Mbit/s; 0 if nothing is."""
    return 0.0 if link.bandwidth is None else link.bandwidth.mbps


def _is_suspect(link: NodeLink) -> bool:
    return link.bandwidth is not None and link.bandwidth.is_suspect


def _purpose(link: NodeLink) -> Purpose:
    """What is urgent about a test of the node."""
    known = link.bandwidth
    if known is None or known.source != TESTS or not link.is_measured:
        return Purpose.FIRST
    return Purpose.SETTLE if known.is_suspect else Purpose.ROUTINE
