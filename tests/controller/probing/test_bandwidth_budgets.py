"""The planner of bandwidth tests: several at once, and never over a budget."""

from collections import Counter, defaultdict
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import MOST_LINK_S, BandwidthBudget, PlannedTest, Uplink
from leadline_controller.probing.information import LEAST_BYTES
from leadline_controller.probing.spending import DAY_S, Account
from leadline_controller.telemetry.bandwidth import NodeBandwidths
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.link_bandwidth import NodeLink

from tests.controller.probing.planners import (
    DURATION_S,
    INTERVAL_S,
    LATER_S,
    MOST_BYTES,
    Cluster,
    begin,
    finish,
    known,
    lan,
    planned_for,
    planner_of,
    suspect,
)
from tests.support.examples import examples


def test_tests_that_run_at_once_have_no_node_in_common() -> None:
    planned = planned_for([known(f"n{i}") for i in range(9)])
    nodes = [name for each in planned for name in (each.client, each.server)]
    assert len(planned) == 4
    assert len(set(nodes)) == 8


def test_one_test_at_a_time_crosses_an_uplink() -> None:
    inside, outside = [known(f"in-{i}") for i in range(2)], [known(f"out-{i}") for i in range(2)]
    uplink = Uplink("lte", frozenset({"in-0", "in-1"}), mbps=20.0)
    links = [*inside, *outside]
    # Each side is one node short of a pair: only the uplink leads to the others.
    planned = planned_for([links[0], *outside], uplinks=(uplink,))
    assert [(each.client, each.uplinks) for each in planned] == [("in-0", ("lte",))]
    planned = planned_for(links, uplinks=(uplink,))
    assert {frozenset((each.client, each.server)) for each in planned} == {
        frozenset({"in-0", "in-1"}),
        frozenset({"out-0", "out-1"}),
    }
    planned = planned_for(
        links, uplinks=(uplink,), anchors=("out-0", "out-1")
    )  # an anchor is not worth an uplink
    assert all(not each.uplinks for each in planned)


def test_a_running_test_takes_its_nodes_and_uplinks_until_its_end() -> None:
    uplinks = (
        Uplink("one", frozenset({"a", "b"}), mbps=20.0),
        Uplink("two", frozenset({"a", "b", "c"}), mbps=20.0),
    )
    links = [known(name) for name in "abcd"]
    planner = planner_of(links, uplinks=uplinks)
    crossing = PlannedTest(
        "a", "d", LEAST_BYTES, ("one", "two"), dict.fromkeys(("a", "d", "one", "two"), 0.0)
    )
    begin(planner, crossing, LATER_S)
    assert planner.is_running("x-1")
    assert planner.plan(links, lan, LATER_S + 1) == []  # from b to c is over uplink one
    planner.finish("x-1", LEAST_BYTES, 100.0)
    assert not planner.is_running("x-1")
    assert len(planner.plan(links, lan, LATER_S + 1)) == 2


def test_a_lease_without_reports_expires_and_stays_charged() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links)
    (planned,) = planner.plan(links, lan, LATER_S)
    begin(planner, planned, LATER_S)
    assert len(planner.running(LATER_S + 9.9)) == 1
    assert planner.running(LATER_S + 10.0) == ()
    planner.finish("x-1", 0, None)  # it comes too late
    nodes, _ = planner.accounts(LATER_S + 10.0)
    assert nodes["a"].spent_bytes == planned.max_bytes


def test_after_a_change_of_leader_nothing_is_planned_until_the_old_leases_are_over() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links)
    planner.pause(LATER_S + 10)
    planner.pause(LATER_S + 5)
    assert planner.plan(links, lan, LATER_S + 9.9) == []
    assert planner.plan(links, lan, LATER_S + 10) != []


# Budgets.


def test_a_new_node_is_tested_at_once_and_pays_later() -> None:
    planner = BandwidthPlanner(BandwidthBudget())
    links = [NodeLink("a", 100.0), NodeLink("b", 100.0)]
    (planned,) = planner.plan(links, lan, 0.0)
    finish(planner, planned, 0.0)
    account = planner.accounts(0.0)[0]["a"]
    assert -0.5 <= account.link_s < 0
    assert account.bytes < 0
    after = [known("a"), known("b")]
    first_s = next(now_s for now_s in range(1000) if planner.plan(after, lan, float(now_s)))
    assert first_s >= planned.max_bytes * 8e-6 / 100.0 / 0.001  # what it took


def test_first_tests_of_others_leave_a_server_what_it_needs_to_settle_its_own() -> None:
    new, server = NodeLink("a", 100.0), known("b")
    for server_s, is_tested in ((-0.04, True), (-0.1, False)):
        planner = planner_of([new, server])
        planner._tested_s["b"] = LATER_S
        planner.budgets.refill(["a", "b"], LATER_S)
        accounts = planner.accounts(LATER_S)[0]
        accounts["a"].link_s, accounts["b"].link_s = -0.3, server_s
        assert bool(planner.plan([new, server], lan, LATER_S)) == is_tested


def test_what_is_suspected_of_a_new_node_is_settled_before_its_first_tests_are_paid() -> None:
    links = [suspect("a"), known("b")]
    planner = planner_of(links)
    planner.budgets.refill(["a", "b"], LATER_S)
    planner.accounts(LATER_S)[0]["a"].link_s = -0.2
    planner._tested_s.update(a=LATER_S - 10, b=LATER_S)
    assert [each.client for each in planner.plan(links, lan, LATER_S)] == ["a"]


@pytest.mark.parametrize(
    "budget", [BandwidthBudget(bytes_per_day=0), BandwidthBudget(bytes_per_day=100_000)]
)
def test_without_a_budget_nothing_is_tested(budget: BandwidthBudget) -> None:
    planner = BandwidthPlanner(budget)
    links = [suspect("a"), NodeLink("b")]
    for now_s in range(0, 200_000, 500):
        assert planner.plan(links, lan, float(now_s)) == []


def test_an_uplink_has_a_budget_of_its_own() -> None:
    links = [known("a"), known("b")]
    uplink = Uplink("lte", frozenset({"a"}), mbps=20.0, bytes_per_day=0)
    assert planned_for(links, uplinks=(uplink,)) == []
    assert planned_for(links, uplinks=(replace(uplink, bytes_per_day=None),)) != []


def test_a_test_is_charged_for_what_it_transferred() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links)
    (planned,) = planner.plan(links, lan, LATER_S)
    begin(planner, planned, LATER_S)
    planner.finish("x-1", planned.max_bytes // 4, None)
    planner.finish("x-1", planned.max_bytes, 100.0)  # counts once
    account = planner.accounts(LATER_S)[0]["a"]
    assert account.spent_bytes == planned.max_bytes // 4
    assert account.spent_link_s == pytest.approx(planned.link_s["a"] / 4)
    assert account.tests == 1


@pytest.mark.parametrize(
    ("shown_mbps", "a_mbps", "charged_mbps"),
    [
        (100.0, 100.0, (100.0, 100.0)),
        (5.0, 5.0, (5.0, 100.0)),  # a explains it
        (5.0, 100.0, (5.0, 5.0)),  # nobody does
    ],
)
def test_a_test_is_charged_by_what_is_known_once_its_result_is_stored(
    shown_mbps: float, a_mbps: float, charged_mbps: tuple[float, float]
) -> None:
    planner = planner_of([known("a"), known("b")])
    planner._tested_s.update(a=1e9, b=1e9)
    begin(planner, PlannedTest("a", "b", LEAST_BYTES, (), {"a": 0.01, "b": 0.01}), LATER_S)
    planner.finish("x-1", LEAST_BYTES, shown_mbps)
    for turn in range(3):
        planner.plan([known("a", a_mbps), known("b")], lan, LATER_S + 1 + turn / 2)
    spent_s = [planner.accounts(LATER_S)[0][name].spent_link_s for name in "ab"]
    assert spent_s == pytest.approx([LEAST_BYTES * 8e-6 / mbps for mbps in charged_mbps], rel=0.25)


def test_a_test_that_was_cut_off_on_a_throttled_link_costs_no_more_than_its_lease_allows() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links)
    test = PlannedTest("a", "b", 1_000_000, (), {"a": 0.08, "b": 0.08})
    planner.start(test, "x-1", LATER_S, LATER_S + 10.0, most_s=0.5)
    planner.finish("x-1", test.max_bytes, None)
    for turn in range(3):  # at 5 Mbit/s, all bytes of the lease take 1.6 s
        planner.plan([known("a", 5.0), known("b")], lan, LATER_S + 1 + turn / 2)
    a, b = (planner.accounts(LATER_S)[0][name] for name in "ab")
    assert a.spent_link_s == pytest.approx(0.5)
    assert b.spent_link_s == pytest.approx(0.08)


def test_a_budget_saves_a_limited_amount() -> None:
    account = Account(share=0.001, bytes_per_day=1e9, at_s=0.0)
    account.refill(10 * DAY_S)
    assert (account.link_s, account.bytes) == (1.0, MOST_BYTES)
    account.refill(9 * DAY_S)  # a clock that goes back adds nothing
    assert account.at_s == 10 * DAY_S


def test_a_node_that_left_is_forgotten_after_a_day() -> None:
    links = [known("a"), known("b"), known("left")]
    planner = planner_of(links)
    begin(planner, PlannedTest("left", "b", 1, (), {"left": 1.0, "b": 1.0}), LATER_S)
    planner.finish("x-1", 1, None)
    planner.plan(links[:2], lan, DAY_S)
    assert planner.accounts(DAY_S)[0].keys() == {"a", "b", "left"}
    planner.plan(links[:2], lan, 2 * DAY_S + 1)
    assert planner.accounts(3 * DAY_S)[0].keys() == {"a", "b"}
    assert "left" not in {*planner._tested_s, *planner._failures, *planner.budgets._charged}


def test_reading_the_budgets_keeps_no_node_that_left() -> None:
    links = [known("a"), known("b"), known("left")]
    planner = planner_of(links)
    for hour in range(1, 30):
        planner.plan(links[:2], lan, hour * 3600.0)
        planner.accounts(hour * 3600.0, ("a", "b"))
    assert planner.accounts(DAY_S, ("a", "b"))[0].keys() == {"a", "b"}


def test_a_site_whose_uplink_has_no_bytes_measures_itself() -> None:
    """Its boards compare each other first, however many others are richer."""
    uplink = Uplink("lte", frozenset({"in-0", "in-1"}), mbps=20.0, bytes_per_day=0)
    site = [NodeLink("in-0", 1000.0), NodeLink("in-1", 1000.0)]
    outside = [known(f"out-{i:02}") for i in range(40)]
    planner = planner_of(outside, uplinks=(uplink,))
    planned = planner.plan([*site, *outside], lan, LATER_S)
    assert ("in-0", "in-1") in [(each.client, each.server) for each in planned]


def test_only_nodes_of_which_a_test_is_due_are_looked_at_again() -> None:
    links = [known("a"), known("b"), known("c")]
    planner = planner_of(links)
    names = [link.name for link in links]
    assert planner.due(names, LATER_S) == names
    test, *_ = planner.plan(links, lan, LATER_S)
    begin(planner, test, LATER_S)
    assert {test.client, test.server}.isdisjoint(planner.due(names, LATER_S + 9))  # it runs
    assert {test.client, test.server} <= {*planner.due(names, LATER_S + 10)}  # or is lost
    assert planner.plan(links, lan, LATER_S + 1) == []
    planner.finish("x-1", test.max_bytes, 100.0)
    assert {test.client, test.server} <= {*planner.due(names, LATER_S + 2)}  # as there is a result
    planner.plan(links, lan, LATER_S + 4)
    assert test.client not in planner.due(names, LATER_S + 5)
    assert test.client in planner.due(names, LATER_S + INTERVAL_S)


@pytest.mark.experiment
def test_restarts_do_not_break_the_limit_of_a_metered_uplink() -> None:
    """A new controller starts every 20 minutes, and a board behind the uplink was never tested."""
    uplink = Uplink("lte", frozenset({"a"}), mbps=20.0, bytes_per_day=2_000_000)
    links, spent = [NodeLink("a", 100.0), known("b")], 0
    for _ in range(72):
        planner = BandwidthPlanner(BandwidthBudget(), (uplink,))
        for now_s in range(0, 1200, 5):
            for planned in planner.plan(links, lan, float(now_s)):
                finish(planner, planned, now_s)
        spent += planner.accounts(1200.0)[1]["lte"].spent_bytes
    assert spent <= 2_000_000


@examples(100)
@given(
    st.floats(1e5, 1e12),
    st.lists(st.tuples(st.floats(0.0, 7200.0), st.floats(0.0, 1.0)), min_size=1, max_size=200),
)
def test_no_day_has_more_bytes_than_the_limit(
    per_day: float, requests: list[tuple[float, float]]
) -> None:
    """Whenever tests are asked for, and whether they may be in debt or not."""
    account = Account(share=1.0, bytes_per_day=per_day, at_s=0.0)
    now_s, paid = 0.0, list[tuple[float, int]]()
    for wait_s, share in requests:
        now_s += wait_s
        account.refill(now_s)
        amount = int(share * min(MOST_BYTES, per_day))
        if not account.wait_s(0.0, amount, debt_s=0.5):
            account.pay(0.0, amount)
            paid.append((now_s, amount))
    for start_s, _ in paid:
        in_a_day = sum(amount for at_s, amount in paid if start_s <= at_s < start_s + DAY_S)
        assert in_a_day <= per_day * (1 + 1e-9)


TICK_S, LEASE_S = 20.0, 50.0


class Day:
    """Some days of a cluster with random results, losses and changes of the links, in ticks."""

    def __init__(self, seed: int, budget: BandwidthBudget, uplinks: tuple[Uplink, ...]) -> None:
        self.random, self.uplinks = Random(seed), {each.name: each for each in uplinks}
        names = [f"n{i}" for i in range(6)]
        self.mbps = {name: self.random.choice([20.0, 100.0, 1000.0]) for name in names}
        self.rtt_ms = {(a, b): self.random.choice([0.3, 2.0, 25.0]) for a in names for b in names}
        self.planner = BandwidthPlanner(budget, uplinks, interval_s=INTERVAL_S)
        self.bandwidths = NodeBandwidths(1800.0)
        self.running: dict[str, tuple[PlannedTest, float]] = {}
        self.moved: list[tuple[float, str, int]] = []  # what each node or uplink carried, and when
        self.link_s: defaultdict[str, float] = defaultdict(float)
        self.tests = 0

    def rtt(self, a: str, b: str) -> float:
        return self.rtt_ms[min(a, b), max(a, b)]

    def run(self, days: float) -> None:
        for tick in range(round(days * DAY_S / TICK_S)):
            now_s = tick * TICK_S
            for lease_id, (planned, ends_s) in list(self.running.items()):
                self._advance(lease_id, planned, ends_s, now_s)
            if tick % 1000 == 999:
                name = self.random.choice(list(self.mbps))
                self.mbps[name] = self.random.choice([20.0, 100.0, 1000.0])
            if tick % 750 == 749:
                self.planner.pause(now_s + LEASE_S)
            links = [
                NodeLink(
                    *(name, 1000.0, self.bandwidths.of(name, now_s)),
                    belief=self.bandwidths.belief(name, now_s),
                    last_peer=self.bandwidths.last_peer(name),
                    is_measured=self.bandwidths.is_measured(name),
                )
                for name in self.mbps
            ]
            for planned in self.planner.plan(links, self.rtt, now_s):
                self._start(planned, now_s)

    def _start(self, planned: PlannedTest, now_s: float) -> None:
        takes = {planned.client, planned.server, *planned.uplinks}
        for other, _ in self.running.values():
            assert takes.isdisjoint({other.client, other.server, *other.uplinks})
        self.tests += 1
        lease_id = f"x-{self.tests}"
        most_s = planned.most_s(DURATION_S)
        self.planner.start(planned, lease_id, now_s, now_s + LEASE_S, most_s)
        self.running[lease_id] = (planned, now_s + LEASE_S)

    def _advance(self, lease_id: str, planned: PlannedTest, ends_s: float, now_s: float) -> None:
        kind = self.random.random()
        if kind < 0.1 and now_s < ends_s:
            return  # it takes longer, and perhaps for ever
        del self.running[lease_id]
        amount = planned.max_bytes if kind < 0.8 else self.random.randrange(planned.max_bytes)
        ends = (planned.client, planned.server)
        path_mbps = min(
            *(self.mbps[end] for end in ends),
            *(self.uplinks[name].mbps or 1.0 for name in planned.uplinks),
        )
        in_time = int(path_mbps * 1e6 / 8 * planned.most_s(DURATION_S))
        if amount > in_time:  # the agents end it
            amount, kind = in_time, 1.0
        for name in (*ends, *planned.uplinks):
            mbps = self.mbps.get(name) or self.uplinks[name].mbps or 1.0
            self.moved.append((now_s, name, amount))
            self.link_s[name] += amount * 8e-6 / mbps
        if now_s >= ends_s:
            return
        if kind >= 0.8:
            self.planner.finish(lease_id, amount, None)
        else:
            rtt_ms = self.rtt(*ends)
            seconds = max(amount / 2 * 8e-6 / path_mbps, rtt_ms / 1000)
            test = BandwidthTest(*ends, amount / 2 * 8e-6 / seconds, seconds, now_s, rtt_ms)
            self.planner.finish(lease_id, amount, test.window().high_mbps)
            self.bandwidths.add(test, dict.fromkeys(self.mbps, 1000.0))


@pytest.mark.experiment
@pytest.mark.parametrize(
    ("seed", "budget"),
    [
        (1, BandwidthBudget()),
        (2, BandwidthBudget(bytes_per_day=50_000_000)),
        (3, BandwidthBudget(link_time_share=0.0001)),
        (4, BandwidthBudget(link_time_share=0.01, bytes_per_day=10_000_000_000)),
    ],
)
def test_over_a_day_no_budget_is_broken(seed: int, budget: BandwidthBudget) -> None:
    uplinks = (
        Uplink("lte", frozenset({"n0", "n1"}), mbps=20.0, bytes_per_day=20_000_000),
        Uplink("hall", frozenset({"n0", "n1", "n2"}), mbps=100.0),
    )
    day = Day(seed, budget, uplinks)
    days = 1.25
    day.run(days)
    assert day.tests > 100
    limits = {**dict.fromkeys([*day.mbps, "hall"], budget.bytes_per_day), "lte": 20_000_000}
    for start_s in (0.0, DAY_S / 8, DAY_S / 4):
        spent = Counter[str]()
        for at_s, name, amount in day.moved:
            spent[name] += amount if start_s <= at_s < start_s + DAY_S else 0
        assert all(spent[name] <= limits[name] for name in limits)
    allowed_s = budget.link_time_share * days * DAY_S
    for name in day.mbps:
        assert day.link_s[name] <= allowed_s + MOST_LINK_S, name


# Twelve times 0.38 s are an hour's budget and what may be saved.
@pytest.mark.parametrize(("slow_mbps", "most_s"), [(10.0, 0.38), (5.0, 0.65), (2.0, 0.8)])
def test_each_new_leader_takes_little_of_a_slow_link(slow_mbps: float, most_s: float) -> None:
    others = {f"n{i}": 1000.0 if i % 3 else 100.0 for i in range(1, 6)}
    cluster = Cluster({"slow": slow_mbps, **others}, interface_mbps=1000.0)
    cluster.run(300)
    assert cluster.of("slow").mbps == pytest.approx(slow_mbps, rel=0.1)
    assert cluster.link_s["slow"] <= most_s
