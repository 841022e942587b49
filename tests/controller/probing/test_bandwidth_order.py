"""The planner of bandwidth tests: which node is tested next, with which peer and how many bytes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from leadline_controller.probing.budgets import MOST_LINK_S, PlannedTest, Uplink
from leadline_controller.probing.information import (
    BLOCK_BYTES,
    FAR_BYTES,
    LEAST_BYTES,
    Knowledge,
    change_tells,
    sizes,
)
from leadline_controller.telemetry.link_bandwidth import NodeLink

from tests.controller.probing.planners import (
    INTERVAL_S,
    LATER_S,
    Cluster,
    begin,
    bound,
    finish,
    known,
    lan,
    planned_for,
    planner_of,
    suspect,
)
from tests.support.examples import examples

# What a test tells.


def tells(link: NodeLink, size: int, peer: NodeLink | None = None, rtt_ms: float = 0.3) -> float:
    links = [link, peer or known("peer", 1000.0)]
    found = Knowledge(links, [False, False]).tells(link.name, np.array([size]), rtt_ms, "peer")
    return float(found[0])


def test_a_test_tells_more_of_what_is_less_known() -> None:
    exact, unsure, new = known("a"), bound("a"), NodeLink("a", 1000.0)
    assert tells(exact, 10**7) == pytest.approx(0.0, abs=1e-9)
    assert tells(exact, 10**7) < tells(suspect("a"), 10**7) < tells(unsure, 10**7)
    assert tells(unsure, 10**7) < tells(new, 10**7)
    assert change_tells(10.0) < change_tells(1000.0)


def test_what_is_to_be_known_takes_its_bytes() -> None:
    assert tells(bound("a"), LEAST_BYTES) == pytest.approx(0.0, abs=1e-9)
    assert tells(suspect("a"), LEAST_BYTES) == pytest.approx(np.log(2), abs=0.01)
    assert tells(bound("a"), 400_000) > 0.5
    # Over a long way TCP needs more of them.
    assert tells(bound("a"), 400_000, rtt_ms=30.0) == pytest.approx(0.0, abs=1e-9)


def test_a_slow_peer_tells_nothing_of_a_faster_link() -> None:
    assert tells(bound("a"), 10**7, known("peer", 50.0)) == pytest.approx(0.0, abs=1e-9)
    assert tells(suspect("a"), 10**7, known("peer", 50.0)) == pytest.approx(np.log(2), abs=0.01)


@examples(50)
@given(st.integers(LEAST_BYTES, 10**6), st.floats(0.0, 1e8))
def test_the_sizes_are_whole_blocks_within_the_limits(least: int, most: float) -> None:
    least = least // BLOCK_BYTES * BLOCK_BYTES
    found = sizes(least, most)
    assert found[0] == least
    assert (found % BLOCK_BYTES == 0).all()
    assert (found[1:] <= most + BLOCK_BYTES).all()


# The order.


def test_contradictions_come_first_then_unknown_links_then_bounds_then_the_others() -> None:
    links = [
        known("refresh"),
        bound("z-bound"),
        NodeLink("unknown", 1000.0),
        suspect("suspect", 5.0),
        *(known(f"peer-{i}", 1000.0) for i in range(4)),
    ]
    planner = planner_of(links)
    for i in range(4):  # as servers they are free, but no test of theirs is due
        planner._checked_s[f"peer-{i}"] = LATER_S
    planned = planner.plan(links, lan, LATER_S)
    assert [each.client for each in planned] == ["suspect", "unknown", "z-bound", "refresh"]
    assert all(each.server.startswith("peer-") for each in planned)


def test_of_two_bounds_the_one_that_pods_want_comes_first() -> None:
    links = [bound("a"), bound("b", wanted_mbps=150.0)]
    assert [each.client for each in planned_for(links)] == ["b"]


def test_a_known_link_is_tested_each_interval_and_a_busy_one_rarely() -> None:
    for used_mbps, interval_s in ((0.0, INTERVAL_S), (40.0, 3 * INTERVAL_S), (85.0, 900.0)):
        links = [known("a", used_mbps=used_mbps), known("b")]
        planner = planner_of(links)
        test = PlannedTest("a", "b", LEAST_BYTES, (), {"a": 0.0, "b": 0.0})
        finish(planner, test, LATER_S)
        planner._checked_s["b"] = 1e9
        assert planner.plan(links, lan, LATER_S + interval_s - 0.1) == []
        (planned,) = planner.plan(links, lan, LATER_S + interval_s)
        assert (planned.client, planned.max_bytes) == ("a", LEAST_BYTES)


def test_a_check_of_a_far_link_is_larger() -> None:
    links = [known("a"), known("b")]
    (planned,) = planner_of(links).plan(links, lambda *_: 30.0, LATER_S)
    assert planned.max_bytes == FAR_BYTES


def test_after_failures_a_test_is_retried_less_and_less_often() -> None:
    links = [NodeLink("a"), NodeLink("b")]
    planner = planner_of(links)
    planner._tested_s["b"] = 1e9  # only a asks
    started_s = []
    for tick in range(1200):
        now_s = LATER_S + tick / 2
        for planned in planner.plan(links, lan, now_s):
            begin(planner, planned, now_s)
            planner.finish("x-1", 0, None)
            started_s.append(now_s)
    waits = [after - before for before, after in pairwise(started_s)]
    assert waits[:6] == [3.0, 6.0, 12.0, 24.0, 48.0, 96.0]
    assert set(waits[6:]) == {96.0}


def test_what_contradicts_a_belief_brings_a_test_forward_once() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links)
    finish(planner, PlannedTest("a", "b", LEAST_BYTES, (), {"a": 0.0, "b": 0.0}, True), LATER_S)
    assert planner.plan(links, lan, LATER_S + 10) == []
    links[0] = replace(links[0], contradicted_s=LATER_S + 5)
    (planned,) = planner.plan(links, lan, LATER_S + 10)
    finish(planner, planned, LATER_S + 10)
    assert planner.plan(links, lan, LATER_S + 20) == []


def test_a_test_checks_both_ends_unless_the_peer_is_too_slow() -> None:
    (planned,) = planned_for([known("a"), known("b")])
    assert (planned.checks_client, planned.checks_server) == (True, True)
    planner = planner_of(links := [known("slow", 10.0), known("a")])
    planner._checked_s["a"] = LATER_S
    (planned,) = planner.plan(links, lan, LATER_S)
    assert (planned.client, planned.checks_server) == ("slow", False)


# The peer.


def test_anchors_are_the_preferred_servers() -> None:
    planned = planned_for([known(name) for name in "abcdef"], anchors=("e", "gone"))
    assert [each.server for each in planned].count("e") == 1
    assert planned[0].server == "e"


def test_a_near_peer_is_preferred_and_one_that_does_not_reply_is_last() -> None:
    links = [suspect("a"), known("b"), known("c"), known("d")]
    rtts_ms = {"b": float("inf"), "c": 9.0, "d": 1.0}
    planner = planner_of(links)
    (planned, *_) = planner.plan(links, lambda _, peer: rtts_ms[peer], LATER_S)
    assert (planned.client, planned.server) == ("a", "d")
    for name in "cd":
        planner._running.clear()
        links = [link for link in links if link.name != name]
    (planned, *_) = planner.plan(links, lambda _, peer: rtts_ms[peer], LATER_S + 100)
    assert (planned.client, planned.server) == ("a", "b")


def test_another_suspect_settles_nothing_and_nor_does_the_last_peer() -> None:
    links = [suspect("a", peer="b"), suspect("b", peer="a"), known("c"), known("d")]
    planned = {each.client: each.server for each in planned_for(links)}
    assert set(planned) == {"a", "b"}
    assert set(planned.values()) == {"c", "d"}


def test_a_server_that_always_fails_is_not_chosen_for_ever() -> None:
    links = [suspect("a", 50.0), known("b"), known("c")]
    planner, servers = planner_of(links), []
    for turn in range(4):
        now_s = LATER_S + 100 * turn
        planner._checked_s.update(b=now_s, c=now_s)  # only a asks
        (planned,) = planner.plan(links, lan, now_s)
        servers.append(planned.server)
        begin(planner, planned, now_s)
        planner.finish("x-1", planned.max_bytes, None)
    assert sorted(servers) == ["b", "b", "c", "c"]


def test_after_three_failures_a_server_over_an_uplink_is_better() -> None:
    links = [suspect("a", 50.0), known("near"), known("far")]
    planner = planner_of(links, uplinks=(Uplink("lte", frozenset({"far"}), mbps=100.0),))
    planner._failures["a"] = ["near"] * 2
    assert planner.plan(links, lan, LATER_S)[0].server == "near"
    planner._failures["a"] = ["near"] * 3
    assert planner.plan(links, lan, LATER_S)[0].server == "far"


def test_a_bound_waits_for_a_peer_that_can_show_more() -> None:
    links = [bound("a", 100.0), known("b", 50.0)]
    planner = planner_of([*links, known("fast", 1000.0)])
    planner._checked_s.update(a=LATER_S, b=LATER_S, fast=LATER_S)
    assert planner.plan(links, lan, LATER_S + 4) == []
    (planned,) = planner.plan([*links, known("fast", 1000.0)], lan, LATER_S + 10)
    assert (planned.client, planned.server) == ("a", "fast")


# Clusters.


@pytest.mark.slow
@examples(25)
@given(
    st.lists(st.sampled_from([100.0, 20.0, 5.0]), min_size=3, max_size=6),
    st.sampled_from([0.3, 4.0]),
)
def test_all_links_become_known_within_the_budget(speeds: list[float], rtt_ms: float) -> None:
    """But for a single fastest one, of which at least is known what the others show. Links of 5
    Mbit/s pay for a test each 2 minutes, so of more than half of the nodes it takes longer."""
    assume(2 * speeds.count(5.0) <= len(speeds))
    cluster = Cluster({f"n{i}": mbps for i, mbps in enumerate(speeds)}, rtt_ms=rtt_ms)
    cluster.run(900)
    second = sorted(speeds)[-2]
    for node, mbps in cluster.true_mbps.items():
        assert 0.7 * min(mbps, second) <= cluster.of(node).mbps <= 1.05 * mbps
        assert cluster.link_s[node] <= 0.001 * 900 + 1.0


@pytest.mark.slow
def test_a_link_far_below_the_speed_of_its_interface_becomes_known() -> None:
    """Though the tests of one that is probably as fast as its interface are cut off on it."""
    cluster = Cluster({"slow": 20.0, "a": 1000.0, "b": 1000.0}, interface_mbps=1000.0)
    cluster.run(1200)
    assert str(cluster.of("slow")) == "20 Mbit/s"
    assert cluster.link_s["slow"] <= 0.001 * 1200 + MOST_LINK_S


def test_which_of_two_nodes_is_slow_is_not_asked_of_the_same_two_again() -> None:
    cluster = Cluster({"a": 100.0, "b": 5.0, "c": 5.0, "d": 100.0})
    cluster.run(60)
    pairs = [frozenset((each.client, each.server)) for each in cluster.tests]
    assert len(set(pairs[:4])) == 4
    assert [cluster.of(name).mbps for name in "ad"] == [100.0, 100.0]


@pytest.mark.parametrize("count", [3, 4, 12])
def test_a_throttled_link_is_avoided_and_a_freed_one_used(count: int) -> None:
    cluster = Cluster({f"n{i}": 100.0 for i in range(count)})
    cluster.run(200)
    cluster.true_mbps["n0"] = 5.0
    assert cluster.until("n0", 5.0, 60) <= INTERVAL_S + 3
    cluster.run(150)
    assert all(cluster.of(f"n{i}").mbps >= 80.0 for i in range(1, count))
    cluster.true_mbps["n0"] = 100.0
    assert cluster.until("n0", 100.0, 400) <= 300


def test_a_suspicion_is_settled_though_tests_with_a_third_one_always_fail() -> None:
    cluster = Cluster({"a": 100.0, "b": 100.0, "c": 100.0})
    cluster.run(100)
    cluster.failing.add("c")
    cluster.true_mbps["b"] = 8.0
    cluster.until("b", 8.0, 120)
    cluster.run(300)
    assert cluster.of("b").mbps == pytest.approx(8.0)


@pytest.mark.slow
def test_a_board_that_is_always_busy_costs_others_no_more_than_its_own_budget() -> None:
    """It has a bound, which refuses no pod, and the others stay exact."""
    cluster = Cluster(dict.fromkeys([*"abcd", "busy"], 100.0))
    cluster.hindered["busy"] = 40.0
    cluster.run(1800)
    for name in "abcd":
        assert (cluster.of(name).mbps, cluster.of(name).lower_bound) == (100.0, False)
        assert cluster.link_s[name] <= 0.001 * 1800
    assert cluster.of("busy").lower_bound
    assert cluster.of("busy").mbps <= 100.0


@pytest.mark.slow
def test_a_node_whose_faster_peers_left_is_known_by_the_slower_ones() -> None:
    """Its value becomes too old, because no peer that is left can confirm it."""
    cluster = Cluster({"fast": 100.0, "gone": 100.0, "slow": 10.0})
    cluster.run(600)
    assert (cluster.of("fast").mbps, cluster.of("fast").lower_bound) == (100.0, False)
    del cluster.true_mbps["gone"]
    cluster.run(2500)
    assert (cluster.of("fast").mbps, cluster.of("fast").lower_bound) == (10.0, True)
