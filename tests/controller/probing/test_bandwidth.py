"""The planner of bandwidth tests: which tests, at what cost, and never over a budget."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import BandwidthBudget, PlannedTest, Uplink
from leadline_controller.probing.information import BLOCK_BYTES, FAR_BYTES, LEAST_BYTES
from leadline_controller.probing.spending import DAY_S, Account
from leadline_controller.telemetry.bandwidth import (
    BandwidthTest,
    LinkBandwidth,
    NodeBandwidths,
    NodeLink,
)

from tests.support.examples import examples

LAN_MS = 0.3
LATER_S = 2000.0  # all budgets have saved what they can
INTERVAL_S = 22.0
MOST_BYTES = 30_000_000


def lan(_a: str, _b: str) -> float | None:
    return LAN_MS


def known(name: str, mbps: float = 100.0, **changed: Any) -> NodeLink:
    """A node whose bandwidth was measured; `changed` are fields of the measurement."""
    return NodeLink(name, 1000.0, LinkBandwidth(mbps, 0.0, **{"measured_s": inf} | changed))


def suspect(name: str, mbps: float = 5.0, former_mbps: float = 100.0, peer: str = "") -> NodeLink:
    """A node whose last test, with the peer, showed less than the one before."""
    return known(name, mbps, former_mbps=former_mbps, suspected_mbps=mbps, suspect_peer=peer)


def planner_of(
    links: Sequence[NodeLink], budget: BandwidthBudget | None = None, **planning: Any
) -> BandwidthPlanner:
    """A planner whose budgets have saved since time 0."""
    planner = BandwidthPlanner(budget or BandwidthBudget(), **planning)
    assert planner.plan([known(link.name) for link in links], lan, 0.0) == []
    return planner


def planned_for(
    links: Sequence[NodeLink], now_s: float = LATER_S, **planning: Any
) -> list[PlannedTest]:
    return planner_of(links, **planning).plan(links, lan, now_s)


def begin(
    planner: BandwidthPlanner, planned: PlannedTest, now_s: float, lease_id: str = "x-1"
) -> None:
    planner.start(planned, lease_id, now_s, now_s + 10.0)


def finish(
    planner: BandwidthPlanner, planned: PlannedTest, now_s: float, lease_id: str = "x-1"
) -> None:
    """A test that is done at once."""
    begin(planner, planned, now_s, lease_id)
    planner.finish(lease_id, planned.max_bytes, is_measured=True)


def servers_that_fail(planner: BandwidthPlanner, links: Sequence[NodeLink]) -> list[str]:
    """The servers of four tests of the node "a", all of which fail."""
    servers = []
    for turn in range(4):
        now_s = LATER_S + 100 * turn
        planner._tested_s.update(b=now_s, c=now_s)  # only a asks
        (planned,) = planner.plan(links, lan, now_s)
        servers.append(planned.server)
        begin(planner, planned, now_s)
        planner.finish("x-1", planned.max_bytes, is_measured=False)
    return servers


# What comes first.


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


# How much.


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


# Several at once.


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
    planner.finish("x-1", LEAST_BYTES, is_measured=True)
    assert not planner.is_running("x-1")
    assert len(planner.plan(links, lan, LATER_S + 1)) == 2


def test_a_lease_without_reports_expires_and_stays_charged() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links)
    (planned,) = planner.plan(links, lan, LATER_S)
    begin(planner, planned, LATER_S)
    assert len(planner.running(LATER_S + 9.9)) == 1
    assert planner.running(LATER_S + 10.0) == ()
    planner.finish("x-1", 0, is_measured=False)  # it comes too late
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
    assert first_s >= planned.link_s["a"] / 0.001


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
    planner.finish("x-1", planned.max_bytes // 4, is_measured=False)
    planner.finish("x-1", planned.max_bytes, is_measured=True)  # counts once
    account = planner.accounts(LATER_S)[0]["a"]
    assert account.spent_bytes == planned.max_bytes // 4
    assert account.spent_link_s == pytest.approx(planned.link_s["a"] / 4)
    assert account.tests == 1


def test_a_test_over_a_link_that_was_throttled_is_charged_once_that_is_known() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links)
    (planned,) = planner.plan(links, lan, LATER_S)
    finish(planner, planned, LATER_S)
    a, b = (planner.accounts(LATER_S)[0][name] for name in "ab")
    planned_s = a.spent_link_s
    suspects = [suspect(name, 5.0) for name in "ab"]
    planner._tested_s.update(a=LATER_S + 9, b=LATER_S + 9)
    for turn in range(3):
        planner.plan(suspects, lan, LATER_S + 1 + turn / 2)
    assert (a.spent_link_s, b.spent_link_s) == (planned_s, planned_s)
    for turn in range(3):
        planner.plan([known("a", 5.0), known("b")], lan, LATER_S + 3 + turn / 2)
    assert a.spent_link_s == pytest.approx(20 * planned_s)
    assert b.spent_link_s == pytest.approx(planned_s)


def test_a_test_that_was_cut_off_on_a_throttled_link_costs_no_more_than_its_lease_allows() -> None:
    links = [known("a"), known("b")]
    planner = planner_of(links)
    test = PlannedTest("a", "b", 1_000_000, (), {"a": 0.08, "b": 0.08})
    planner.start(test, "x-1", LATER_S, LATER_S + 10.0, most_s=0.5)
    planner.finish("x-1", test.max_bytes, is_measured=False)
    for turn in range(3):  # at 5 Mbit/s, all bytes of the lease take 1.6 s
        planner.plan([known("a", 5.0), known("b")], lan, LATER_S + 1 + turn / 2)
    a, b = (planner.accounts(LATER_S)[0][name] for name in "ab")
    assert a.spent_link_s == pytest.approx(0.5)
    assert b.spent_link_s == pytest.approx(0.08)


def test_a_test_over_a_link_that_is_fast_again_costs_what_it_took() -> None:
    links = [known("a", 5.0), known("b")]
    planner = planner_of(links)
    planner._tested_s.update(a=LATER_S + 9, b=LATER_S + 9)
    slow_s, fast_s = (LEAST_BYTES * 8e-6 / mbps for mbps in (5.0, 80.0))
    begin(planner, PlannedTest("a", "b", LEAST_BYTES, (), {"a": slow_s, "b": 0.005}), LATER_S)
    planner.finish("x-1", LEAST_BYTES, is_measured=True, least_mbps=80.0)
    a = planner.accounts(LATER_S)[0]["a"]
    assert a.spent_link_s == pytest.approx(slow_s)
    for turn in range(3):  # one result does not yet change what is believed
        planner.plan(links, lan, LATER_S + 1 + turn / 2)
    assert a.spent_link_s == pytest.approx(fast_s)


def test_a_board_that_is_always_held_back_pays_for_the_time_that_its_tests_take() -> None:
    short = {"lower_bound": True, "is_short": True}
    links = [known("a", 5.0, **short), known("b")]
    planner = planner_of(links)
    planner._tested_s.update(a=LATER_S + 9, b=LATER_S + 9)
    test = PlannedTest("a", "b", LEAST_BYTES, (), {"a": 0.01, "b": 0.005})
    begin(planner, test, LATER_S)
    planner.finish("x-1", LEAST_BYTES, is_measured=True, hindered_mbps=5.0)
    a, b = (planner.accounts(LATER_S)[0][name] for name in "ab")
    for turn in range(4):
        planner.plan(links, lan, LATER_S + 1 + turn / 2)
    assert a.spent_link_s == pytest.approx(LEAST_BYTES * 8e-6 / 5.0)
    assert b.spent_link_s == pytest.approx(LEAST_BYTES * 8e-6 / 100.0)
    for turn in range(2):  # it was the host, and not the link
        planner.plan([known("a", 50.0), known("b")], lan, LATER_S + 3 + turn / 2)
    assert a.spent_link_s == pytest.approx(LEAST_BYTES * 8e-6 / 50.0)


def test_a_board_that_is_always_held_back_costs_others_no_more_than_its_own_budget() -> None:
    """Its larger tests go on, because one of them may be without hindrance. It has a lower bound,
    which refuses no pod; the others stay exact, and have budget left."""
    honest, interfaces = "abcd", dict.fromkeys(["a", "b", "c", "d", "busy"], 100.0)
    planner, bandwidths = BandwidthPlanner(BandwidthBudget()), NodeBandwidths(1800.0)
    costs_s = defaultdict[str, float](float)  # of the tests with it
    hours, warm_s = 0.75, 900.0
    for tick in range(round(hours * 3600)):
        now_s = float(tick)
        links = [
            NodeLink(name, speed, bandwidths.of(name, now_s), bandwidths.last_peers(name))
            for name, speed in interfaces.items()
        ]
        for planned in planner.plan(links, lan, now_s):
            ends, lease_id = (planned.client, planned.server), f"x-{tick}-{planned.client}"
            other = ends[ends[0] == "busy"]
            mbps = 40.0 if "busy" in ends else 94.0
            seconds = max(planned.max_bytes / 2 * 8e-6 / mbps, LAN_MS / 1000)
            test = BandwidthTest(*ends, mbps, seconds, now_s, LAN_MS)
            held_back: dict[str, Any] = {}
            if "busy" in ends:
                test = replace(test, is_hindered=True, unhindered=other)
                held_back = {"hindered_mbps": mbps, "unhindered": other}
                costs_s[other] += planned.max_bytes * 8e-6 / 94.0
            planner.start(planned, lease_id, now_s, now_s + 10)
            planner.finish(lease_id, planned.max_bytes, is_measured=True, **held_back)
            bandwidths.add(test, interfaces)
        if now_s > warm_s:
            beliefs = [bandwidths.of(name, now_s) for name in honest]
            assert all(each and not each.lower_bound and each.mbps == 94.0 for each in beliefs)
            assert all(each and now_s - each.measured_s < 1200.0 for each in beliefs)
    busy = bandwidths.of("busy", hours * 3600)
    assert busy is not None
    assert busy.lower_bound
    assert 0.9 * 40.0 <= busy.mbps <= 40.0
    accounts, allowed_s = planner.accounts(hours * 3600)[0], 0.001 * hours * 3600
    assert accounts["busy"].spent_link_s <= allowed_s + 1.0
    assert sum(costs_s.values()) <= accounts["busy"].spent_link_s
    assert max(accounts[name].spent_link_s for name in honest) < 0.9 * allowed_s


def test_a_rate_that_a_server_made_up_costs_a_busy_board_little_and_its_peer_nothing() -> None:
    short = {"lower_bound": True, "is_short": True}
    links = [known("a", 30.0, **short), known("b", 30.0, **short)]
    planner = planner_of(links)
    planner._tested_s.update(a=LATER_S + 9, b=LATER_S + 9)
    accounts = planner.accounts(LATER_S)[0]
    for turn in range(3):
        lease_id, now_s = f"x-{turn}", LATER_S + 10 * turn
        begin(
            planner, PlannedTest("a", "b", LEAST_BYTES, (), {"a": 0.01, "b": 0.01}), now_s, lease_id
        )
        planner.finish(lease_id, LEAST_BYTES, is_measured=True, hindered_mbps=0.01, unhindered="b")
        for after_s in range(1, 4):
            planner.plan([], lan, now_s + after_s)
            planner.budgets.settle(links)
    assert accounts["a"].link_s == pytest.approx(-0.5, abs=0.05)
    assert accounts["b"].spent_link_s == pytest.approx(0.03)


def test_a_budget_saves_a_limited_amount() -> None:
    account = Account(share=0.001, bytes_per_day=1e9, at_s=0.0)
    account.refill(10 * DAY_S)
    assert (account.link_s, account.bytes) == (1.0, MOST_BYTES)
    account.refill(9 * DAY_S)  # a clock that goes back adds nothing
    assert account.at_s == 10 * DAY_S


def test_nodes_that_cannot_pay_cost_no_search_for_a_peer() -> None:
    links = [known(f"n{i}", 10.0 if i % 2 else 100.0) for i in range(400)]
    planner = planner_of(links)
    asked = 0

    def counting(_a: str, _b: str) -> float:
        nonlocal asked
        asked += 1
        return LAN_MS

    tests = 0
    for tick in range(60):
        asked = 0
        planned = planner.plan(links, counting, 100 + tick / 2)
        for number, each in enumerate(planned):
            finish(planner, each, 100 + tick / 2, f"x-{tick}-{number}")
        tests += len(planned)
        assert asked <= 32 * (len(planned) + 1)
    assert tests > 200


def test_nodes_that_save_for_an_exact_measurement_search_rarely() -> None:
    links = [known(f"n{i}", 80.0, lower_bound=True, is_short=True) for i in range(400)]
    planner = planner_of(links, BandwidthBudget(link_time_share=0.00001))
    for link in links:
        planner._tested_s[link.name] = planner._checked_s[link.name] = LATER_S
    asked = 0

    def counting(_a: str, _b: str) -> float:
        nonlocal asked
        asked += 1
        return 30.0

    for tick in range(20):
        assert planner.plan(links, counting, LATER_S + 5 + tick / 2) == []
    assert 0 < asked <= 16 * 400 * 2  # in 10 s


def test_a_node_that_left_is_forgotten_after_a_day() -> None:
    links = [known("a"), known("b"), known("left")]
    planner = planner_of(links)
    begin(planner, PlannedTest("left", "b", 1, (), {"left": 1.0, "b": 1.0}), LATER_S)
    planner.finish("x-1", 1, is_measured=False)
    planner.plan(links[:2], lan, DAY_S)
    assert planner.accounts(DAY_S)[0].keys() == {"a", "b", "left"}
    planner.plan(links[:2], lan, 2 * DAY_S + 1)
    assert planner.accounts(3 * DAY_S)[0].keys() == {"a", "b"}
    assert "left" not in {*planner._tested_s, *planner._failures, *planner.budgets._unsettled}


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
    planner.finish("x-1", test.max_bytes, is_measured=True)
    assert {test.client, test.server} <= {*planner.due(names, LATER_S + 2)}  # as there is a result
    planner.plan(links, lan, LATER_S + 4)
    assert test.client not in planner.due(names, LATER_S + 5)
    assert test.client in planner.due(names, LATER_S + INTERVAL_S)


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
        self.throttled: set[str] = set()
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
                self.throttled.add(name)
            if tick % 750 == 749:
                self.planner.pause(now_s + LEASE_S)
            links = [
                NodeLink(
                    name,
                    1000.0,
                    self.bandwidths.of(name, now_s),
                    self.bandwidths.last_peers(name),
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
        self.planner.start(planned, lease_id, now_s, now_s + LEASE_S)
        self.running[lease_id] = (planned, now_s + LEASE_S)

    def _advance(self, lease_id: str, planned: PlannedTest, ends_s: float, now_s: float) -> None:
        kind = self.random.random()
        if kind < 0.1 and now_s < ends_s:
            return  # it takes longer, and perhaps for ever
        del self.running[lease_id]
        amount = planned.max_bytes if kind < 0.8 else self.random.randrange(planned.max_bytes)
        ends = (planned.client, planned.server)
        for name in (*ends, *planned.uplinks):
            mbps = self.mbps.get(name) or self.uplinks[name].mbps or 1.0
            self.moved.append((now_s, name, amount))
            self.link_s[name] += amount * 8e-6 / mbps
        if now_s >= ends_s:
            return
        is_measured = kind < 0.8
        self.planner.finish(lease_id, amount, is_measured=is_measured)
        if is_measured:
            mbps = min(
                *(self.mbps[end] for end in ends),
                *(self.uplinks[name].mbps or 1.0 for name in planned.uplinks),
            )
            rtt_ms = self.rtt(*ends)
            seconds = max(amount / 2 * 8e-6 / mbps, rtt_ms / 1000)
            test = BandwidthTest(*ends, amount / 2 * 8e-6 / seconds, seconds, now_s, rtt_ms)
            self.bandwidths.add(test, dict.fromkeys(self.mbps, 1000.0))


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
        debt_s = 0.5 if name in day.throttled else 0.05
        assert day.link_s[name] <= allowed_s + debt_s, name
