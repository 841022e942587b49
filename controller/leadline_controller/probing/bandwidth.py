"""Plans bandwidth tests within a budget. No I/O.

A test has one of four purposes, the most urgent first: to settle a contradiction, to know anything
of a node, to measure its link exactly, and to check that what is believed still holds. Exact
measurements are large and rare, checks are small and regular.

A test takes both nodes, each declared uplink between them, and its part of all their budgets, in
one step.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf, log2

from leadline_controller.probing.budgets import (
    DEBT_S,
    MOST_LINK_S,
    BandwidthBudget,
    Budgets,
    PlannedTest,
    Uplink,
)
from leadline_controller.probing.information import (
    BLOCK_BYTES,
    FIRST_MBPS,
    LEAST_BYTES,
    MEASURED_AGAIN_S,
    Purpose,
    again_s,
    assumed_mbps,
    expected_mbps,
    is_open,
    is_untested,
    is_useful,
    wanted_bytes,
)
from leadline_controller.probing.spending import DAY_S, Account
from leadline_controller.telemetry.bandwidth import AGREEING_SHARE, UNKNOWN_RTT_MS, NodeLink

# A link that carries this share of its bandwidth for users is checked rarely; one that carries as
# much as is believed shows by itself that it can.
_BUSY_SHARE = 0.3
_RARELY = 3.0
_MAX_STARTED_AT_ONCE = 50
_MAX_PEERS_COMPARED = 16
# After a test without a result, and twice as long each time.
_RETRY_S, _MAX_DOUBLINGS = 3.0, 5
_MAX_FAILURES = 16  # of a node, that are remembered
_FAILED_OFTEN = 3  # with one server; then another one is better, even over a declared uplink
_SEEK_EVERY_S = 5.0  # the search for a peer with which a node can pay an exact measurement
# A search costs CPU, so all nodes together make so many a second, but each node one in so long at
# the latest, because other peers may be cheaper by then.
_SEEKS_PER_S, _SEEK_AGAIN_S = 20.0, 240.0
# A node is looked at again after so long: tests cost less than charged, and traffic changes what is
# due.
_LOOK_SOON_S, _LOOK_AGAIN_S = 30.0, 60.0
_FORGET_EVERY_S = 600.0
_CONTRADICTED = 2  # place of a node whose traffic or round trips contradict its bandwidth


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
        self._rarely_s = max(interval_s, min(_RARELY * interval_s, MEASURED_AGAIN_S))
        self._max_bytes = max_bytes
        self._running: dict[str, _Running] = {}
        self._tested_s: dict[str, float] = {}  # as client
        self._checked_s: dict[str, float] = {}  # as either
        # The last test as client with a server that was fast enough, else the first one as client.
        self._checked_as_client_s: dict[str, float] = {}
        self._seek_s: dict[str, float] = {}  # the next search for an exact measurement
        self._look_s: dict[str, float] = {}  # before then no test of the node is due, or paid
        # The servers of the node's tests as client since its last result, the newest last.
        self._failures: dict[str, list[str]] = {}
        self._forgot_s = float("-inf")
        self._seek_again_s = _SEEK_EVERY_S
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
        self.budgets.settle(links)
        self._forget_old(now_s)
        most_s = len(self.budgets.nodes) / _SEEKS_PER_S
        self._seek_again_s = min(max(most_s, _SEEK_EVERY_S), _SEEK_AGAIN_S)
        nodes, uplinks = self._taken()
        free = {link.name: link for link in links if link.name not in nodes}
        # Those with the most left serve first, so that no node serves all others.
        believed = free.keys() - self.not_believed
        servers = sorted(believed, key=lambda name: (-self.budgets.nodes[name].link_s, name))
        paying = [name for name in servers if not self._wait_s(free[name], Purpose.CHECK)]
        planned: list[PlannedTest] = []
        for place, purpose, _, _, name in self._in_order(free.values(), now_s):
            if len(planned) == _MAX_STARTED_AT_ONCE:
                break
            wanted = self._wanted(free[name], place, purpose, now_s) if name in free else None
            if wanted is None:
                continue
            peers = servers if wanted < Purpose.MEASURE else paying
            # Before others, because they may be the only ones that can be paid.
            near = (each for each in self.budgets.neighbours(name) if each in believed)
            peers = [*near, *peers]
            test, wait_s = None, inf
            for kind, others in self._attempts(
                free[name], place, wanted, peers, free, links, now_s
            ):
                test, wait_s = self._test_of(free[name], others, kind, uplinks, rtt_ms)
                if test is not None:
                    break
                if kind is Purpose.MEASURE:
                    self._seek_s[name] = now_s + max(wait_s, _SEEK_EVERY_S)
            if test is None:
                most_s = _SEEK_EVERY_S if purpose is Purpose.SETTLE else self._seek_again_s
                self._look_s[name] = now_s + min(wait_s, most_s)
            else:
                planned.append(test)
                uplinks |= set(test.uplinks)
                del free[test.client], free[test.server]
        return planned

    def _in_order(
        self, links: Iterable[NodeLink], now_s: float
    ) -> list[tuple[int, Purpose, bool, float, str]]:
        """The nodes of which a test is due, the most urgent first: place, purpose, whether no pods
        want it, the last test, name."""
        due = []
        for link in links:
            order, name = self._order(link, now_s), link.name
            if order is not None:
                due.append((*order, not link.is_wanted, self._tested_s.get(name, -inf), name))
            else:
                self._look_s[name] = min(self._due_s(link), now_s + _LOOK_AGAIN_S)
        return sorted(due)

    def _wanted(self, link: NodeLink, place: int, purpose: Purpose, now_s: float) -> Purpose | None:
        """What the node can be tested for now: while it saves for an exact measurement, for a check
        at most. None if it cannot pay."""
        if wait_s := self._wait_s(link, purpose):
            self._look_s[link.name] = now_s + min(wait_s, _LOOK_SOON_S)
            return None
        if purpose is not Purpose.MEASURE or place == _CONTRADICTED:
            return purpose
        seek_s = self._seek_s.get(link.name, -inf)
        if seek_s <= now_s and (wait_s := self._saving_s(link)):
            seek_s = now_s + min(max(wait_s, _SEEK_EVERY_S), self._seek_again_s)
            self._seek_s[link.name] = seek_s
        if now_s >= seek_s:
            return purpose
        if self._is_check_due(link, now_s):
            return Purpose.CHECK
        self._look_s[link.name] = min(seek_s, self._check_s(link))
        return None

    def _attempts(
        self,
        link: NodeLink,
        place: int,
        wanted: Purpose,
        peers: Iterable[str],
        free: Mapping[str, NodeLink],
        links: Iterable[NodeLink],
        now_s: float,
    ) -> Iterator[tuple[Purpose, list[NodeLink]]]:
        """What to test the node for, and the first of the peers whose test can show it. If none of
        them can be paid and the node has waited for long, the first of all.

        Of a suspect another peer is to decide. While tests with all others fail, the same one does
        in turn with them, before what they cost uses up the budget.
        """
        names = [each for each in dict.fromkeys(peers) if each in free and each != link.name]
        kinds = [wanted]
        is_contradicted = place == _CONTRADICTED
        if is_contradicted and is_open(link):  # it saves for a larger test
            is_contradicted = self._waited_s(link.name, now_s) >= self._interval_s
        if wanted is Purpose.MEASURE and (is_contradicted or self._is_check_due(link, now_s)):
            kinds.append(Purpose.CHECK)
        for kind in kinds:
            useful = (free[each] for each in names if is_useful(free[each], link, kind))
            compared = list(islice(useful, _MAX_PEERS_COMPARED))
            if kind is Purpose.SETTLE and compared and self._others_fail(link, links):
                compared = [free[each] for each in names if each == _suspect_peer(link)] or compared
            yield kind, compared
        if self._waited_s(link.name, now_s) >= self._rarely_s:
            yield wanted, [free[each] for each in names[:_MAX_PEERS_COMPARED]]

    def _others_fail(self, link: NodeLink, links: Iterable[NodeLink]) -> bool:
        """Whether tests of a suspect with each peer that could decide have failed since its last
        result, and more often than those with the peer that made it suspect."""
        failures = Counter(self._failures.get(link.name, ()))
        return bool(failures) and all(
            failures[other.name] > failures[_suspect_peer(link)]
            for other in links
            if other.name != link.name
            and other.name not in self.not_believed
            and is_useful(other, link, Purpose.SETTLE)
        )

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
        self._checked_as_client_s.setdefault(planned.client, now_s)
        if planned.checks_client:  # else it is still due, with a faster peer
            self._checked_s[planned.client] = self._checked_as_client_s[planned.client] = now_s
        self._look_s.update(dict.fromkeys((planned.client, planned.server), ends_s))
        failures = self._failures.setdefault(planned.client, [])
        failures.append(planned.server)
        del failures[:-_MAX_FAILURES]
        self.budgets.begin(planned)

    def finish(
        self,
        lease_id: str,
        transferred_bytes: int,
        *,
        is_measured: bool,
        hindered_mbps: float | None = None,
        unhindered: str = "",
        least_mbps: float = 0.0,
    ) -> None:
        """The test ended: it is charged for the bytes that it transferred. is_measured: with a
        result. hindered_mbps: the rate, if a board was held back; unhindered: the other one, if it
        was not. least_mbps: the rate on which both ends agree, if none was: links that are faster
        than believed were busy for less time, so the test that confirms it can be paid sooner."""
        running = self._running.pop(lease_id, None)
        if running is None:
            return
        planned = running.planned
        for name in (planned.client, planned.server):
            self._look_s.pop(name, None)
        most_s = running.most_s
        self.budgets.end(planned, transferred_bytes, most_s, hindered_mbps, unhindered, least_mbps)
        if is_measured:
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

    def _order(self, link: NodeLink, now_s: float) -> tuple[int, Purpose] | None:
        """The node's place, the lowest first, and what it should be tested for; None if no test is
        due."""
        bandwidth, waited_s = link.bandwidth, self._waited_s(link.name, now_s)
        if waited_s < self._retry_s(link.name):
            return None
        if bandwidth is None or is_untested(bandwidth):
            return 1, Purpose.FIRST
        if bandwidth.is_suspect:
            return 0, Purpose.SETTLE
        if link.contradicted_s > now_s - waited_s:
            return _CONTRADICTED, Purpose.MEASURE
        if is_open(link):
            return 3, Purpose.MEASURE
        if now_s - bandwidth.measured_s > again_s(link):
            return 4, Purpose.MEASURE
        return (5, Purpose.CHECK) if self._is_check_due(link, now_s) else None

    def _due_s(self, link: NodeLink) -> float:
        """When a test of a node becomes due of which none is due now."""
        retry_s = self._tested_s.get(link.name, -inf) + self._retry_s(link.name)
        bandwidth = link.bandwidth
        if bandwidth is None:
            return retry_s
        return max(retry_s, min(bandwidth.measured_s + again_s(link), self._check_s(link)))

    def _retry_s(self, node: str) -> float:
        """How long the node waits after a test."""
        failures = len(self._failures.get(node, ()))
        return _RETRY_S * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS)

    def _is_check_due(self, link: NodeLink, now_s: float) -> bool:
        return now_s >= self._check_s(link)

    def _check_s(self, link: NodeLink) -> float:
        """When the node was in no test for long enough. A link that is open saves for an exact
        measurement."""
        carried_share = link.used_mbps / max(assumed_mbps(link), 1e-9)
        interval_s = self._interval_s
        if carried_share >= AGREEING_SHARE:
            interval_s = MEASURED_AGAIN_S
        elif carried_share > _BUSY_SHARE or is_open(link):
            interval_s = self._rarely_s
        # What it says as a server does not make a value valid for longer, nor does a failed test.
        if self._failures.get(link.name):
            as_client_s = self._tested_s[link.name] + self._retry_s(link.name)
        else:
            again_s = max(interval_s, MEASURED_AGAIN_S)
            as_client_s = self._checked_as_client_s.get(link.name, inf) + again_s
        return min(self._checked_s.get(link.name, -inf) + interval_s, as_client_s)

    def _wait_s(self, link: NodeLink, purpose: Purpose) -> float:
        """Seconds until the node itself can pay a test. It spares most nodes the search for a
        peer."""
        amount, link_s = LEAST_BYTES, min(LEAST_BYTES * 8e-6 / assumed_mbps(link), MOST_LINK_S)
        if purpose is Purpose.SETTLE:
            test = self._sized(link, link, purpose, (), 0.0)
            amount, link_s = test.max_bytes, min(test.link_s[link.name], MOST_LINK_S)
        return self.budgets.nodes[link.name].wait_s(link_s, amount, DEBT_S[purpose])

    def _saving_s(self, link: NodeLink) -> float:
        """Seconds until the node itself can pay an exact measurement with the slowest peer that can
        show what is to be known, which is the cheapest."""
        test = self._sized(link, link, Purpose.MEASURE, (), 0.0)
        known_mbps = link.bandwidth.mbps if link.bandwidth else 0.0
        part = min(1.0, AGREEING_SHARE * known_mbps / expected_mbps(link))
        account = self.budgets.nodes[link.name]
        link_s = min(part * test.link_s[link.name], MOST_LINK_S)
        return account.wait_s(link_s, round(part * test.max_bytes))

    def _waited_s(self, node: str, now_s: float) -> float:
        return now_s - self._tested_s.get(node, -inf)

    def _test_of(
        self,
        link: NodeLink,
        others: Iterable[NodeLink],
        purpose: Purpose,
        busy_uplinks: Set[str],
        rtt_ms: Callable[[str, str], float | None],
    ) -> tuple[PlannedTest | None, float]:
        """The best test of a node that can be paid. If there is none, in how many seconds there may
        be one."""
        options = []
        is_suspect = link.bandwidth is not None and link.bandwidth.is_suspect
        is_contradicted = link.contradicted_s > self._tested_s.get(link.name, -inf)
        wanted_mbps = expected_mbps(link, is_check=purpose is Purpose.CHECK)
        for other in others:
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
                # Of two suspects, a faster one may clear both; slow peers explain each result.
                not is_suspect and (other.bandwidth is None or other.bandwidth.is_suspect),
                purpose is Purpose.CHECK and is_open(other),  # it saves for a larger test
                _shortfall(expected_mbps(other), wanted_mbps),
                (purpose is not Purpose.MEASURE or is_contradicted)
                and other.name in link.last_peers[:1],
                other.name not in self._anchors,
                UNKNOWN_RTT_MS if rtt is None else rtt,
                other.name,
            )
            options.append((rank, other, uplinks, rtt))
        few = len(options) < _MAX_PEERS_COMPARED
        least_s = min(self._seek_again_s, _LOOK_SOON_S) if few else self._seek_again_s
        least_s = least_s if options else _SEEK_EVERY_S
        for _, other, uplinks, rtt in sorted(options, key=lambda option: option[0]):
            test = self._sized(link, other, purpose, uplinks, rtt)
            wait_s = self.budgets.wait_s(test, purpose, least_s)
            if not wait_s:
                return test, 0.0
            least_s = min(least_s, wait_s)
        return None, least_s

    def _sized(
        self,
        link: NodeLink,
        other: NodeLink,
        purpose: Purpose,
        uplinks: tuple[str, ...],
        rtt: float | None,
    ) -> PlannedTest:
        wanted = wanted_bytes(link, other, purpose, rtt)
        mbps_of = {each.name: assumed_mbps(each) for each in (link, other)}
        mbps_of |= {name: self.budgets.uplink_mbps(name) or FIRST_MBPS for name in uplinks}
        # More than can be saved is never paid; fewer bytes give a lower bound.
        most = min(
            self._max_bytes,
            MOST_LINK_S * min(mbps_of.values()) * 1e6 / 8,
            self.budgets.most_bytes((link.name, other.name), uplinks),
        )
        blocks = min(ceil(wanted / BLOCK_BYTES), int(most // BLOCK_BYTES))
        size = max(LEAST_BYTES, blocks * BLOCK_BYTES)
        link_s = {name: size * 8e-6 / mbps for name, mbps in mbps_of.items()}
        checks = is_useful(link, other), is_useful(other, link)
        is_last_resort = purpose is Purpose.SETTLE and other.name == _suspect_peer(link)
        return PlannedTest(link.name, other.name, size, uplinks, link_s, *checks, is_last_resort)

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
            checked = self._checked_s, self._checked_as_client_s
            times = (self._tested_s, *checked, self._seek_s, self._look_s)
            self.budgets.forget(name)
            for of_nodes in (*times, self._failures):
                of_nodes.pop(name, None)


def _suspect_peer(link: NodeLink) -> str:
    """The peer whose test made the node suspect; "" if none did."""
    return "" if link.bandwidth is None else link.bandwidth.suspect_peer


def _shortfall(of_peer_mbps: float, mbps: float) -> int:
    """How far a peer is from showing so much: 0 if it can, else how often its link would have to
    become twice as fast."""
    if of_peer_mbps >= AGREEING_SHARE * mbps:
        return 0
    return ceil(log2(mbps / max(of_peer_mbps, 1e-3)))
