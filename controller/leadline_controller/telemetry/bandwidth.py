"""What each node's link can do, from bandwidth tests and from the traffic that it carries.

Each node has its last tests, and nothing else: link_belief.py makes a probability of each speed of
them, and link_bandwidth.py says it in one value.

No node is believed about itself: a rate that it measured as a server, or that it carried, may be
made up. Nor is one server about another node: one that shows more than all others needs a second
one. Times are seconds on the controller's monotonic clock.
"""

from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter

import numpy as np

from leadline_controller.framework.view import Floats
from leadline_controller.telemetry.bandwidth_tests import AGREEING_SHARE, BandwidthTest
from leadline_controller.telemetry.link_bandwidth import (
    COUNTERS,
    INTERFACE,
    LinkBandwidth,
    LinkTest,
    read_belief,
)
from leadline_controller.telemetry.link_belief import (
    SPEEDS_MBPS,
    change_chance,
    later,
    prior,
    share_of_range,
    smooth,
    through_peer,
    window_likelihood,
)

# The tests of a node that count, and of those that say the same.
_MOST, _MOST_ALIKE = 16, 3
# How often a server makes up a rate, of another node and of itself.
_LIES, _OWN_LIES = 0.02, 0.3
# How often something holds up a test and no board notices, and on a board that always notices.
_UNNOTICED, _UNNOTICED_IF_BUSY = 0.005, 0.5
# A board that was held back shows any less of what the link does, but half of it twice as often as
# a quarter: the power of the ratio.
_HELD_BACK = 0.65
# How much a belief moves, as the sum of all changes, so that it says something new of others.
_NEWS = 0.05
_USUAL_MBPS = 1000.0  # what an interface does, if its speed is unknown
# Less traffic says nothing about a link, and without a test no more than the other one is believed.
_LEAST_CARRIED_MBPS, _UNTESTED_MBPS = 1.0, 100.0


@dataclass(frozen=True, slots=True)
class _Carried:
    """The most that a node's traffic took of late."""

    mbps: float
    at_s: float
    source: str


class NodeBandwidths:
    """The bandwidth of every node's link. is_passive: no tests are made, so that the speed of the
    interface counts."""

    def __init__(self, ttl_s: float, *, is_passive: bool = False) -> None:
        self._ttl_s = ttl_s
        self._is_passive = is_passive
        self._tests: dict[str, list[LinkTest]] = {}  # by node, the oldest first
        self._belief: dict[str, Floats] = {}  # after the last test
        self._known: dict[str, LinkBandwidth] = {}
        self._link_mbps: dict[str, float] = {}
        self._carried: dict[str, _Carried] = {}
        self._contradicted_s: dict[str, float] = {}

    def of(self, node: str, now_s: float) -> LinkBandwidth | None:
        """The node's bandwidth; None if unknown."""
        known, carried = self._known.get(node), self._carried.get(node)
        if known is not None and now_s - known.at_s > self._ttl_s:
            known = self._forget_old(node, now_s)
        if carried is None or now_s - carried.at_s > self._ttl_s:
            return known
        if carried.source == INTERFACE:
            return known or LinkBandwidth(carried.mbps, carried.at_s, source=INTERFACE)
        tested = (x.mbps for x in reversed(self._tests.get(node, ())) if not x.is_own)
        mbps = min(carried.mbps, next(tested, AGREEING_SHARE * _UNTESTED_MBPS) / AGREEING_SHARE)
        if known is None:
            return LinkBandwidth(mbps, carried.at_s, lower_bound=True, source=carried.source)
        if known.lower_bound and mbps > known.mbps and not known.is_suspect:
            return replace(known, mbps=mbps, reason="", source=carried.source)
        return known

    def belief(self, node: str, now_s: float) -> Floats | None:
        """The probability of each of SPEEDS_MBPS, shape (g,); None before the first test."""
        if node not in self._belief:
            return None
        chance = change_chance(np.array([now_s - self._tests[node][-1].at_s]))
        found: Floats = later(self._belief[node], chance, self._before([node]))[0]
        return found

    def last_peer(self, node: str) -> str:
        """The other node of the node's last test; "" before the first."""
        tests = self._tests.get(node)
        return tests[-1].other.node if tests else ""

    def is_measured(self, node: str) -> bool:
        """Whether another node has measured this one."""
        return any(not each.is_own for each in self._tests.get(node, ()))

    def contradicted_s(self, node: str) -> float:
        """When traffic last showed more than what is believed."""
        return self._contradicted_s.get(node, -inf)

    def contradicted_after(self, since_s: float) -> set[str]:
        """The nodes of which that was later than `since_s`."""
        return {node for node, at_s in self._contradicted_s.items() if at_s > since_s}

    def drop(self, nodes: Iterable[str]) -> None:
        """Forget the nodes that are no longer in the cluster. What they measured of others stays,
        until it is too old."""
        for node in nodes:
            self._tests.pop(node, None)
            self._belief.pop(node, None)
            self._known.pop(node, None)
            self._carried.pop(node, None)
            self._contradicted_s.pop(node, None)

    # Tests.

    def add(
        self,
        test: BandwidthTest,
        link_mbps: Mapping[str, float | None],
        used_mbps: Mapping[str, float] | None = None,
    ) -> set[str]:
        """Store a test of two nodes. link_mbps: the speeds of their interfaces; used_mbps: their
        users' traffic. Returns the nodes of which it may have changed what is believed."""
        ends = (test.client, test.server)
        self._link_mbps.update({node: link_mbps[node] or inf for node in ends})
        sides = [self._side(test, node, (used_mbps or {}).get(node, 0.0)) for node in ends]
        sides[0].other, sides[1].other = sides[1], sides[0]
        before = [
            belief if (belief := self.belief(node, test.at_s)) is not None else unknown
            for node, unknown in zip(ends, self._before(ends), strict=True)
        ]
        for side in sides:
            self._store(side)
        self._weigh(sides, before[::-1])
        others = self._infer(ends)
        peers: set[str] = set()
        if any(self._moved(*each) for each in zip(ends, before, strict=True)):
            # What is now known of these two may explain what their other peers saw.
            told = {x.other.node for node in ends for x in self._tests[node]} & self._tests.keys()
            peers = told.difference(ends)
            known = {node: self._belief[node] for node in peers}
            self._tell(ends, others, peers)
            self._tell(sorted(peers), self._infer(sorted(peers)), ends)
            self._infer(ends)
            peers = {node for node in peers if self._moved(node, known[node])}
        for node in (*ends, *peers):
            self._known[node] = read_belief(self._belief[node], self._tests[node])
        return {*ends, *peers}

    def _store(self, side: LinkTest) -> None:
        tests = self._tests.setdefault(side.node, [])
        alike = [each for each in tests if each.is_like(side)]
        again = (
            [x for x in alike if x.is_again(side)] or alike[: 1 - _MOST_ALIKE] or tests[: 1 - _MOST]
        )
        if again:
            tests.remove(again[0])
        insort(tests, side, key=attrgetter("at_s"))

    def _moved(self, node: str, before: Floats) -> bool:
        return bool(np.abs(self._belief[node] - before).sum() > _NEWS)

    def _before(self, nodes: Sequence[str]) -> Floats:
        return prior(np.array([self._link_mbps[node] for node in nodes]))

    def _side(self, test: BandwidthTest, node: str, used_mbps: float) -> LinkTest:
        # A test measures what pods leave. What they request is subtracted from the value when the
        # next pod is placed, so what of it flowed beside the test belongs to the value.
        spare_mbps = max(self._link_mbps[node] - test.mbps, 0.0)
        flowing_mbps = min(used_mbps, test.requested_mbps.get(node, 0.0), spare_mbps)
        return LinkTest(
            node=node,
            at_s=test.at_s,
            is_own=node == test.server,
            is_exact=test.is_exact,
            is_hindered=test.is_hindered,
            mbps=test.mbps,
            window=test.window(flowing_mbps, used_mbps),
            used_mbps=used_mbps,
        )

    def _weigh(self, sides: Sequence[LinkTest], of_peers: Sequence[Floats]) -> None:
        """Compute what tests say. of_peers: what all other tests say of the peer at that time."""
        if not sides:
            return
        chances = np.array([self._chances(side) for side in sides])
        own, of_peer = (
            window_likelihood(np.concatenate((np.array(windows), chances), axis=1))
            for windows in ([x.window for x in sides], [x.other.window for x in sides])
        )
        busier_mbps = np.array([side.other.used_mbps - side.used_mbps for side in sides])
        found = through_peer(own, of_peer, np.array(of_peers), busier_mbps)
        for side, likelihood in zip(sides, found, strict=True):
            side.likelihood = likelihood

    def _chances(self, side: LinkTest) -> tuple[float, float, float]:
        """The chances that the link is slower than a test shows, because the server made it up, or
        faster, because something held up the test unnoticed; and the power of that."""
        tests, share = self._tests[side.node], share_of_range(*side.window[::2])
        below = _LIES * share
        if side.is_own:  # who lies about itself says something high
            most_mbps = min(self._link_mbps[side.node], _USUAL_MBPS)
            below = _OWN_LIES * min(side.mbps / most_mbps, 1.0)
        if side.is_hindered:
            return below, min(share * len(SPEEDS_MBPS) / 5, 1.0), _HELD_BACK
        hindered = sum(each.is_hindered for each in tests) / len(tests)
        return below, (_UNNOTICED + _UNNOTICED_IF_BUSY * hindered) * share, 0.0

    def _infer(self, nodes: Sequence[str]) -> Floats:
        """Compute the beliefs of nodes from their tests. Returns what the others say at each test,
        shape (n, k, g), the newest ones at the end."""
        most = max((len(self._tests[node]) for node in nodes), default=0)
        likelihood = np.ones((len(nodes), most, len(SPEEDS_MBPS)))
        at_s = np.zeros((len(nodes), most))
        for at, node in enumerate(nodes):
            tests = self._tests[node]
            likelihood[at, -len(tests) :] = [each.likelihood for each in tests]
            at_s[at] = tests[0].at_s
            at_s[at, -len(tests) :] = [each.at_s for each in tests]
        chance = change_chance(np.diff(at_s, axis=1, prepend=at_s[:, :1]))
        beliefs, others = smooth(likelihood, chance, self._before(nodes))
        self._belief.update(zip(nodes, beliefs, strict=True))
        return others

    def _tell(self, nodes: Sequence[str], others: Floats, peers: Collection[str]) -> None:
        """Weigh the tests of the nodes with these peers anew, as the peers see them. others: as
        `_infer` returns it."""
        told = [
            (side.other, of_node)
            for at, node in enumerate(nodes)
            for side, of_node in zip(
                self._tests[node], others[at, -len(self._tests[node]) :], strict=True
            )
            if side.other.node in peers
        ]
        self._weigh([side for side, _ in told], [of_node for _, of_node in told])

    def _forget_old(self, node: str, now_s: float) -> LinkBandwidth | None:
        """Drop the tests that are too old. Returns what is known without them."""
        self._tests[node] = [x for x in self._tests[node] if now_s - x.at_s <= self._ttl_s]
        if not self._tests[node]:
            del self._tests[node], self._belief[node], self._known[node]
            return None
        self._infer([node])
        self._known[node] = read_belief(self._belief[node], self._tests[node])
        return self._known[node]

    # Traffic.

    def carry(
        self,
        node: str,
        used_mbps: float | None,
        link_mbps: float | None,
        at_s: float,
        source: str = COUNTERS,
    ) -> bool:
        """A report tells the users' traffic, or an event the speed of an image pull (source), and
        the speed of the interface; None if unknown. A link can do what it just carried. Returns
        whether that changes what is believed.

        Both are the node's own words, so they count no more than what another node measured last
        if that agrees. Where that was exact, only a test can show more. Nor do they make a test's
        result valid for longer.
        """
        if at_s == -inf:  # nobody knows when that was
            return False
        before, carried = self.of(node, at_s), self._carried.get(node)
        mbps = min(used_mbps or 0.0, link_mbps or inf)
        if self._is_passive and link_mbps:
            mbps, source = link_mbps, INTERFACE
        if mbps >= _LEAST_CARRIED_MBPS and (
            carried is None
            or mbps >= carried.mbps
            or at_s - carried.at_s > self._ttl_s
            or source == INTERFACE
        ):
            self._carried[node] = _Carried(mbps, at_s, source)
        if before is not None and mbps > before.mbps / AGREEING_SHARE and node in self._known:
            self._contradicted_s[node] = at_s
        after = self.of(node, at_s)
        return after is not None and (before is None or after.mbps != before.mbps)
