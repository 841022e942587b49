"""What probing costs, as the probe scheduler tells it."""

import threading

import pytest
from leadline_controller.framework.model import Node
from leadline_controller.probing.budgets import BandwidthBudget, Uplink
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.probing.spending import DAY_S, HOUR_S, Account, HourlySpending
from leadline_controller.telemetry.accepted import Agent
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder


def test_the_last_hour_has_what_was_spent_in_it() -> None:
    spending = HourlySpending()
    spending.add(2.0, 100, 10 * HOUR_S + 60)
    assert spending.of_last(1, 10 * HOUR_S + 60) == (2.0, 100)
    assert spending.of_last(1, 11 * HOUR_S) == (2.0, 100)
    assert spending.of_last(1, 11.75 * HOUR_S) == (0.5, 25)  # a quarter of the hour before
    assert spending.of_last(1, 12 * HOUR_S) == (0.0, 0)


def test_the_last_day_has_what_was_spent_in_24_hours() -> None:
    spending = HourlySpending()
    for hour in range(100):
        spending.add(1.0, 10, hour * HOUR_S)
    assert spending.of_last(24, 99 * HOUR_S) == (25.0, 250)
    assert spending.of_last(24, 99.5 * HOUR_S) == (24.5, 245)
    assert spending.of_last(24, 122.5 * HOUR_S) == (1.5, 15)
    assert spending.of_last(24, 130 * HOUR_S) == (0.0, 0)


def test_a_refund_in_the_next_hour_is_never_less_than_nothing() -> None:
    spending = HourlySpending()
    spending.add(1.0, 100, 3599.0)
    spending.add(-0.75, -75, 3601.0)
    assert spending.of_last(24, 3601.0) == pytest.approx((0.25, 25), rel=0.01)
    assert spending.of_last(1, 7200.0) == (0.0, 0.0)


def test_an_account_tells_shares_of_the_time_that_it_was_open() -> None:
    account = Account(0.001, 1000.0, 500.0)
    account.tests = 2
    account.refill(2300.0)
    account.pay(0.9, 600)
    status = account.read("n1", 96.0)
    assert (status.allowed_share, status.bytes_per_day, status.tests) == (0.001, 1000, 2)
    assert status.share == status.hour_share == status.day_share == 0.9 / 1800
    assert (status.bytes, status.day_bytes, status.day_bytes_left) == (600, 600, 400)
    assert (status.age_s, status.pings_per_minute) == (1800.0, 96.0)
    account.refill(500.0 + 3 * DAY_S)
    account.pay(0.1, 1100)
    later = account.read("n1")
    assert later.share == pytest.approx(1.0 / (3 * DAY_S))
    assert (later.hour_share, later.day_share) == pytest.approx((0.1 / HOUR_S, 0.1 / DAY_S))
    assert (later.bytes, later.day_bytes, later.day_bytes_left) == (1700, 1100, 0)


def test_an_account_of_few_bytes_tells_how_long_the_next_test_waits_for_them() -> None:
    account = Account(0.001, 20e6, 0.0, most_debt=0.0)
    account.refill(DAY_S)
    assert account.read("lte").bytes_wait_s == 0, "no test yet"
    account.pay(0.5, round(account.most_bytes))
    account.tests = 1
    waits_s = account.read("lte").bytes_wait_s
    assert HOUR_S < waits_s < DAY_S / 2
    account.refill(DAY_S + waits_s - 1)
    assert account.read("lte").bytes_wait_s == pytest.approx(1)
    account.refill(DAY_S + waits_s + 1)
    assert account.read("lte").bytes_wait_s == 0


def test_with_the_default_budget_the_largest_test_never_waits_for_an_hour() -> None:
    """Else `leadline status` would say after each of them that the bytes of the day are spent."""
    budget = BandwidthBudget()
    account = Account(budget.link_time_share, budget.bytes_per_day, 0.0)
    account.refill(DAY_S)
    account.pay(0.1, round(account.most_bytes))
    account.pay(0.1, round((1 + account.most_debt) * account.bytes))
    account.tests = 1
    assert 0 < account.read("n1").bytes_wait_s < HOUR_S


def test_an_account_that_was_just_opened_has_spent_nothing() -> None:
    status = Account(0.001, 1000.0, 500.0).read("n1")
    assert (status.share, status.hour_share, status.day_bytes_left) == (0.0, 0.0, 1000)


class Boards:
    """Three boards behind an uplink and one that cannot be tested; leases are recorded."""

    def __init__(self) -> None:
        self.sent: list[pb.Lease] = []
        boards = TelemetryBuilder()
        probes = {"n1": ("icmp", "iperf3"), "n2": ("iperf3",), "n3": ("iperf3",), "bare": ("icmp",)}
        for name, each in probes.items():
            agent = Agent(name, address="192.0.2.1", probes=each)
            boards.state.birth(agent, boards.stamp(name))
        nodes = {name: Node(name, addresses=("192.0.2.1",)) for name in probes}
        settings = ProbeSettings(
            limits=ProbeLimits(ping_peers=2, ping_count=2, ping_interval_s=10),
            budget=BandwidthBudget(0.01, 10**9),
            uplinks=(Uplink("lte", frozenset({"n3"}), 10.0, 10**8),),
        )
        self.scheduler = ProbeScheduler(boards.state, self.sent.append, settings, lambda: nodes)


def test_the_scheduler_tells_what_each_board_may_spend_and_what_runs() -> None:
    boards = Boards()
    assert boards.scheduler.budget(0.0).nodes == ()
    boards.scheduler.tick(0.0)
    budget = boards.scheduler.budget(1.0)
    (running,) = budget.running
    nodes = {account.name: account for account in budget.nodes}
    assert list(nodes) == ["bare", "n1", "n2", "n3"]
    assert {account.pings_per_minute for account in budget.nodes} == {24.0}
    assert {name for name, account in nodes.items() if account.tests} == {
        running.client,
        running.server,
    }
    assert nodes[running.client].day_bytes == running.max_bytes
    assert nodes["bare"].bytes == 0
    (lte,) = budget.uplinks
    assert (lte.name, lte.allowed_share, lte.bytes_per_day) == ("lte", 0.01, 10**8)
    assert lte.pings_per_minute is None


def test_a_failed_test_runs_until_both_ends_have_reported_and_costs_all_its_bytes() -> None:
    boards = Boards()
    boards.scheduler.tick(0.0)
    (running,) = boards.scheduler.budget(0.0).running
    (lease_id,) = {lease.bandwidth.lease_id for lease in boards.sent if lease.HasField("bandwidth")}
    ends = (running.client, running.server)
    for node, peer, left in ((*ends, (running,)), (*ends[::-1], ())):
        report = pb.BandwidthReport(
            lease_id=lease_id, peer=peer, outcome=pb.BandwidthReport.FAILED, transferred_bytes=1000
        )
        boards.scheduler.on_bandwidth(node, report, 1.0)
        budget = boards.scheduler.budget(1.0)
        assert budget.running == left
        spent = sorted(account.bytes for account in budget.nodes)
        assert spent == [0, 0, running.max_bytes, running.max_bytes]


def test_a_test_that_no_board_reports_on_runs_until_its_lease_ends() -> None:
    boards = Boards()
    boards.scheduler.tick(0.0)
    boards.scheduler.tick_as_standby(1.0)
    assert len(boards.scheduler.budget(1.0).running) == 1
    boards.scheduler.tick_as_standby(60.0)
    assert boards.scheduler.budget(60.0).running == ()


def test_the_budget_can_be_read_while_tests_are_planned() -> None:
    boards = Boards()
    boards.scheduler.tick(0.0)
    reads: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            reads.append(len(boards.scheduler.budget(0.0).nodes))

    reader = threading.Thread(target=read)
    reader.start()
    for at in range(200):
        boards.scheduler.tick(at * 5.0)
    stop.set()
    reader.join(10.0)
    assert not reader.is_alive()
    assert set(reads) <= {4}
