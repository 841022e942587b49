"""A budget of 0 is a promise: not even a first test of an unknown node."""

from __future__ import annotations

import pytest
from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import BandwidthBudget, PlannedTest, Uplink
from leadline_controller.probing.spending import DAY_S
from leadline_controller.telemetry.link_bandwidth import NodeLink

from tests.controller.probing.planners import suspect

LINKS = [NodeLink("field"), NodeLink("pi-1"), suspect("pi-2")]


def started_in_a_day(planner: BandwidthPlanner) -> list[PlannedTest]:
    """All tests that are planned, looking every ten minutes. Each one ends before the next look."""
    started: list[PlannedTest] = []
    for number in range(round(DAY_S / 600)):
        for planned in planner.plan(LINKS, lambda _a, _b: None, number * 600.0):
            planner.start(planned, f"lease-{len(started)}", number * 600.0, number * 600.0 + 10)
            started.append(planned)
    return started


@pytest.mark.parametrize(
    ("budget", "tested"),
    [
        (BandwidthBudget(), True),
        (BandwidthBudget(link_time_share=0.0), False),
        (BandwidthBudget(bytes_per_day=0), False),
    ],
    ids=["default", "no link time", "no bytes"],
)
def test_no_test_starts_with_a_budget_of_0(budget: BandwidthBudget, tested: bool) -> None:
    assert bool(started_in_a_day(BandwidthPlanner(budget))) == tested


def test_no_test_crosses_an_uplink_with_a_budget_of_0() -> None:
    lte = Uplink("lte", frozenset({"field"}), mbps=20.0, bytes_per_day=0)
    tests = started_in_a_day(BandwidthPlanner(BandwidthBudget(), [lte]))
    assert tests
    assert all(test.uplinks == () for test in tests)
    assert {name for test in tests for name in (test.client, test.server)} == {"pi-1", "pi-2"}
