"""The planner of bandwidth tests: how many bytes a test has."""

from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.probing.budgets import BandwidthBudget, Uplink
from leadline_controller.probing.information import BLOCK_BYTES, FAR_BYTES, LEAST_BYTES
from leadline_controller.telemetry.bandwidth import BandwidthTest, LinkBandwidth, NodeLink

from tests.controller.probing.planners import (
    LAN_MS,
    LATER_S,
    finish,
    known,
    lan,
    planned_for,
    planner_of,
    suspect,
)


@pytest.mark.parametrize(
    ("link", "amount"),
    [
        (NodeLink("a", 1000.0), LEAST_BYTES),
        (known("a", 20.0), LEAST_BYTES),
        (known("a", 900.0), LEAST_BYTES),
        # Five times as much as is known, if it is exact: 500 Mbit/s for 11 ms.
        (known("a", 100.0, lower_bound=True, is_short=True), 42 * BLOCK_BYTES),
        # 100 Mbit/s for 11 ms.
        (suspect("a", 100.0, 900.0), 9 * BLOCK_BYTES),
        (known("a", 100.0, measured_s=LATER_S - 901), 9 * BLOCK_BYTES),
    ],
)
def test_a_test_has_as_many_bytes_as_its_measurement_needs(link: NodeLink, amount: int) -> None:
    links = [link, known("b", 1000.0)]
    planner = planner_of(links)
    planner._tested_s["b"] = LATER_S
    (planned,) = planner.plan(links, lan, LATER_S + 1)
    assert planned.client == "a"
    assert planned.max_bytes == amount


def test_the_bound_that_a_board_which_is_held_back_reaches_ends_the_larger_tests() -> None:
    speed_mbps, rate_mbps = 100.0, 95.6  # of the interface, and what TCP leaves of it
    short: dict[str, Any] = {"lower_bound": True, "is_short": True}
    bound = known("a", 70.0, **short, is_host_limited=True)
    planner = planner_of(links := [replace(bound, link_mbps=speed_mbps), known("b", speed_mbps)])
    (planned,) = planner.plan(links, lan, LATER_S)
    (not_held_back,) = planned_for([known("a", 70.0, **short), known("b", speed_mbps)])
    assert planned.max_bytes > 4 * not_held_back.max_bytes
    seconds = planned.max_bytes / 2 * 8e-6 / rate_mbps
    test = BandwidthTest("a", "b", rate_mbps, seconds, 0.0, LAN_MS, is_hindered=True)
    assert test.value_mbps >= 0.8 * speed_mbps


def test_the_tests_of_a_fast_board_that_is_held_back_become_longer_step_by_step() -> None:
    short: dict[str, Any] = {"lower_bound": True, "is_short": True, "is_host_limited": True}
    bound = known("a", 40.0, **short, measured_bytes=LEAST_BYTES / 2)
    (planned,) = planned_for([replace(bound, link_mbps=1000.0), known("b", 1000.0)])
    assert planned.max_bytes == 16 * LEAST_BYTES
    bound = known("a", 450.0, **short, measured_bytes=8 * LEAST_BYTES)
    (planned,) = planned_for([replace(bound, link_mbps=1000.0), known("b", 1000.0)])
    assert planned.max_bytes > 160 * LEAST_BYTES


def test_a_measurement_between_far_nodes_needs_more_bytes() -> None:
    link = suspect("a", 5.0, 100.0)
    links = [link, known("b", 1000.0)]
    planner = planner_of(links)
    (planned,) = planner.plan(links, lambda *_: 40.0, LATER_S)
    half_s = planned.max_bytes / 2 * 8e-6 / 5.0
    assert 2 * 0.040 <= half_s <= 1.5 * 2 * 0.040


def test_a_check_of_a_far_link_is_larger() -> None:
    links = [known("a"), known("b")]
    (planned,) = planner_of(links).plan(links, lambda *_: 30.0, LATER_S)
    assert planned.max_bytes == FAR_BYTES


@pytest.mark.parametrize("mbps", [20.0, 1.0])
def test_a_test_that_would_cost_more_than_can_be_saved_is_smaller(mbps: float) -> None:
    """An LTE link with a round trip of 600 ms: an exact measurement takes 2.4 s of its time."""
    lte = NodeLink("lte", 100.0, LinkBandwidth(mbps, 0.0, lower_bound=True, is_short=True))
    links = [lte, known("b")]
    planner = planner_of(links)
    planner._tested_s["b"] = planner._checked_s["b"] = 1e9
    sizes = []
    for now_s in range(round(LATER_S), round(LATER_S) + 3000):
        for planned in planner.plan(links, lambda *_: 600.0, float(now_s)):
            assert planned.link_s["lte"] <= 1.0
            sizes.append(planned.max_bytes)
            finish(planner, planned, float(now_s), f"x-{now_s}")
    assert max(sizes) > 1_000_000


def test_no_test_is_larger_than_the_limit() -> None:
    links = [known("a", 500.0, lower_bound=True, is_short=True), known("b", 1000.0)]
    (planned,) = planned_for(links, max_bytes=10 * BLOCK_BYTES)[:1]
    assert planned.max_bytes == 10 * BLOCK_BYTES


def test_what_cannot_be_paid_yet_is_tested_with_fewer_bytes_meanwhile() -> None:
    bound = known("a", 600.0, lower_bound=True, is_short=True)
    links = [bound, known("b", 1000.0)]
    planner = planner_of(links, BandwidthBudget(link_time_share=0.00005))
    sizes = []
    for tick in range(1200):
        for planned in planner.plan(links, lan, float(tick)):
            if planned.client == "a":
                sizes.append(planned.max_bytes)
            finish(planner, planned, float(tick), f"x-{tick}")
    assert sizes[0] == LEAST_BYTES
    assert max(sizes) > 1_000_000  # 1,000 Mbit/s for 10 ms


def test_a_test_is_charged_at_the_speed_of_each_link() -> None:
    uplink = Uplink("lte", frozenset({"a"}), mbps=20.0)
    planned = planned_for([known("a", 100.0), known("b", 50.0)], uplinks=(uplink,))[0]
    megabits = planned.max_bytes * 8e-6
    assert planned.link_s == pytest.approx(
        {"a": megabits / 100, "b": megabits / 50, "lte": megabits / 20}
    )
