"""The budgets of bandwidth tests: what each node and each declared uplink may pay, and has paid. No
I/O.

A test is charged at the speed that is believed of each link, and corrected once its result counts:
on a link that was throttled it took longer than planned.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from leadline_wire.codec import MOST_MBPS

from leadline_controller.parsing.settings import REQUIRED, setting
from leadline_controller.probing.information import Purpose
from leadline_controller.probing.spending import SAVED_LINK_S, SHARE_OF_SAVINGS, Account
from leadline_controller.telemetry.bandwidth_tests import AGREEING_SHARE

MOST_LINK_S = SHARE_OF_SAVINGS * SAVED_LINK_S  # that is saved before a test runs
# The debt, s of link time, in which a test may put a node: the first ones, and those that settle a
# contradiction, may come before they are paid. A server has less, or the first tests of others
# would put off what is to be settled of itself. If two nodes suspect each other, both are charged
# at the lower speed, and one test settles both. An uplink has less, too: what it may save and owe
# in an hour is no more than the budget promises.
DEBT_S = {Purpose.SETTLE: 0.5, Purpose.FIRST: 0.5, Purpose.ROUTINE: 0.0}
_SERVER_DEBT_S = {Purpose.SETTLE: 0.25, Purpose.FIRST: 0.05}
_UPLINK_DEBT_S = 0.15
_LEAST_S, _LATE = 0.5, 1.5  # that a test may transfer, and how much longer than computed
_MAX_CHARGED = 100  # tests of a node that are charged anew once its link is known
_NEIGHBOURS = 8  # on each side of a node in the list of an uplink's nodes
_NONE: frozenset[str] = frozenset()


def _name(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("expected a name, without control characters")
    return text


@dataclass(frozen=True, slots=True)
class Uplink:
    """A link that several nodes share on their way to all others."""

    name: str = setting(REQUIRED, "a name that no other uplink has", read=_name)
    nodes: frozenset[str] = setting(REQUIRED, "the names of one node or more behind it", read=_name)
    # None if unknown.
    mbps: float | None = setting(None, "its speed, Mbit/s", least=0.001, most=MOST_MBPS)
    # None for no limit of its own.
    bytes_per_day: int | None = setting(
        None, "bytes of bandwidth tests over it in a day", most=10**15
    )


@dataclass(frozen=True, slots=True)
class BandwidthBudget:
    """What tests may cost each node and uplink."""

    link_time_share: float = setting(
        0.001,
        "the share of its link's time that bandwidth tests may take from each node; see "
        "[the budget](#the-budget-of-bandwidth-tests)",
        most=0.1,
    )
    bytes_per_day: int = setting(
        1_000_000_000,
        "the bytes of bandwidth tests that each node may send and receive in a day",
        most=10**15,
    )


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """A test and what it takes: uplinks by name, the bytes, and the seconds of each one's link."""

    client: str
    server: str
    max_bytes: int
    uplinks: tuple[str, ...]
    link_s: Mapping[str, float]
    checks_server: bool = False  # the client's link is fast enough to check the server's
    checks_client: bool = True  # the other way round
    shown_s: float = 0.0  # how long it takes if the nodes' links do no more than was shown

    def most_s(self, limit_s: float) -> float:
        """How long it may transfer: enough for a link that does no more than was shown, or that has
        become much slower than it was."""
        slower_s = 3 * max(self.link_s.values())
        return min(max(_LEAST_S, slower_s, _LATE * self.shown_s), limit_s)


class _Charged(NamedTuple):
    """What a node was charged for a test that ended before plan number `plan`."""

    peer: str
    amount: int
    link_s: float
    most_s: float  # the time that its lease allowed
    mbps: float  # the most that it showed the links to do, infinite if nothing
    plan: int  # -1 without a result, which would have to be stored first


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
        self._charged: dict[str, list[_Charged]] = {}
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
        self, test: PlannedTest, transferred_bytes: int, most_s: float, mbps: float | None
    ) -> None:
        """Charge a test for the bytes that it transferred. most_s: the time that its lease allowed;
        mbps: the most that it showed the links to do, None without a result."""
        share = transferred_bytes / test.max_bytes
        for name, account in self._payers(test):
            missing = round(test.max_bytes * (share - 1.0))
            account.pay(test.link_s[name] * (share - 1.0), missing)
        for name, peer in ((test.client, test.server), (test.server, test.client)):
            charged = self._charged.setdefault(name, [])
            link_s, plan = test.link_s[name] * share, -1 if mbps is None else self._plans
            most_mbps = inf if mbps is None else mbps
            charged.append(_Charged(peer, transferred_bytes, link_s, most_s, most_mbps, plan))

    def charge_known(self, mbps: Mapping[str, float], exact: Collection[str]) -> None:
        """Charge tests at what their link can do, Mbit/s, once their results are stored, which may
        be after the first plan that follows, and again until that is exact: call it at each plan.
        If neither link explains how slow a test was, both are charged as if it were that slow."""
        self._plans += 1
        for name in mbps.keys() & self._charged.keys():
            charged, self._charged[name] = self._charged[name][-_MAX_CHARGED:], []
            for each in charged:
                if each.plan >= self._plans - 1:
                    self._charged[name].append(each)
                    continue
                is_explained = mbps.get(each.peer, inf) <= each.mbps / AGREEING_SHARE
                speed_mbps = mbps[name] if is_explained else min(mbps[name], each.mbps)
                # A test that was cut off is charged for bytes that it had no time to send.
                link_s = min(each.amount * 8e-6 / speed_mbps, each.most_s)
                self.nodes[name].pay(link_s - each.link_s, 0)
                if name not in exact:
                    self._charged[name].append(each._replace(link_s=link_s))

    def forget(self, node: str) -> None:
        """Drop a node."""
        self.nodes.pop(node, None)
        self._charged.pop(node, None)

    def _payers(self, test: PlannedTest) -> Iterator[tuple[str, Account]]:
        for name in (test.client, test.server):
            yield name, self.nodes[name]
        for name in test.uplinks:
            yield name, self.uplinks[name]
