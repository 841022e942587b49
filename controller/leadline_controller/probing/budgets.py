"""The budgets of bandwidth tests: what each node and each declared uplink may pay, and has paid. No
I/O.

A test is charged at the speed that is believed of each link, and corrected once its result counts:
on a link that was throttled it took longer than planned.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from leadline_controller.probing.information import Purpose
from leadline_controller.probing.spending import SAVED_LINK_S, SHARE_OF_SAVINGS, Account
from leadline_controller.telemetry.bandwidth import NodeLink

MOST_LINK_S = SHARE_OF_SAVINGS * SAVED_LINK_S  # that is saved before a test runs
# The debt, s of link time, in which a test may put a node: the first ones, and those that settle a
# contradiction, may come before they are paid. A server has less, or the first tests of others
# would put off what is to be settled of itself. If two nodes suspect each other, both are charged
# at the lower speed, and one test settles both. An uplink has less, too: what it may save and owe
# in an hour is no more than the budget promises.
DEBT_S = {Purpose.SETTLE: 0.5, Purpose.FIRST: 0.5, Purpose.MEASURE: 0.0, Purpose.CHECK: 0.0}
_SERVER_DEBT_S = {Purpose.SETTLE: 0.25, Purpose.FIRST: 0.05}
_UPLINK_DEBT_S = 0.15
_MAX_UNSETTLED = 100  # tests of a node that are charged anew once its link is known
_NEIGHBOURS = 8  # on each side of a node in the list of an uplink's nodes
_NONE: frozenset[str] = frozenset()


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
    """A test and what it takes: uplinks by name, the bytes, and the seconds of each one's link.
    checks_server: the client's link is fast enough to check the server's; checks_client: the other
    way round. is_last_resort: the server made the client suspect, and no other peer can decide."""

    client: str
    server: str
    max_bytes: int
    uplinks: tuple[str, ...]
    link_s: Mapping[str, float]
    checks_server: bool = False
    checks_client: bool = True
    is_last_resort: bool = False


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """What a node was charged for a test that ended before plan number `plan`. most_s: the time
    that its lease allowed. mbps: the rate, if the node was held back in the test and the charge is
    still as planned. least_mbps: what both ends agree that the path carried."""

    amount: int
    link_s: float
    most_s: float
    plan: int
    mbps: float | None
    least_mbps: float = 0.0


class Budgets:
    """The accounts of all nodes and uplinks, by name."""

    def __init__(self, budget: BandwidthBudget, uplinks: Sequence[Uplink]) -> None:
        self._budget = budget
        self._declared = {uplink.name: uplink for uplink in uplinks}
        self._behind = {uplink.name: sorted(uplink.nodes) for uplink in uplinks}
        self._uplinks_of: dict[str, frozenset[str]] = {}
        for uplink in uplinks:
            for node in uplink.nodes:
                self._uplinks_of[node] = self._uplinks_of.get(node, _NONE) | {uplink.name}
        self.nodes: dict[str, Account] = {}
        self.uplinks: dict[str, Account] = {}
        self._unsettled: dict[str, list[_Unsettled]] = {}
        self._plans = 0

    def uplinks_between(self, a: str, b: str) -> tuple[str, ...]:
        """The declared uplinks that a test of these two nodes takes."""
        return tuple(sorted(self._uplinks_of.get(a, _NONE) ^ self._uplinks_of.get(b, _NONE)))

    def uplink_mbps(self, uplink: str) -> float | None:
        """The declared speed; None if unknown."""
        return self._declared[uplink].mbps

    def neighbours(self, node: str) -> list[str]:
        """Some nodes behind each of its declared uplinks, which tests with them do not take."""
        found: list[str] = []
        for uplink in sorted(self._uplinks_of.get(node, _NONE)):
            names = self._behind[uplink]
            at = bisect_left(names, node)
            found += (*names[at + 1 : at + 1 + _NEIGHBOURS], *names[: min(at, _NEIGHBOURS)])
        return found

    def refill(self, nodes: Iterable[str], now_s: float) -> None:
        """Add what the time is worth to these nodes and all uplinks, with accounts for the new
        ones."""
        share, per_day = self._budget.link_time_share, self._budget.bytes_per_day
        for name in nodes:
            if name not in self.nodes:
                self.nodes[name] = Account(share, per_day, now_s)
            self.nodes[name].refill(now_s)
        for name, uplink in self._declared.items():
            if name not in self.uplinks:
                account = self.uplinks[name] = Account(share, per_day, now_s)
                if uplink.bytes_per_day is not None:
                    account.bytes_per_day, account.most_debt = uplink.bytes_per_day, 0.0
            self.uplinks[name].refill(now_s)

    def most_bytes(self, nodes: Iterable[str], uplinks: Iterable[str]) -> float:
        """The most that one test may transfer that all of these pay."""
        accounts = [self.nodes[name] for name in nodes] + [self.uplinks[name] for name in uplinks]
        return min(account.most_bytes for account in accounts)

    def wait_s(self, test: PlannedTest, purpose: Purpose, enough_s: float) -> float:
        """Seconds until all of them can pay the test; some time above `enough_s` if it is more."""
        wait_s = 0.0
        for name, account in self._payers(test):
            # On a very slow link even the least takes longer: the rest is a debt.
            link_s, debt_s = min(test.link_s[name], MOST_LINK_S), DEBT_S[purpose]
            if name != test.client:
                is_server = name == test.server
                most_s = _SERVER_DEBT_S.get(purpose, 0.0) if is_server else _UPLINK_DEBT_S
                debt_s = min(debt_s, most_s)
            wait_s = max(wait_s, account.wait_s(link_s, test.max_bytes, debt_s))
            if wait_s >= enough_s:
                break
        return wait_s

    def begin(self, test: PlannedTest) -> None:
        """Charge a test as it is planned."""
        for name, account in self._payers(test):
            account.pay(test.link_s[name], test.max_bytes)
            account.tests += 1

    def end(
        self,
        test: PlannedTest,
        transferred_bytes: int,
        most_s: float,
        hindered_mbps: float | None,
        unhindered: str,
        least_mbps: float,
    ) -> None:
        """Charge a test for the bytes that it transferred. most_s: the time that its lease allowed.
        hindered_mbps: the rate, if a board was held back; unhindered: the other one, if it was not.
        least_mbps: the rate on which both ends agree."""
        share = transferred_bytes / test.max_bytes
        for name, account in self._payers(test):
            missing = round(test.max_bytes * (share - 1.0))
            account.pay(test.link_s[name] * (share - 1.0), missing)
        for name in (test.client, test.server):
            unsettled = self._unsettled.setdefault(name, [])
            mbps = None if name == unhindered else hindered_mbps
            amounts = transferred_bytes, test.link_s[name] * share, most_s
            unsettled.append(_Unsettled(*amounts, self._plans, mbps, least_mbps))
            del unsettled[:-_MAX_UNSETTLED]

    def settle(self, links: Iterable[NodeLink]) -> None:
        """Charge tests at what their link can do, once that is known: call it at each plan. At the
        first one after a test its result may not be stored.

        While the link of a board that was held back is unknown, the test took as long as its rate
        says: such a board may be slow for ever. The rate is the server's word, so that it puts no
        node in more debt than a first test.
        """
        self._plans += 1
        for link in links:
            unsettled, known = self._unsettled.get(link.name), link.bandwidth
            if not unsettled or known is None or known.is_suspect:
                continue
            account = self.nodes[link.name]
            kept = []
            for each in unsettled:
                mbps = each.mbps if known.is_short else known.mbps
                if each.plan >= self._plans - 1 or mbps is None:
                    kept.append(each)
                    continue
                # A test that was cut off is charged for bytes that it had no time to send.
                link_s = min(each.amount * 8e-6 / max(mbps, each.least_mbps), each.most_s)
                if known.is_short:
                    most_s = max(0.0, account.link_s + DEBT_S[Purpose.FIRST])
                    link_s = each.link_s + min(max(link_s - each.link_s, 0.0), most_s)
                    kept.append(replace(each, link_s=link_s, mbps=None))
                account.pay(link_s - each.link_s, 0)
            self._unsettled[link.name] = kept

    def forget(self, node: str) -> None:
        """Drop a node."""
        self.nodes.pop(node, None)
        self._unsettled.pop(node, None)

    def _payers(self, test: PlannedTest) -> Iterator[tuple[str, Account]]:
        for name in (test.client, test.server):
            yield name, self.nodes[name]
        for name in test.uplinks:
            yield name, self.uplinks[name]
