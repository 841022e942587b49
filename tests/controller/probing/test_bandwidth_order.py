"""The planner of bandwidth tests: which node is tested next, and with which peer."""

from dataclasses import replace
from itertools import pairwise, permutations
from math import inf
from random import Random

import pytest
from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import BandwidthBudget, PlannedTest, Uplink
from leadline_controller.probing.information import BLOCK_BYTES, FAR_BYTES, LEAST_BYTES
from leadline_controller.telemetry.bandwidth import (
    BandwidthTest,
    LinkBandwidth,
    NodeBandwidths,
    NodeLink,
)

from tests.controller.probing.planners import (
    INTERVAL_S,
    LAN_MS,
    LATER_S,
    MOST_BYTES,
    begin,
    finish,
    known,
    lan,
    planned_for,
    planner_of,
    servers_that_fail,
    suspect,
)


def test_contradictions_come_first_then_unknown_links_then_bounds_then_the_others() -> None:
    links = [
        known("refresh"),
        known("small-bound", lower_bound=True, is_short=True),
        NodeLink("unknown", 1000.0),
        suspect("suspect", 5.0),
        *(known(f"peer-{i}") for i in range(4)),
    ]
    planner = planner_of(links)
    for i in range(4):  # as servers they are free, but no test of theirs is due
        planner._tested_s[f"peer-{i}"] = LATER_S - 10
    planned = planner.plan(links, lan, LATER_S)
    assert [each.client for each in planned] == [
        "suspect",
        "unknown",
        "small-bound",
        "refresh",
    ]
    assert all(each.server.startswith("peer-") for each in planned)


def test_of_equally_urgent_links_the_one_that_waited_longest_is_next() -> None:
    links = [known(name) for name in "abcd"]
    planner = planner_of(links)
    for turn, client in enumerate("cab"):
        finish(planner, PlannedTest(client, "d", LEAST_BYTES, (), {client: 0.0, "d": 0.0}), turn)
    order = []
    for turn in range(4):
        planned = planner.plan(links, lan, LATER_S + INTERVAL_S * turn)
        order.append(planned[0].client)
        finish(planner, planned[0], LATER_S + turn, f"y-{turn}")
    assert order == ["d", "c", "a", "b"]


def test_a_failed_check_is_repeated_soon() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links, interval_s=600.0)
    test = PlannedTest("a", "b", LEAST_BYTES, (), {"a": 0.0, "b": 0.0}, checks_server=True)
    begin(planner, test, LATER_S)
    planner.finish("x-1", 0, is_measured=False)
    planner._checked_s["b"] = LATER_S
    assert planner.plan(links, lan, LATER_S + 2.9) == []
    assert [each.client for each in planner.plan(links, lan, LATER_S + 3.1)] == ["a"]


def test_a_known_link_is_tested_each_interval_and_a_busy_one_rarely() -> None:
    links = [known("a"), replace(known("b"), used_mbps=40.0), known("c")]
    planner = planner_of(links)
    for i, client in enumerate("abc"):
        server = "c" if client != "c" else "a"
        test = PlannedTest(client, server, LEAST_BYTES, (), {client: 0.0, server: 0.0})
        finish(planner, test, LATER_S, f"x-{i}")
    assert planner.plan(links, lan, LATER_S + INTERVAL_S - 0.1) == []
    soon = planner.plan(links, lan, LATER_S + INTERVAL_S)
    assert [each.client for each in soon] == ["a"]  # and c serves it
    clients = {each.client for each in planner.plan(links[1:], lan, LATER_S + 3 * INTERVAL_S - 1)}
    assert clients == {"c"}
    assert planner.plan(links[1:2] + links[:1], lan, LATER_S + 3 * INTERVAL_S)


def test_after_failures_a_test_is_retried_less_and_less_often() -> None:
    links = [NodeLink("a"), NodeLink("b")]
    planner = planner_of(links)
    planner._tested_s["b"] = 1e9  # only a asks
    started_s = []
    for tick in range(1200):
        now_s = LATER_S + tick / 2
        for planned in planner.plan(links, lan, now_s):
            begin(planner, planned, now_s)
            planner.finish("x-1", 0, is_measured=False)
            started_s.append(now_s)
    waits = [after - before for before, after in pairwise(started_s)]
    assert waits[:6] == [3.0, 6.0, 12.0, 24.0, 48.0, 96.0]
    assert set(waits[6:]) == {96.0}


def test_a_result_ends_the_longer_waits() -> None:
    links = [suspect("a", 50.0), known("b")]
    planner = planner_of(links)
    for turn, is_measured in enumerate((False, False, False, True)):
        (planned,) = planner.plan(links, lan, LATER_S + 100 * turn)
        begin(planner, planned, LATER_S + 100 * turn)
        planner.finish("x-1", LEAST_BYTES, is_measured=is_measured)
    assert planner.plan(links, lan, LATER_S + 303)


def test_a_test_checks_both_ends_unless_the_client_is_too_slow() -> None:
    links = [known("a"), known("b"), known("slow", 10.0)]
    planner = planner_of(links)
    (planned,) = planner.plan(links[:2], lan, LATER_S)
    finish(planner, planned, LATER_S)
    assert planner.plan(links[:2], lan, LATER_S + INTERVAL_S - 0.1) == []
    assert len(planner.plan(links[:2], lan, LATER_S + INTERVAL_S)) == 1
    planner = planner_of(links)
    planner._tested_s["a"] = planner._checked_s["a"] = LATER_S
    (by_slow,) = planner.plan([links[2], links[0]], lan, LATER_S)
    assert (by_slow.client, by_slow.checks_server) == ("slow", False)


def test_a_failed_test_is_no_check_of_its_server() -> None:
    links = [known("a"), known("b")]
    for is_measured in (True, False):
        planner = planner_of(links)
        test = PlannedTest("a", "b", LEAST_BYTES, (), {"a": 0.0, "b": 0.0}, checks_server=True)
        begin(planner, test, LATER_S)
        planner.finish("x-1", LEAST_BYTES, is_measured=is_measured)
        planner._tested_s["a"] = LATER_S + 1e6  # only b asks
        planned = planner.plan(links, lan, LATER_S + 5.0)
        assert [each.client for each in planned] == ([] if is_measured else ["b"])


def test_tests_with_too_slow_servers_do_not_put_off_the_check_as_client() -> None:
    links = [known("a"), known("b"), known("slow", 10.0)]
    planner = planner_of(links, interval_s=600.0)
    test = PlannedTest("a", "b", LEAST_BYTES, (), {"a": 0.0, "b": 0.0})
    finish(planner, test, LATER_S)
    for turn in range(1, 10):
        ends, now_s = ("a", "slow"), LATER_S + 100.0 * turn
        slow = PlannedTest(*ends, LEAST_BYTES, (), dict.fromkeys(ends, 0.0), checks_client=False)
        finish(planner, slow, now_s)
        planner._checked_s["a"] = now_s  # as server
    planner._tested_s |= dict.fromkeys(("b", "slow"), 1e9)  # only a asks
    assert planner.plan(links, lan, LATER_S + 899.0) == []
    assert [each.client for each in planner.plan(links, lan, LATER_S + 904.0)] == ["a"]


@pytest.mark.parametrize("mbps", [0.05, 0.3, 0.5])
def test_a_suspect_of_which_the_least_test_takes_all_that_is_saved_is_tested(mbps: float) -> None:
    links = [suspect("a", mbps, peer="x"), suspect("x", mbps, peer="a"), known("b")]
    planner = planner_of(links)
    clients = set()
    for turn in range(4):
        now_s = LATER_S * (turn + 1)
        for number, planned in enumerate(planner.plan(links, lan, now_s)):
            clients.add(planned.client)
            finish(planner, planned, now_s, f"{turn}-{number}")
    assert clients >= {"a", "x"}


def test_a_slow_uplink_pays_all_that_a_test_takes_of_it() -> None:
    uplink = Uplink("lte", frozenset("a"), mbps=0.1, bytes_per_day=None)
    links = [NodeLink("a"), known("b")]
    planner = BandwidthPlanner(BandwidthBudget(), [uplink])
    planner.plan([known("a"), known("b")], lan, 0.0)
    (planned,) = planner.plan(links, lan, LATER_S)
    finish(planner, planned, LATER_S)
    _, uplinks = planner.accounts(LATER_S)
    assert uplinks["lte"].spent_link_s == pytest.approx(LEAST_BYTES * 8e-6 / 0.1)
    assert uplinks["lte"].link_s < -4.0


def test_what_nobody_confirmed_makes_no_test_a_check() -> None:
    liar = NodeLink("b", 1000.0, LinkBandwidth(10.0, 0.0, measured_s=inf, claimed_mbps=900.0))
    planner = planner_of([known("a"), liar])
    planner._tested_s["b"] = planner._checked_s["b"] = 1e9  # only a asks
    for planned in planner.plan([known("a"), liar], lan, LATER_S):
        assert not planned.checks_client
    (checked,) = planner.plan([known("a"), known("b")], lan, LATER_S + 100.0)
    assert checked.checks_client


def test_a_flapping_path_does_not_spend_what_a_node_saves_for_a_larger_test() -> None:
    links = [known("a", 13.0, lower_bound=True, is_short=True), known("b")]
    planner = planner_of(links)
    planner._tested_s["b"] = 1e9  # only a asks
    planner.plan(links[1:], lan, LATER_S)
    planner.budgets.nodes["a"].at_s, planner.budgets.nodes["a"].link_s = LATER_S, 0.02
    sizes = []
    for turn in range(600):
        now_s = LATER_S + turn
        flaps = replace(links[0], contradicted_s=now_s)
        for planned in planner.plan([flaps, links[1]], lambda _a, _b: 30.0, now_s):
            sizes.append(planned.max_bytes)
            finish(planner, planned, now_s, f"x-{turn}")
    # It checks now and then, and at last measures exactly.
    assert 2 <= len(sizes) <= 600 / INTERVAL_S + 1
    assert sizes[0] == LEAST_BYTES
    assert max(sizes) > 5 * FAR_BYTES


FIRST_TESTS = {
    "slow": [("server", "slow-1", 4.0, 0.065)],
    "fast": [("fast", "server", 100.0, 0.0026), ("server", "slow-1", 4.0, 0.065)],
}


@pytest.mark.parametrize("first", FIRST_TESTS)
@pytest.mark.parametrize("server_mbps", [None, 10_000.0])
def test_a_fast_board_whose_first_peer_was_slow_holds_no_other_back(
    first: str, server_mbps: float | None
) -> None:
    """The other fast board needs it to be known. Results are held back at random, so no single one
    proves much."""
    true_mbps = {"fast": 100.0, "slow-1": 4.0, "slow-2": 4.0, "slow-3": 4.0, "server": 1000.0}
    link_mbps = {**dict.fromkeys(true_mbps, 10.0), "fast": 100.0, "server": server_mbps}
    known_for_s = []
    for seed in range(5):
        random, beliefs, now_s, known_s = Random(seed), NodeBandwidths(1800.0), 0.0, 0.0
        planner = BandwidthPlanner(BandwidthBudget(0.1, 10**12), (), ("server",), 5.0)
        for client, server, mbps, seconds in FIRST_TESTS[first]:
            beliefs.add(BandwidthTest(client, server, mbps, seconds, 0.0, LAN_MS), link_mbps)
        for turn in range(1, 601):
            links = [
                NodeLink(
                    *(name, link_mbps[name], beliefs.of(name, now_s), beliefs.last_peers(name)),
                    contradicted_s=beliefs.contradicted_s(name),
                )
                for name in sorted(true_mbps)
            ]
            for number, planned in enumerate(planner.plan(links, far_from_fast, now_s)):
                ends = planned.client, planned.server
                is_hindered, mbps = random.random() < 0.5, min(true_mbps[end] for end in ends)
                mbps *= random.uniform(0.85, 1.0) if is_hindered else 1.0
                seconds = planned.max_bytes * 4e-6 / mbps
                finish(planner, planned, now_s, f"{turn}-{number}")
                test = BandwidthTest(*ends, mbps, seconds, now_s, LAN_MS, is_hindered=is_hindered)
                beliefs.add(test, link_mbps)
            now_s = float(turn)
            fast = beliefs.of("fast", now_s)
            known_s += fast is not None and not fast.is_suspect and fast.mbps > 50.0
        known_for_s.append(known_s)
    assert min(known_for_s) > 400


def far_from_fast(a: str, b: str) -> float:
    return LAN_MS + 0.1 * ("fast" in (a, b))


def test_a_link_that_carries_as_much_as_is_believed_needs_no_check() -> None:
    links = [replace(known("a"), used_mbps=85.0), replace(known("b"), used_mbps=85.0)]
    planner = planner_of(links)
    (planned,) = planner.plan(links, lan, LATER_S)
    finish(planner, planned, LATER_S)
    assert planner.plan(links, lan, LATER_S + 899) == []
    assert len(planner.plan(links, lan, LATER_S + 901)) == 1


def test_what_contradicts_a_belief_brings_a_test_forward_once() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links)
    (planned,) = planner.plan(links, lan, LATER_S)
    finish(planner, planned, LATER_S)
    links[1] = replace(known("b"), contradicted_s=LATER_S + 4)
    (planned,) = planner.plan(links, lan, LATER_S + 5)
    assert planned.client == "b"
    finish(planner, planned, LATER_S + 5)
    assert planner.plan(links, lan, LATER_S + 10) == []


def test_a_node_that_only_its_own_counters_know_is_tested() -> None:
    passive = {"source": "counters", "lower_bound": True, "is_short": True}
    untested, tested = known("a", 20.0, **passive, measured_s=-inf), known("a", 20.0, **passive)
    (planned,) = planned_for([untested, known("b")])
    assert (planned.client, planned.max_bytes) == ("a", LEAST_BYTES)
    (planned,) = planned_for([tested, known("b")])
    assert (planned.client, planned.max_bytes) == ("a", 9 * BLOCK_BYTES)  # 100 Mbit/s, exactly


# With whom.


def test_a_suspect_is_not_tested_again_with_the_same_peer_while_there_are_others() -> None:
    links = [suspect("a", peer="b"), known("b"), known("c")]
    planner = planner_of(links)
    planner._tested_s.update(a=LATER_S - 10, b=LATER_S, c=LATER_S)
    (planned,) = planner.plan(links, lan, LATER_S)
    assert (planned.client, planned.server) == ("a", "c")
    assert planner.plan(links[:2], lan, LATER_S) == []
    (planned,) = planner.plan(links[:2], lan, LATER_S + 3 * INTERVAL_S)
    assert {planned.client, planned.server} == {"a", "b"}


def test_a_suspect_is_tested_with_the_same_peer_if_tests_with_all_others_fail() -> None:
    links = [suspect("a", peer="b"), known("b"), known("c")]
    planner = planner_of(links)
    assert servers_that_fail(planner, links) == ["c", "b", "c", "b"]


def test_a_suspect_waits_for_a_peer_that_is_busy() -> None:
    links = [suspect("a", peer="b"), *map(known, "bcgh")]
    planner = planner_of(links)
    planner._tested_s.update(dict.fromkeys("bcgh", LATER_S))
    (planned,) = planner.plan(links[:3], lan, LATER_S)
    assert planned.server == "c"
    begin(planner, planned, LATER_S)
    planner.finish("x-1", planned.max_bytes, is_measured=False)
    begin(planner, PlannedTest("g", "h", 65_536, (), {"g": 0.0, "h": 0.0}), LATER_S)
    planner._tested_s.update(dict.fromkeys("bc", LATER_S + 10))
    for waited_s in (5, 9):
        for planned in planner.plan(links, lan, LATER_S + waited_s):
            assert planned.server != "b"


@pytest.mark.parametrize("saved_s", [0.0, -0.1, -0.2])
@pytest.mark.parametrize("has_measured", [False, True])
def test_busy_boards_settle_what_is_suspected_though_tests_with_a_third_one_always_fail(
    saved_s: float, has_measured: bool
) -> None:
    """Each failure costs as much as a test, so a few of them would put off the others for minutes:
    the board would keep the value that it had before its link was throttled."""
    true_mbps = {"a": 950.0, "b": 8.0}
    names = ("a", "b", "c")
    bandwidths = NodeBandwidths(1800.0)
    for client, server in (("a", "b"), ("b", "a")):
        first = BandwidthTest(
            client, server, 300.0, 0.001, 0.0, LAN_MS, is_hindered=True, is_untimed=True
        )
        bandwidths.add(first, dict.fromkeys(names, 10_000.0))
    for client, server in permutations(names, 2) if has_measured else ():
        exact = BandwidthTest(client, server, 940.0, 0.1, 0.0, LAN_MS)
        bandwidths.add(exact, dict.fromkeys(names, 10_000.0))
    planner = BandwidthPlanner(BandwidthBudget(), max_bytes=MOST_BYTES)

    def links(now_s: float) -> list[NodeLink]:
        return [
            NodeLink(n, 10_000.0, bandwidths.of(n, now_s), bandwidths.last_peers(n)) for n in names
        ]

    planner.plan(links(0.0), lan, 0.0)
    for name in ("a", "b"):
        planner.budgets.nodes[name].link_s = saved_s
    noticed_s, settled_s = inf, inf
    for now_s in range(1, 600):
        for count, planned in enumerate(planner.plan(links(now_s), lan, now_s)):
            lease_id = f"x-{now_s}-{count}"
            planner.start(planned, lease_id, now_s, now_s + 10.0, 1.5)
            if "c" in (planned.client, planned.server):
                planner.finish(lease_id, planned.max_bytes, is_measured=False)
                continue
            mbps = min(true_mbps[planned.client], true_mbps[planned.server])
            seconds = planned.max_bytes * 4e-6 / mbps
            test = BandwidthTest(
                *(planned.client, planned.server, mbps, seconds, now_s, LAN_MS),
                is_hindered=True,
                is_last_resort=planned.is_last_resort,
            )
            planner.finish(lease_id, planned.max_bytes, is_measured=True, hindered_mbps=mbps)
            bandwidths.add(test, dict.fromkeys(names, 10_000.0))
        believed = bandwidths.of("b", now_s)
        assert believed is not None
        if believed.is_suspect:
            noticed_s = min(noticed_s, now_s)
        if believed.mbps <= 16.0:
            settled_s = now_s
            break
    assert settled_s - noticed_s <= 30.0


def test_anchors_are_the_preferred_servers() -> None:
    links = [known(name) for name in "abcdef"]
    planned = planned_for(links, anchors=("e", "gone"))
    assert planned[0].server == "e"
    assert len(planned) == 3  # one anchor does not hold up the others


def test_the_peer_that_measured_last_is_avoided() -> None:
    a = replace(known("a"), last_peers=("b", "c"))
    planner = planner_of([a, known("b"), known("c")])
    planner._tested_s.update(b=LATER_S, c=LATER_S)
    (planned,) = planner.plan([a, known("b"), known("c")], lan, LATER_S + 1)
    assert (planned.client, planned.server) == ("a", "c")


@pytest.mark.parametrize(
    "other",
    [
        NodeLink("b", 1000.0),
        suspect("b", 5.0),
        known("b", 10.0),
        known("b", lower_bound=True, is_short=True),
    ],
    ids=["unknown", "suspect", "slow", "saving"],
)
def test_a_peer_that_says_little_is_avoided(other: NodeLink) -> None:
    links = [known("a"), other, known("c")]
    planner = planner_of(links)
    planner._tested_s.update(b=LATER_S, c=LATER_S)
    (planned,) = planner.plan(links, lan, LATER_S + 1)
    assert (planned.client, planned.server) == ("a", "c")
    (planned,) = planner.plan(links[:2], lan, LATER_S + 1)  # there is no other
    assert (planned.client, planned.server) == ("a", "b")


def test_a_slower_peer_serves_rarely() -> None:
    links = [known("a"), known("slow", 10.0)]
    planner = planner_of(links)
    test = PlannedTest("a", "slow", LEAST_BYTES, (), {"a": 0.0, "slow": 0.0})
    finish(planner, test, LATER_S)
    planner._tested_s["slow"] = LATER_S + 3 * INTERVAL_S
    assert planner.plan(links, lan, LATER_S + 3 * INTERVAL_S - 1) == []
    (planned,) = planner.plan(links, lan, LATER_S + 3 * INTERVAL_S)
    assert (planned.client, planned.server) == ("a", "slow")


def test_a_bound_waits_for_a_peer_that_can_show_more() -> None:
    bound = known("a", 100.0, lower_bound=True, is_short=True)
    links = [bound, known("slow", 100.0), known("fast", 1000.0)]
    planner = planner_of(links, anchors=("slow",))
    planner._tested_s = {"a": LATER_S - 10, "slow": LATER_S, "fast": LATER_S}
    planner._checked_s = dict.fromkeys(("a", "slow", "fast"), LATER_S)
    fast = planner.accounts(LATER_S, ["fast"])[0]["fast"]
    fast.link_s = -1.0
    assert planner.plan(links, lan, LATER_S + 1) == []
    fast.link_s = 1.0
    (planned,) = planner.plan(links, lan, LATER_S + 10)
    assert (planned.client, planned.server) == ("a", "fast")


def test_a_node_whose_faster_peers_left_is_known_by_the_slower_ones() -> None:
    """Its value becomes too old, because no peer that is left can confirm it."""
    mbps = {"fast": 100.0, "gone": 100.0, "slow": 10.0}
    planner, bandwidths = BandwidthPlanner(BandwidthBudget()), NodeBandwidths(1800.0)
    believed: list[tuple[float, bool]] = []
    for now_s in range(0, 4500, 5):
        names = [name for name in mbps if name != "gone" or now_s < 900]
        links = [
            NodeLink(name, 100.0, bandwidths.of(name, now_s), bandwidths.last_peers(name))
            for name in names
        ]
        for planned in planner.plan(links, lan, now_s):
            finish(planner, planned, now_s)
            ends = planned.client, planned.server
            rate = min(mbps[end] for end in ends)
            seconds = planned.max_bytes / 2 * 8e-6 / rate
            test = BandwidthTest(*ends, rate, seconds, now_s, LAN_MS)
            bandwidths.add(test, dict.fromkeys(mbps, 100.0))
        of_fast = bandwidths.of("fast", now_s + 5)
        assert of_fast is not None, now_s
        believed.append((round(of_fast.mbps), of_fast.lower_bound))
    changes = [believed[0]] + [after for before, after in pairwise(believed) if after != before]
    assert changes[-2:] == [(100, False), (10, True)]


def test_a_check_with_a_slower_peer_is_repeated_as_soon_as_there_is_a_faster_one() -> None:
    links = [known("a", 1000.0), known("slow", 10.0)]
    planner = planner_of([*links, known("fast", 1000.0)])
    planner._tested_s["slow"] = planner._checked_s["slow"] = LATER_S
    planner._tested_s["fast"] = planner._checked_s["fast"] = LATER_S
    (planned,) = planner.plan(links, lan, LATER_S)
    assert (planned.client, planned.server) == ("a", "slow")
    finish(planner, planned, LATER_S)
    now_s = LATER_S + 10.0
    assert planner.plan(links, lan, now_s) == []  # the slower one says nothing
    (planned,) = planner.plan([*links, known("fast", 1000.0)], lan, now_s + 1)
    assert (planned.client, planned.server) == ("a", "fast")


def test_a_peer_as_slow_as_what_is_suspected_does_not_settle_it() -> None:
    a = suspect("a", 45.0, 1000.0)
    links = [a, known("b", 50.0), known("c", 60.0)]
    planner = planner_of(links)
    planner._tested_s.update(a=LATER_S - 10, b=LATER_S, c=LATER_S)
    (planned,) = planner.plan(links, lan, LATER_S)
    assert (planned.client, planned.server) == ("a", "c")
    assert planner.plan(links[:2], lan, LATER_S) == []


def test_two_fast_suspects_are_tested_with_each_other_and_not_with_slow_peers() -> None:
    """Slow peers explain every result, so nothing else would clear either of the two."""
    links = [suspect("a", 4.0, 100.0, peer="x"), suspect("b", 4.0, 100.0, peer="y")]
    links += [known("slow-1", 9.0), known("slow-2", 9.0)]
    planner = planner_of(links, anchors=("slow-1", "slow-2"))
    planner._tested_s.update({link.name: LATER_S - 10 for link in links})
    first, *_ = planner.plan(links, lan, LATER_S)
    assert {first.client, first.server} == {"a", "b"}


def test_a_server_that_always_fails_is_not_chosen_for_ever() -> None:
    links = [known("a"), known("b"), known("c")]
    planner = planner_of(links, anchors=("b",))
    servers = []
    for turn in range(6):
        now_s = LATER_S + 100 * turn
        planner._tested_s.update(b=now_s, c=now_s)  # only a asks
        (planned,) = planner.plan(links, lan, now_s)
        servers.append(planned.server)
        begin(planner, planned, now_s)
        planner.finish("x-1", 0, is_measured=turn == 3)
    assert servers == ["b", "c", "b", "c", "b", "c"]


def test_after_three_failures_a_server_over_an_uplink_is_better() -> None:
    uplink = Uplink("lte", frozenset({"a", "b"}), mbps=20.0)
    links = [known("a"), known("b"), known("c")]
    planner = planner_of(links, uplinks=(uplink,))
    assert servers_that_fail(planner, links) == ["b", "b", "b", "c"]


def test_a_peer_that_does_not_reply_to_pings_is_tried_last() -> None:
    links = [known("a"), known("b"), known("c")]
    planner = planner_of(links, anchors=("b",))
    planner._tested_s.update(b=LATER_S, c=LATER_S)
    rtt_ms = {"b": inf, "c": None}
    (planned,) = planner.plan(links, lambda _, peer: rtt_ms[peer], LATER_S + 1)
    assert planned.server == "c"
    (planned,) = planner.plan(links[:2], lambda _, peer: rtt_ms[peer], LATER_S + 1)
    assert (planned.server, planned.max_bytes) == ("b", LEAST_BYTES)


def test_a_near_peer_is_preferred() -> None:
    links = [known(name) for name in "abcd"]
    planner = planner_of(links)
    planner._tested_s.update(b=LATER_S, c=LATER_S, d=LATER_S)
    rtt_ms = {"b": 9.0, "c": 1.0, "d": None}
    (planned,) = planner.plan(links, lambda _, peer: rtt_ms[peer], LATER_S + 1)
    assert planned.server == "c"


def test_only_the_nodes_that_are_given_are_tested() -> None:
    assert planned_for([]) == []
    assert planned_for([known("a")]) == []
