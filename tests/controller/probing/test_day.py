"""An hour of 50 boards with the faults of `make bench`'s day, and what the auditor must notice."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import BandwidthBudget, Budgets
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.probing.spending import Account
from leadline_controller.telemetry.state import TimesToLive

from tests.controller.probing.day import KNOWN, METERED, NEW_BOARD, NEW_LEADER, Day
from tests.controller.probing.day_audit import HOUR_S
from tests.controller.probing.day_boards import Plan

pytestmark = pytest.mark.experiment

# Ten times as many faults as in the bench.
PLAN = Plan(
    boards=50,
    hours=1.0,
    seed=1,
    lost=0.02,
    doubled=0.05,
    delayed=0.1,
    deaths=2.0,
    departures=0.5,
    leader_every_s=600.0,
)


def day_of(plan: Plan) -> Day:
    day = Day(plan)
    day.run()
    return day


def assert_nothing_is_broken(day: Day) -> None:
    """Every promise that the bench counts. Bandwidths are unknown for the listed reasons alone."""
    audit = day.audit
    assert audit.overlaps == []
    assert audit.conflicts == []
    assert audit.replays == []
    assert audit.broken_budgets(day.plan.hours * HOUR_S) == []
    assert audit.overdue == []
    assert audit.minutes.keys() <= {KNOWN, NEW_BOARD, NEW_LEADER, METERED}
    assert max(audit.ages_s) <= day.plan.ttl.bandwidth_s
    assert len(audit.early) <= 0.01 * audit.transfers


def test_an_hour_of_faults_breaks_neither_leases_nor_budgets() -> None:
    day = day_of(PLAN)
    assert_nothing_is_broken(day)
    # The faults took place, and the work was done nevertheless.
    assert day.counts["changes of leader"] >= 4
    assert day.counts["agents died with a lease"] >= 10
    assert min(day.counts[each] for each in ("boards left", "wall clocks set")) >= 10
    assert day.counts["links throttled"] >= 10
    assert min(day.counts[f"leases {each}"] for each in ("lost", "doubled")) >= 100
    assert min(day.counts[f"messages {each}"] for each in ("lost", "doubled", "delayed")) >= 100
    assert day.audit.transfers >= 3000
    assert day.audit.minutes[KNOWN] >= 0.9 * sum(day.audit.minutes.values())


def test_a_large_cluster_breaks_neither_leases_nor_budgets() -> None:
    """So many boards that a tick plans only for those of which a test is due."""
    limits = ProbeLimits(interval_s=120.0, ping_interval_s=900, ping_ttl_s=2700)
    plan = replace(PLAN, boards=600, hours=0.3, limits=limits, tick_s=2.0, report_every_s=300.0)
    ttl = TimesToLive(report_s=700.0, rtt_s=3000.0)
    day = day_of(replace(plan, ttl=ttl, estimate_every_s=600.0, leader_every_s=300.0))
    assert_nothing_is_broken(day)
    assert day.counts["changes of leader"] >= 3
    assert day.audit.transfers >= 2500


def test_the_auditor_notices_a_planner_that_ignores_uplinks() -> None:
    with patch.object(Budgets, "uplinks_between", lambda *_: ()):
        day = day_of(replace(PLAN, hours=0.25))
    assert day.audit.overlaps


def test_the_auditor_notices_a_leader_that_does_not_wait_for_the_last_ones_leases() -> None:
    with patch.object(BandwidthPlanner, "pause", lambda *_: None):
        day = day_of(replace(PLAN, hours=0.25, leader_every_s=120.0))
    assert day.audit.conflicts


def test_the_auditor_notices_a_planner_that_spends_more_than_it_has() -> None:
    plan = replace(PLAN, boards=20, hours=0.25, budget=BandwidthBudget(bytes_per_day=2_000_000))
    with patch.object(Account, "wait_s", lambda *_: 0.0):
        day = day_of(plan)
    assert day.audit.broken_budgets(HOUR_S)
