"""What is believed of links after tests whose results follow from the links' true speeds."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.telemetry.bandwidth import NodeBandwidths
from leadline_controller.telemetry.bandwidth_tests import (
    BURST_S,
    EXACT_S,
    UNKNOWN_RTT_MS,
    BandwidthTest,
    exact_s,
)
from leadline_controller.telemetry.link_bandwidth import (
    BUSY,
    COUNTERS,
    PEER,
    SHORT,
    TESTS,
    LinkBandwidth,
)

from tests.support.examples import examples

TTL_S, EVERY_S = 1800.0, 22.0


class Links:
    """Beliefs about links whose true speeds are known. interface_mbps: the speeds of the nodes'
    interfaces."""

    def __init__(
        self,
        true_mbps: dict[str, float],
        interface_mbps: dict[str, float | None] | None = None,
        seed: int = 0,
    ) -> None:
        self.true_mbps = true_mbps
        self.interface_mbps = dict.fromkeys(true_mbps) | (interface_mbps or {})
        self.bandwidths = NodeBandwidths(TTL_S)
        self.used_mbps: dict[str, float] = {}
        self.now_s = 0.0
        self.random = Random(seed)  # no secret

    def test(self, client: str, server: str, seconds: float = 0.1, **changed: Any) -> None:
        """A test that measures the slower one of two links."""
        mbps = min(self.true_mbps[client], self.true_mbps[server])
        self.measured(client, server, mbps, seconds, **changed)

    def measured(
        self, client: str, server: str, mbps: float, seconds: float = 0.1, **changed: Any
    ) -> None:
        self.now_s += EVERY_S
        test = BandwidthTest(client, server, mbps, seconds, self.now_s, 0.4)
        test = replace(test, **changed)
        self.bandwidths.add(test, self.interface_mbps, self.used_mbps)

    def all_pairs(self, nodes: Iterable[str] = ()) -> None:
        for client, server in permutations(nodes or self.true_mbps, 2):
            self.test(client, server)

    def of(self, node: str) -> LinkBandwidth:
        known = self.bandwidths.of(node, self.now_s)
        assert known is not None
        return known

    def mbps(self, *nodes: str) -> list[float]:
        return [self.of(node).mbps for node in nodes or self.true_mbps]

    def suspects(self) -> set[str]:
        return {node for node in self.true_mbps if self.of(node).is_suspect}

    def is_true(self, node: str) -> bool:
        """Whether what is believed is within a fifth of the truth, or a bound that is true."""
        known, true_mbps = self.of(node), self.true_mbps[node]
        is_near = 0.8 <= known.mbps / true_mbps <= 1.25
        return is_near or (known.lower_bound and known.mbps <= true_mbps)


def fleet(**changed: float) -> Links:
    """Four nodes at 100 Mbit/s, and others, which have all tested each other."""
    links = Links({**dict.fromkeys("abcd", 100.0), **changed})
    for _ in range(2):
        links.all_pairs()
    assert not links.suspects()
    return links


# What a test says.


@pytest.mark.parametrize(
    ("seconds", "rtt_ms", "hindered", "exact"),
    [
        (EXACT_S, 0.3, False, True),
        (EXACT_S - 1e-4, 0.3, False, False),
        (0.1, 30.0, False, True),
        (0.059, 30.0, False, False),
        (0.1, 30.0, True, False),
        (2 * UNKNOWN_RTT_MS / 1000, None, False, True),
        (EXACT_S, None, False, False),
    ],
)
def test_a_test_is_exact_if_it_took_several_round_trips(
    seconds: float, rtt_ms: float | None, hindered: bool, exact: bool
) -> None:
    test = BandwidthTest("a", "b", 50.0, seconds, 0.0, rtt_ms, hindered)
    assert test.is_exact == exact
    assert (seconds >= exact_s(rtt_ms)) == (exact or hindered)


def test_a_short_test_between_far_nodes_cannot_reach_the_links_speed() -> None:
    # 0.5 Mbit in a round trip of 30 ms.
    window = BandwidthTest("a", "b", 0.5 / 0.03, 0.03, 0.0, rtt_ms=30.0).window()
    assert window.high_mbps == float("inf")
    slow = BandwidthTest("a", "b", 5.0, 0.1, 0.0, rtt_ms=30.0).window()
    assert slow == (5.0, 5.0, 5.0)


def test_a_check_that_was_too_fast_to_be_timed_shows_a_fast_link() -> None:
    """64 KiB took 1.7 ms, of which TCP's slow start took half. On a link of 80 Mbit/s they take
    7.5 ms."""
    fast = BandwidthTest("a", "b", 157.0, 0.00167, 0.0, 0.4, is_untimed=True).window()
    assert fast.high_mbps > 1000.0
    slow = BandwidthTest("a", "b", 35.0, 0.0075, 0.0, 0.4, is_untimed=True).window()
    assert slow.high_mbps < 400.0


@given(
    st.floats(1.0, 1000.0), st.floats(0.0, BURST_S), st.integers(4, 100), st.floats(200.0, 10_000)
)
def test_no_window_is_above_what_the_link_can_do(
    mbps: float, burst_s: float, blocks: int, wire_mbps: float
) -> None:
    """A shaper lets its burst pass at the wire's speed, whichever part of the bytes is measured."""
    wire_mbps = max(wire_mbps, mbps)
    megabits = blocks * 16384 * 8e-6
    for share in (1.0, 0.5, 0.1):
        measured = megabits * share
        in_burst = min(measured, mbps * burst_s)
        seconds = in_burst / wire_mbps + (measured - in_burst) / mbps
        test = BandwidthTest("a", "b", measured / seconds, seconds, 0.0, rtt_ms=0.3)
        assert test.is_exact or test.window().low_mbps <= mbps * (1 + 1e-9)


# Links that do not change.

SPEEDS = st.sampled_from([1000.0, 300.0, 100.0, 50.0, 20.0, 5.0])


@examples(30)
@given(st.lists(SPEEDS, min_size=5, max_size=5))
@pytest.mark.slow
def test_after_all_have_tested_each_other_the_beliefs_are_the_truth(speeds: list[float]) -> None:
    """But for a single fastest link, which does at least what the others do."""
    links = Links(dict(zip("abcde", speeds, strict=True)))
    for _ in range(2):
        links.all_pairs()
    second = sorted(speeds)[-2]
    for node, mbps in links.true_mbps.items():
        assert links.of(node).mbps == pytest.approx(min(mbps, second))


def test_a_test_counts_for_both_ends_until_it_is_too_old() -> None:
    links = Links({"a": 100.0, "b": 100.0}, {"a": 100.0, "b": 100.0})
    assert links.bandwidths.of("a", 0.0) is None
    links.test("a", "b")
    assert links.of("a") == LinkBandwidth(100.0, at_s=EVERY_S)
    assert links.of("b").lower_bound  # that is only its own word
    assert links.is_true("b")
    assert links.bandwidths.of("a", EVERY_S + TTL_S) is not None
    assert links.bandwidths.of("a", EVERY_S + TTL_S + 0.1) is None
    assert links.bandwidths.belief("a", EVERY_S + TTL_S + 0.1) is None


@pytest.mark.parametrize("rounds", [1, 5])
def test_slow_peers_limit_only_their_own_links(rounds: int) -> None:
    links = fleet(slow=10.0, tardy=10.0)
    for client, server in [("a", "slow"), ("a", "tardy"), ("slow", "a"), ("tardy", "a")] * rounds:
        links.test(client, server)
    assert links.mbps("a", "slow", "tardy") == [100.0, 10.0, 10.0]
    assert not links.suspects()


def test_a_new_node_behind_a_slow_peer_is_at_least_as_fast() -> None:
    links = Links(
        {"slow": 10.0, "new": 100.0, "c": 100.0}, {"slow": 10.0, "new": 100.0, "c": 100.0}
    )
    links.test("slow", "c")
    links.test("new", "slow")
    assert (links.of("new").mbps, links.of("new").reason) == (10.0, PEER)
    assert str(links.of("new")) == "at least 10 Mbit/s (the peer's link is no faster)"
    links.test("new", "c")
    assert links.of("new") == LinkBandwidth(100.0, links.now_s)


def test_a_short_test_shows_a_bound() -> None:
    links = Links({"a": 500.0, "b": 500.0})
    links.test("a", "b", 0.001)
    known = links.of("a")
    assert (known.lower_bound, known.reason, known.is_host_limited) == (True, SHORT, False)
    links.test("a", "b")
    assert links.of("a").mbps == 500.0


def test_the_same_tests_in_the_same_order_give_the_same_beliefs() -> None:
    links = [fleet(slow=10.0), fleet(slow=10.0)]
    assert links[0].mbps() == links[1].mbps()
    beliefs = [each.bandwidths.belief("a", each.now_s) for each in links]
    assert beliefs[0] is not None
    assert (beliefs[0] == beliefs[1]).all()
    assert beliefs[0].sum() == pytest.approx(1.0)


# Busy boards.


@pytest.mark.slow
@examples(50)
@given(st.integers(0, 2**32), st.sampled_from([0.3, 0.7, 1.0]))
def test_a_busy_machine_makes_no_link_slow(seed: int, hindered: float) -> None:
    """Of a link that does not change, what is believed is near the truth, or a bound that is true,
    however little busy boards show."""
    links = Links(dict.fromkeys("abcdef", 100.0), dict.fromkeys("abcdef", 100.0), seed)
    tests = links.random.choices(list(permutations("abcdef", 2)), k=60)
    for client, server in tests:
        if links.random.random() < hindered:
            mbps = 100.0 * 0.1 ** links.random.random()
            links.measured(client, server, mbps, is_hindered=True)
        else:
            links.test(client, server, links.random.choice((0.003, 0.1)))
        assert links.is_true(client)
        assert links.is_true(server)


def test_a_bound_of_a_busy_board_replaces_no_higher_value() -> None:
    links = fleet()
    for mbps in (86.0, 30.0, 2.7, 3.7, 2.7):
        links.measured("a", "b", mbps, is_hindered=True)
        assert links.mbps("a", "b") == [100.0, 100.0]
    new = Links(dict.fromkeys("ab", 100.0))
    new.measured("a", "b", 20.0, is_hindered=True)
    assert (new.of("a").reason, new.of("a").is_host_limited) == (BUSY, True)
    assert str(new.of("a")).endswith("(the board was busy)")
    assert new.is_true("a")


# Changes.


@pytest.mark.parametrize("as_client", [True, False])
def test_a_throttled_link_is_believed_after_two_peers(as_client: bool) -> None:
    links = fleet()
    links.true_mbps["a"] = 5.0
    tests = [("a", peer) if as_client else (peer, "a") for peer in "bc"]
    links.test(*tests[0])
    assert links.suspects() == {"a", "b"}
    assert links.mbps("a", "b") == [5.0, 5.0]  # meanwhile the lower value counts
    assert str(links.of("a")) == "was 100, one test says 5: checking"
    links.test(*tests[1])
    assert links.mbps("a") == [5.0]
    # That explains what both peers saw.
    assert not links.suspects()
    assert links.mbps("b", "c", "d") == [100.0] * 3


@examples(20)
@given(st.lists(st.tuples(st.sampled_from("cdef"), SPEEDS), min_size=1, max_size=3))
def test_every_change_is_believed_while_two_links_are_fast(
    changes: list[tuple[str, float]],
) -> None:
    links = Links(dict.fromkeys("abcdef", 1000.0), dict.fromkeys("abcdef", 1000.0))
    links.all_pairs()
    for node, mbps in changes:
        links.true_mbps[node] = mbps
        for _ in range(2):
            for peer in "ab":
                links.test(node, peer)
        links.all_pairs("ab")
        assert links.mbps(node) == [mbps]
        assert links.mbps("a", "b") == [1000.0, 1000.0]


def test_a_link_that_becomes_slower_by_and_by_is_believed() -> None:
    links = fleet()
    for mbps in (90.0, 81.0, 73.0, 66.0):
        links.true_mbps["a"] = mbps
        for peer in "bcd":
            links.test("a", peer)
        assert links.mbps("a") == [mbps]
        assert not links.suspects()


def test_of_two_nodes_both_are_suspect_and_counted_as_slow() -> None:
    """Nobody can say which link it is."""
    links = Links(dict.fromkeys("ab", 100.0), dict.fromkeys("ab", 100.0))
    for _ in range(2):
        links.all_pairs()
    links.true_mbps["a"] = 5.0
    links.test("a", "b")
    assert links.mbps("a", "b") == [5.0, 5.0]
    links.true_mbps["a"] = 100.0
    for _ in range(2):
        links.all_pairs()
    assert links.mbps("a", "b") == [100.0, 100.0]


def test_a_single_bad_result_is_forgotten() -> None:
    links = fleet()
    links.measured("a", "b", 12.0)
    assert links.suspects() == {"a", "b"}
    links.test("a", "c")
    links.test("b", "d")
    assert not links.suspects()
    assert links.mbps() == [100.0] * 4


def test_a_value_that_checks_agree_with_outlives_its_measurement() -> None:
    links = fleet()
    for _ in range(200):
        links.test("a", "b", 0.003)
        links.test("c", "d", 0.003)
    assert links.of("a").mbps == 100.0
    assert links.now_s - links.of("a").at_s < 60.0


# Nobody is believed about itself, nor one server about another node.


def test_one_server_alone_does_not_make_a_node_faster() -> None:
    links = fleet(fast=200.0, faster=200.0)
    for seconds in (0.1, 0.003) * 3:
        links.measured("a", "b", 900.0, seconds)
        assert links.mbps("a") == [100.0]
        links.test("a", "fast")
        assert links.of("a") == LinkBandwidth(100.0, links.now_s)


def test_a_link_that_became_faster_is_believed_once_two_servers_measured_it() -> None:
    links = Links(dict.fromkeys("abcd", 1000.0) | {"e": 50.0}, dict.fromkeys("abcde", 1000.0))
    for _ in range(2):
        links.all_pairs()
    assert links.mbps("e") == [50.0]
    links.true_mbps["e"] = 1000.0
    for peer in "ab":
        links.test("e", peer)
    assert links.mbps("e") == [1000.0]


def test_what_a_node_measured_itself_gives_way_to_what_another_measured() -> None:
    links = Links(dict.fromkeys("abc", 100.0) | {"liar": 10.0})
    links.measured("a", "liar", 900.0)
    assert links.of("liar").lower_bound
    for _ in range(3):
        links.test("liar", "b")
        links.test("liar", "c")
        links.measured("c", "liar", 900.0)
    assert links.mbps("liar") == [10.0]


def test_a_liar_cannot_slow_another_node_alone() -> None:
    links = fleet()
    for _ in range(5):
        links.measured("a", "b", 1.0)
        links.test("a", "c")
    assert links.mbps("a", "c") == [100.0, 100.0]
    assert not links.of("a").is_suspect


def test_a_slow_peer_explains_a_slow_test_of_a_server_with_a_fast_interface() -> None:
    """A busy board says "at least" of the server each time, so how fast it is stays open."""
    links = Links({"server": 2000.0, "a": 100.0, "slow": 11.0}, {"server": 10_000.0, "a": 10_000.0})
    links.test("a", "server", 0.01, is_hindered=True)
    links.test("slow", "server")
    for _ in range(5):
        links.test("slow", "a", is_hindered=True)
        links.test("server", "a", 0.01, is_hindered=True)
        assert not links.of("server").is_suspect
        assert links.is_true("server")
        assert links.of("server").mbps > 50


def test_a_node_that_left_is_forgotten() -> None:
    links = fleet()
    links.bandwidths.drop(["a"])
    assert links.bandwidths.of("a", links.now_s) is None
    assert links.bandwidths.last_peer("a") == ""
    links.test("b", "c")
    links.test("a", "c")
    assert not links.of("a").is_suspect
    assert links.bandwidths.last_peer("a") == "c"


# Traffic.


def test_users_traffic_explains_a_lower_result() -> None:
    links = fleet()
    links.used_mbps["a"] = 30.0
    links.measured("a", "b", 70.0)
    assert not links.suspects()
    assert links.mbps("a", "b") == [100.0, 100.0]
    for _ in range(2):
        for peer in "bcd":
            links.measured("a", peer, 5.0)
    assert links.of("a").mbps < 50.0  # it explains no more than 70


def test_invented_traffic_counts_no_more_than_what_another_node_measured() -> None:
    links = Links(dict.fromkeys("abc", 95.0))
    carry = links.bandwidths.carry
    assert carry("a", 1e6, 1e6, 0.0)
    assert links.mbps("a") == [100.0]  # nobody has measured it
    assert (links.of("a").source, str(links.of("a"))) == (
        COUNTERS,
        "at least 100 Mbit/s (from its counters)",
    )
    for peer in "bcbc":
        links.measured("a", peer, 5.0)
        carry("a", 1e6, 1e6, links.now_s)
        assert links.of("a").mbps <= 5.0 / 0.8
    assert links.bandwidths.contradicted_s("a") == links.now_s


def test_traffic_raises_a_bound_and_makes_no_test_valid_for_longer() -> None:
    links = Links(dict.fromkeys("ab", 100.0))
    links.measured("a", "b", 60.0, is_hindered=True)
    links.bandwidths.carry("a", 70.0, 100.0, links.now_s)
    assert (links.of("a").mbps, links.of("a").source) == (70.0, COUNTERS)
    assert not links.of("a").is_host_limited
    tested = fleet()
    tested_s = tested.of("d").at_s
    tested.bandwidths.carry("d", 95.0, 100.0, tested_s + TTL_S)
    known = tested.bandwidths.of("d", tested_s + TTL_S + 1)
    assert known is None or known.source != TESTS


@pytest.mark.parametrize(
    ("used", "requested", "interface", "least", "most"),
    [
        (40.0, 50.0, None, 100.0, 100.0),  # 40 of the 50 flowed: a link of 100
        (40.0, 0.0, None, 60.0, 100.0),  # other traffic stays when a pod ends
        (0.0, 50.0, None, 60.0, 60.0),
        (40.0, 30.0, None, 90.0, 100.0),
        (40.0, 50.0, 80.0, 80.0, 100.0),  # TCP takes a part from what flows
    ],
)
def test_what_pods_use_beside_a_test_belongs_to_the_link(
    used: float, requested: float, interface: float | None, least: float, most: float
) -> None:
    test = BandwidthTest("a", "b", 60.0, 1.0, 0.0, 1.0, requested_mbps={"a": requested})
    bandwidths = NodeBandwidths(TTL_S)
    bandwidths.add(test, {"a": interface, "b": None}, {"a": used})
    known = bandwidths.of("a", 0.0)
    assert known is not None
    assert least <= known.mbps <= most


# Any sequence.

TEST = st.tuples(
    st.sampled_from(list(permutations("abcd", 2))),
    st.floats(0.0, 1e5),
    st.floats(0.0, 1.0),
    st.booleans(),
    st.floats(-1e9, 1e9) | st.just(None),
)


@examples(50)
@given(st.lists(TEST, min_size=1, max_size=25), st.sampled_from([None, 100.0, 1000.0]))
def test_any_tests_in_any_order_give_a_value_that_one_of_them_showed(
    series: list[tuple[tuple[str, str], float, float, bool, float | None]], interface: float | None
) -> None:
    links = Links(dict.fromkeys("abcd", 0.0), dict.fromkeys("abcd", interface))
    for (client, server), mbps, seconds, hindered, at_s in series:
        dated = {} if at_s is None else {"at_s": at_s}
        links.measured(client, server, mbps, seconds, is_hindered=hindered, **dated)
    for node in {end for ends, *_ in series for end in ends}:
        belief = links.bandwidths.belief(node, 1e9)
        assert belief is not None
        assert belief.sum() == pytest.approx(1.0)
        known = links.bandwidths.of(node, links.bandwidths._tests[node][-1].at_s)
        assert known is not None
        assert 0.1 <= known.mbps <= 1e5
