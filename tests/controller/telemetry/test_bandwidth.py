"""What is believed of links after tests whose results are known."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.telemetry.bandwidth import (
    BURST_S,
    COUNTERS,
    EXACT_ROUND_TRIPS,
    EXACT_S,
    TESTS,
    UNKNOWN_RTT_MS,
    BandwidthTest,
    LinkBandwidth,
    NodeBandwidths,
    exact_s,
)

from tests.support.examples import examples

TTL_S = 1800.0


class Beliefs:
    """Beliefs about links whose true speeds are known. link_mbps: the speeds of the interfaces."""

    def __init__(
        self,
        true_mbps: dict[str, float],
        link_mbps: dict[str, float | None] | None = None,
        rtt_ms: float | None = 0.4,
    ) -> None:
        self.true_mbps, self.rtt_ms = true_mbps, rtt_ms
        self.link_mbps = dict.fromkeys(true_mbps) | (link_mbps or {})
        self.bandwidths = NodeBandwidths(TTL_S)
        self.used_mbps: dict[str, float] = {}
        self.now_s = 0.0

    def test(
        self, client: str, server: str, seconds: float = 0.1, *, hindered: bool = False
    ) -> None:
        """A test that measures the slower one of two links, 10 s after the last."""
        mbps = min(self.true_mbps[client], self.true_mbps[server])
        self.measured(client, server, mbps, seconds, hindered=hindered)

    def measured(
        self,
        client: str,
        server: str,
        mbps: float,
        seconds: float = 0.1,
        *,
        hindered: bool = False,
        untimed: bool = False,
    ) -> None:
        self.now_s += 10.0
        ends, at_s = (client, server), self.now_s
        test = BandwidthTest(
            *ends, mbps, seconds, at_s, self.rtt_ms, is_hindered=hindered, is_untimed=untimed
        )
        self.changed = self.bandwidths.add(test, self.link_mbps, self.used_mbps)

    def all_pairs(self, nodes: Iterable[str]) -> None:
        names = list(nodes)
        for client in names:
            for server in names:
                if client != server:
                    self.test(client, server)

    def of(self, node: str) -> LinkBandwidth:
        known = self.bandwidths.of(node, self.now_s)
        assert known is not None
        return known

    def mbps(self, *nodes: str) -> list[float]:
        return [self.of(node).mbps for node in nodes]

    def suspects(self) -> set[str]:
        return {node for node in self.true_mbps if self.of(node).is_suspect}


def fleet(**changed: float) -> Beliefs:
    """Four nodes at 100 Mbit/s, and others, which have all tested each other."""
    beliefs = Beliefs({**dict.fromkeys("abcd", 100.0), **changed})
    for _ in range(2):
        beliefs.all_pairs(beliefs.true_mbps)
    assert not beliefs.suspects()
    return beliefs


# What a test says.


@pytest.mark.parametrize(
    ("seconds", "rtt_ms", "hindered", "exact"),
    [
        (EXACT_S, 0.3, False, True),
        (EXACT_S - 1e-4, 0.3, False, False),
        (0.1, 30.0, False, True),
        (0.059, 30.0, False, False),
        (0.1, 30.0, True, False),
        (EXACT_ROUND_TRIPS * UNKNOWN_RTT_MS / 1000, None, False, True),
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
    test = BandwidthTest("a", "b", 0.5 / 0.03, 0.03, 0.0, rtt_ms=30.0)
    assert test.expected_mbps(1000.0) == pytest.approx(0.5 / 0.03)
    assert test.expected_mbps(5.0) == pytest.approx(5.0)
    assert test.expected_mbps(0.0) == pytest.approx(0.0, abs=0.01)


# Beliefs.


def test_a_test_counts_for_both_ends_until_it_is_too_old() -> None:
    beliefs = Beliefs({"a": 100.0, "b": 100.0})
    assert beliefs.bandwidths.of("a", 0.0) is None
    beliefs.test("a", "b")
    assert beliefs.of("a") == beliefs.of("b") == LinkBandwidth(100.0, at_s=10.0)
    assert beliefs.bandwidths.of("a", 10.0 + TTL_S) is not None
    assert beliefs.bandwidths.of("a", 10.1 + TTL_S) is None


def test_a_slow_peer_limits_only_its_own_link() -> None:
    beliefs = fleet(slow=10.0)
    assert beliefs.mbps("a", "b", "c", "d", "slow") == [100.0] * 4 + [10.0]
    for _ in range(5):
        beliefs.test("a", "slow")
        beliefs.test("slow", "a")
    assert beliefs.mbps("a", "slow") == [100.0, 10.0]
    assert not beliefs.suspects()


def test_slow_peers_limit_only_their_own_links() -> None:
    beliefs = fleet(slow=10.0, tardy=10.0)
    for client, server in [("a", "slow"), ("a", "tardy"), ("slow", "a"), ("tardy", "a")] * 3:
        beliefs.test(client, server)
    assert beliefs.mbps("a", "slow", "tardy") == [100.0, 10.0, 10.0]
    assert not beliefs.suspects()


def test_a_new_node_behind_a_slow_peer_is_at_least_as_fast() -> None:
    beliefs = Beliefs({"slow": 10.0, "new": 100.0, "c": 100.0}, {"slow": 1000.0, "new": 100.0})
    beliefs.test("slow", "c")
    beliefs.test("slow", "c")
    beliefs.test("new", "slow")
    assert (beliefs.of("new").mbps, beliefs.of("new").lower_bound) == (10.0, True)
    assert not beliefs.of("new").is_short  # more bytes to this peer would not help
    beliefs.test("new", "c")
    assert beliefs.of("new") == LinkBandwidth(100.0, beliefs.now_s)


def test_a_short_test_near_the_speed_of_an_interface_shows_a_bound_that_is_not_short() -> None:
    beliefs = Beliefs({"a": 95.0, "b": 95.0}, {"a": 100.0, "b": 1000.0}, rtt_ms=30.0)
    beliefs.test("a", "b", 0.03)
    assert (beliefs.of("a").lower_bound, beliefs.of("a").is_short) == (True, False)
    assert (beliefs.of("b").lower_bound, beliefs.of("b").is_short) == (True, True)
    beliefs.test("a", "b", 0.1)
    assert beliefs.of("a") == LinkBandwidth(95.0, beliefs.now_s)


@given(
    st.floats(1.0, 1000.0), st.floats(0.0, BURST_S), st.integers(4, 100), st.floats(200.0, 10_000)
)
def test_no_bound_is_more_than_the_link_can_do(
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
        assert test.is_exact or test.value_mbps <= mbps * (1 + 1e-9)


# Changes.


@pytest.mark.parametrize("as_client", [True, False])
def test_a_throttled_link_is_believed_after_two_peers(as_client: bool) -> None:
    beliefs = fleet()
    beliefs.true_mbps["a"] = 5.0
    tests = [("a", peer) if as_client else (peer, "a") for peer in "bc"]
    beliefs.test(*tests[0])
    assert beliefs.suspects() == {"a", "b"}
    assert beliefs.mbps("a", "b") == [5.0, 5.0]  # meanwhile the lower value counts
    assert beliefs.of("a").former_mbps == beliefs.of("b").former_mbps == 100.0
    assert beliefs.of("a").suspect_peer == "b"
    beliefs.test(*tests[1])
    assert beliefs.of("a") == LinkBandwidth(5.0, beliefs.now_s)
    # That explains what both peers saw.
    assert not beliefs.suspects()
    assert beliefs.mbps("b", "c") == [100.0, 100.0]


def test_the_peers_of_a_throttled_link_are_cleared_by_others() -> None:
    beliefs = fleet()
    beliefs.true_mbps["a"] = 5.0
    beliefs.test("a", "b")
    beliefs.test("a", "c")
    beliefs.test("b", "d")
    beliefs.test("c", "d")
    assert beliefs.mbps("a", "b", "c", "d") == [5.0, 100.0, 100.0, 100.0]
    assert not beliefs.suspects()


def test_a_throttled_peer_does_not_slow_a_node_that_only_it_has_measured() -> None:
    beliefs = Beliefs(dict.fromkeys("abc", 100.0))
    beliefs.test("b", "a")
    beliefs.true_mbps["a"] = 5.0
    beliefs.test("b", "a")
    assert (beliefs.of("b").mbps, beliefs.of("b").former_mbps) == (5.0, 100.0)
    beliefs.test("b", "c")
    assert beliefs.of("b") == LinkBandwidth(100.0, beliefs.now_s)


@pytest.mark.parametrize("hindered", [True, False])
def test_a_slow_peer_clears_suspects_of_which_it_measures_more(hindered: bool) -> None:
    """A busy machine cuts a test of the only two fast boards to a crawl."""
    beliefs = Beliefs({"a": 100.0, "b": 100.0, "slow": 4.0, "tardy": 6.0})
    for _ in range(2):
        beliefs.all_pairs(beliefs.true_mbps)
    beliefs.measured("a", "b", 2.0, hindered=hindered)
    assert beliefs.suspects() == {"a", "b"}
    beliefs.test("slow", "a")
    assert beliefs.suspects() == {"a", "b"}, "no node is believed about itself"
    beliefs.test("a", "slow")
    assert beliefs.suspects() == {"b"}
    beliefs.test("b", "tardy")
    assert beliefs.mbps("a", "b", "slow", "tardy") == [100.0, 100.0, 4.0, 6.0]
    assert not beliefs.suspects()


def test_what_one_result_showed_is_kept_until_a_fast_peer_contradicts_it() -> None:
    beliefs = Beliefs({"server": 1000.0, "fast": 100.0, "slow-1": 4.0, "slow-2": 4.03})
    beliefs.test("fast", "server", 0.0026)
    beliefs.test("server", "slow-1")
    beliefs.test("server", "slow-2")
    assert beliefs.of("server").mbps == pytest.approx(4.03)
    assert beliefs.of("server").claimed_mbps > 30.0
    beliefs.true_mbps["server"] = 4.0
    beliefs.all_pairs(["fast", "slow-1", "slow-2"])
    beliefs.test("fast", "slow-1")
    for _ in range(2):
        beliefs.test("server", "fast")
    assert beliefs.of("server").claimed_mbps == 0.0


def test_a_slow_peer_does_not_clear_a_suspect_of_which_it_measures_no_more() -> None:
    beliefs = fleet(slow=5.0)
    beliefs.true_mbps["a"] = 5.0
    beliefs.test("a", "b")
    beliefs.test("a", "slow")
    assert beliefs.suspects() == {"a", "b"}
    beliefs.test("a", "c")
    assert beliefs.of("a") == LinkBandwidth(5.0, beliefs.now_s)


def test_of_two_nodes_both_are_believed_slow() -> None:
    """Nobody can say which link it is."""
    beliefs = Beliefs(dict.fromkeys("ab", 100.0))
    beliefs.test("a", "b")
    beliefs.test("b", "a")
    beliefs.true_mbps["a"] = 5.0
    beliefs.test("a", "b")
    assert beliefs.mbps("a", "b") == [5.0, 5.0]
    assert beliefs.suspects() == {"a", "b"}
    beliefs.test("a", "b")
    assert beliefs.mbps("a", "b") == [5.0, 5.0]
    assert not beliefs.suspects()
    beliefs.true_mbps["a"] = 100.0
    beliefs.test("a", "b")
    beliefs.test("b", "a")
    assert beliefs.mbps("a", "b") == [100.0, 100.0]


def test_users_traffic_explains_a_lower_result() -> None:
    beliefs = fleet()
    beliefs.used_mbps["a"] = 70.0
    beliefs.measured("a", "b", 30.0)
    assert not beliefs.suspects()
    assert beliefs.mbps("a", "b") == [100.0, 100.0]
    beliefs.measured("a", "b", 5.0)
    assert beliefs.suspects() == {"a", "b"}  # it explains no more than 30


@pytest.mark.parametrize(("peer", "used_mbps"), [("slow", 0.0), ("new", 0.0), ("b", 70.0)])
def test_a_result_that_is_explained_counts_once_the_value_is_too_old(
    peer: str, used_mbps: float
) -> None:
    beliefs = fleet(slow=30.0)
    beliefs.true_mbps["new"], beliefs.link_mbps["new"] = 30.0, None
    beliefs.used_mbps["a"] = used_mbps
    confirmed_s = beliefs.of("a").at_s
    for _ in range(3):
        beliefs.measured("a", peer, 30.0)
    bandwidths, last_s = beliefs.bandwidths, beliefs.now_s
    valid = bandwidths.of("a", confirmed_s + TTL_S)
    assert valid is not None
    assert (valid.mbps, valid.lower_bound) == (100.0, False)
    after = bandwidths.of("a", confirmed_s + TTL_S + 0.1)
    assert after == LinkBandwidth(30.0, last_s, lower_bound=True)
    assert bandwidths.of("a", last_s + TTL_S + 0.1) is None


def test_once_a_value_is_too_old_a_node_is_not_believed_about_itself() -> None:
    beliefs = fleet(slow=10.0)
    confirmed_s = beliefs.of("a").at_s
    beliefs.test("a", "slow")
    beliefs.measured("slow", "a", 70.0)
    bound = beliefs.bandwidths.of("a", confirmed_s + TTL_S + 0.1)
    assert bound is not None
    assert bound.mbps == 10.0


def test_a_lower_result_is_not_forgotten_for_an_older_bound_that_it_contradicts() -> None:
    beliefs = fleet(slow=50.0)
    confirmed_s = beliefs.of("a").at_s
    beliefs.test("a", "slow")
    beliefs.true_mbps["a"] = 5.0
    beliefs.test("a", "b")
    assert beliefs.of("a").is_suspect
    assert beliefs.bandwidths.of("a", confirmed_s + TTL_S + 0.1) is None


def test_a_peer_that_confirms_a_value_outlives_what_a_slower_one_showed() -> None:
    beliefs = fleet(slow=10.0)
    beliefs.test("a", "slow")
    beliefs.now_s += TTL_S / 2
    beliefs.test("a", "b")
    assert beliefs.bandwidths.of("a", beliefs.now_s + TTL_S) == beliefs.of("a")
    assert beliefs.of("a").mbps == 100.0
    assert beliefs.bandwidths.of("a", beliefs.now_s + TTL_S + 0.1) is None


def test_a_new_peer_explains_a_lower_result() -> None:
    beliefs = fleet()
    beliefs.true_mbps["new"], beliefs.link_mbps["new"] = 5.0, None
    beliefs.test("a", "new")
    assert beliefs.mbps("a", "new") == [100.0, 5.0]
    assert not beliefs.suspects()


def test_a_node_that_only_a_throttled_peer_has_measured_keeps_its_value() -> None:
    beliefs = fleet(x=100.0)
    beliefs.bandwidths.drop(["x"])
    beliefs.test("x", "a")
    beliefs.true_mbps["a"] = 5.0
    beliefs.test("x", "a")
    beliefs.test("a", "b")
    beliefs.test("a", "c")
    assert beliefs.mbps("a", "x") == [5.0, 100.0]
    beliefs.test("x", "a")
    assert beliefs.mbps("a", "x") == [5.0, 100.0]
    assert not beliefs.of("x").is_suspect


@pytest.mark.parametrize(("seconds", "speed"), [(0.1, None), (0.003, None), (0.003, 100.0)])
def test_any_peer_that_measures_the_old_value_confirms_it(
    seconds: float, speed: float | None
) -> None:
    beliefs = Beliefs(dict.fromkeys("abc", 100.0), {"a": speed})
    beliefs.test("a", "b")
    beliefs.measured("a", "b", 5.0)
    assert beliefs.of("a").is_suspect
    beliefs.test("a", "c", seconds)
    assert beliefs.of("a") == LinkBandwidth(100.0, beliefs.now_s)


def test_a_single_bad_result_is_forgotten() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 12.0)
    assert beliefs.suspects() == {"a", "b"}
    beliefs.test("a", "c")
    beliefs.test("b", "d")
    assert not beliefs.suspects()
    assert beliefs.mbps("a", "b") == [100.0, 100.0]


def test_a_link_that_became_faster_is_believed_once_two_servers_measured_it() -> None:
    beliefs = fleet()
    beliefs.true_mbps = dict.fromkeys("abcd", 900.0)
    beliefs.test("a", "b")
    assert beliefs.mbps("a", "b") == [100.0, 100.0]
    assert beliefs.bandwidths.contradicted_s("a") == beliefs.now_s  # the next test is soon
    beliefs.test("a", "c")
    assert beliefs.mbps("a", "c") == [900.0, 100.0]  # what c measured itself does not count
    beliefs.test("c", "a")
    beliefs.test("c", "b")
    assert beliefs.mbps("a", "c") == [900.0, 900.0]
    assert not beliefs.suspects()


def test_one_server_alone_does_not_make_a_node_faster() -> None:
    beliefs = fleet(fast=200.0, faster=200.0)
    for seconds in (0.1, 0.003) * 20:
        beliefs.measured("a", "b", 900.0, seconds)
        assert beliefs.of("a").mbps == 100.0
        beliefs.test("a", "fast")
        assert beliefs.of("a") == LinkBandwidth(100.0, beliefs.now_s)


def test_of_two_servers_that_show_more_the_lower_one_is_believed() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 900.0)
    beliefs.measured("a", "c", 130.0)
    assert beliefs.of("a") == LinkBandwidth(130.0, beliefs.now_s)


def test_a_short_test_that_was_faster_does_not_lower_what_is_believed() -> None:
    beliefs = fleet()
    beliefs.now_s += 200.0
    beliefs.measured("a", "b", 130.0, 0.003)
    assert beliefs.of("a").mbps == 100.0
    assert not beliefs.of("a").lower_bound
    beliefs.measured("a", "c", 130.0)
    known = beliefs.of("a")
    assert (known.mbps, known.lower_bound, known.is_short) == (100.0, True, True)
    beliefs.measured("a", "c", 130.0)
    assert beliefs.of("a") == LinkBandwidth(130.0, beliefs.now_s)


def test_a_server_may_confirm_itself_later_if_no_faster_one_is_there() -> None:
    beliefs = fleet(fast=200.0, faster=200.0)  # so that the value of a is certain
    beliefs.measured("a", "b", 900.0)
    beliefs.now_s += 105.0
    beliefs.measured("a", "b", 900.0)
    assert beliefs.of("a").mbps == 100.0
    beliefs.measured("a", "b", 900.0)
    assert beliefs.of("a").mbps == 900.0


def test_a_server_may_confirm_itself_at_once_if_only_slow_peers_measured_the_node() -> None:
    beliefs = Beliefs({**dict.fromkeys("abc", 4.0), "fast": 100.0, "server": 1000.0})
    beliefs.test("a", "fast")
    beliefs.test("fast", "b")
    beliefs.test("fast", "c")
    assert beliefs.of("fast").mbps == 4.0
    beliefs.test("fast", "server")
    assert (beliefs.of("fast").mbps, beliefs.of("fast").claimed_mbps) == (4.0, 100.0)
    beliefs.measured("fast", "server", 0.1, hindered=True)  # decides nothing
    beliefs.test("fast", "server")
    assert beliefs.of("fast") == LinkBandwidth(100.0, beliefs.now_s)


def test_what_a_node_alone_says_of_itself_brings_a_test_forward_once() -> None:
    beliefs = Beliefs({"a": 4.0, "fast": 100.0, "server": 1000.0})
    beliefs.test("fast", "a")
    contradicted_s = beliefs.bandwidths.contradicted_s
    for _ in range(3):
        beliefs.test("server", "fast")  # that fast measured itself
        assert beliefs.of("fast").mbps == 4.0
    assert contradicted_s("fast") == beliefs.now_s - 20.0
    beliefs.measured("server", "fast", 200.0)
    assert contradicted_s("fast") == beliefs.now_s


def test_short_tests_of_two_faster_servers_make_an_exact_value_a_bound() -> None:
    beliefs = Beliefs({"a": 50.0, "b": 50.0, "s": 1000.0, "t": 1000.0})
    beliefs.test("s", "t")
    for server in "st":
        beliefs.test("a", server)
    assert beliefs.of("a") == LinkBandwidth(50.0, beliefs.now_s)
    beliefs.now_s += 200.0
    for server in "st":
        beliefs.measured("a", server, 100.0, 0.0033)
    assert (beliefs.of("a").mbps, beliefs.of("a").lower_bound) == (50.0, True)


def test_what_two_fast_peers_showed_is_not_raised_by_one_server_at_once() -> None:
    beliefs = fleet()
    beliefs.true_mbps["a"] = 5.0
    beliefs.test("a", "b")
    beliefs.test("a", "c")
    assert beliefs.of("a").mbps == 5.0
    for _ in range(2):
        beliefs.measured("a", "b", 100.0)
    assert beliefs.of("a").mbps == 5.0


def test_a_link_that_becomes_slower_by_and_by_is_believed() -> None:
    beliefs = fleet()
    for mbps in (90.0, 81.0, 73.0, 66.0):
        beliefs.true_mbps["a"] = mbps
        beliefs.test("a", "b")
        beliefs.test("a", "c")
        assert beliefs.of("a").mbps == mbps
    assert not beliefs.suspects()


def test_the_better_one_of_two_lower_results_is_believed() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 5.0)
    beliefs.measured("a", "c", 60.0)
    assert beliefs.of("a") == LinkBandwidth(60.0, beliefs.now_s)


# Lower bounds.


def test_a_larger_lower_bound_replaces_a_smaller_one_and_an_exact_result_any() -> None:
    beliefs = Beliefs(dict.fromkeys("ab", 1000.0))
    for mbps in (200.0, 400.0, 300.0):
        beliefs.measured("a", "b", mbps, 0.005 - 1e-9)
    assert beliefs.of("a").mbps == pytest.approx(200.0)
    assert beliefs.of("a").lower_bound
    beliefs.test("a", "b")
    assert beliefs.of("a") == LinkBandwidth(1000.0, beliefs.now_s)
    beliefs.measured("a", "b", 600.0, 0.001)
    assert (beliefs.of("a").mbps, beliefs.of("a").lower_bound) == (1000.0, False)


def test_a_short_test_that_reaches_what_is_believed_renews_it() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 85.0, 0.003)
    assert beliefs.of("a") == LinkBandwidth(100.0, beliefs.now_s)
    at_s = beliefs.now_s
    beliefs.measured("a", "b", 60.0, 0.003)
    assert beliefs.of("a") == LinkBandwidth(100.0, at_s)


def test_a_short_test_settles_a_suspicion_if_it_is_as_fast_as_it_can_be() -> None:
    beliefs = fleet()
    beliefs.rtt_ms = 30.0
    beliefs.measured("a", "b", 5.0)
    assert beliefs.of("a").is_suspect
    beliefs.measured("a", "c", 17.0, 0.03)  # one round trip
    assert not beliefs.of("a").is_suspect


def test_a_short_test_far_below_what_it_could_reach_makes_a_suspect() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 60.0, 0.003)
    assert not beliefs.suspects()
    beliefs.measured("a", "b", 30.0, 0.003)
    assert beliefs.suspects() == {"a", "b"}
    assert beliefs.of("a").former_mbps == 100.0


@pytest.mark.parametrize("seconds", [0.1, 0.003])
def test_a_check_that_was_too_fast_to_be_timed_makes_no_fast_link_suspect(seconds: float) -> None:
    """64 KiB took 1.7 ms, of which TCP's slow start took half: half of them in all that time are
    157 Mbit/s. On a link of 80 Mbit/s they take 7.5 ms."""
    beliefs = Beliefs(dict.fromkeys("ab", 1000.0), dict.fromkeys("ab", 1000.0))
    beliefs.test("a", "b", seconds)
    before = beliefs.of("a")
    beliefs.measured("a", "b", 157.0, 0.00167, untimed=True)
    assert beliefs.of("a") == replace(before, at_s=beliefs.now_s)
    beliefs.measured("a", "b", 35.0, 0.0075, untimed=True)
    assert beliefs.of("a").is_suspect


@pytest.mark.parametrize("first_is_exact", [False, True])
def test_a_suspicion_that_no_test_settles_ends_in_a_lower_bound(first_is_exact: bool) -> None:
    """The tests of a suspect are as large as the lower value needs. On a fast link they are too
    short to say more, however often they are repeated."""
    beliefs = Beliefs(dict.fromkeys("abc", 500.0), dict.fromkeys("abc", 500.0))
    beliefs.all_pairs("abc")
    beliefs.measured("a", "b", 5.0, 0.1 if first_is_exact else 0.004)
    assert beliefs.suspects() == {"a", "b"}
    beliefs.measured("a", "c", 300.0, 0.003)  # neither half as fast as believed, nor as fast
    known = beliefs.of("a")
    assert known.mbps == pytest.approx(300 * 3 / 8)
    assert (known.lower_bound, known.is_short, known.is_suspect) == (True, True, False)
    assert beliefs.suspects() == {"b"}
    beliefs.test("a", "c", 0.1)
    assert beliefs.of("a") == LinkBandwidth(500.0, beliefs.now_s)


def test_what_two_tests_show_is_no_longer_what_the_counters_said() -> None:
    beliefs = Beliefs(dict.fromkeys("abc", 60.0), dict.fromkeys("abc", 100.0))
    beliefs.measured("a", "b", 60.0, 0.02, hindered=True)
    beliefs.bandwidths.carry("a", 70.0, 100.0, beliefs.now_s)
    assert (beliefs.of("a").mbps, beliefs.of("a").source) == (70.0, COUNTERS)
    for client, server in ("bc", "cb"):
        beliefs.test(client, server)
    for peer in "bc":
        beliefs.measured(peer, "a", 5.0, 0.1)
    assert (beliefs.of("a").mbps, beliefs.of("a").source) == (5.0, TESTS)


# Hindered boards.


def test_a_result_of_a_hindered_board_is_a_lower_bound_and_no_suspicion() -> None:
    beliefs = fleet()
    for _ in range(5):
        beliefs.measured("a", "b", 60.0, hindered=True)
        beliefs.measured("a", "c", 60.0, hindered=True)
    assert beliefs.mbps("a", "b", "c") == [100.0, 100.0, 100.0]
    assert not beliefs.suspects()
    new = Beliefs(dict.fromkeys("ab", 100.0))
    new.measured("a", "b", 20.0, hindered=True)
    assert new.of("a").mbps == pytest.approx(20 / 1.05)
    assert new.of("a").lower_bound
    assert new.of("a").is_host_limited


def test_no_value_of_a_hindered_board_is_exact_not_even_at_the_speed_of_its_interface() -> None:
    beliefs = Beliefs(dict.fromkeys("abc", 95.0), dict.fromkeys("abc", 100.0))
    beliefs.measured("a", "b", 95.0, hindered=True)
    assert (beliefs.of("a").lower_bound, beliefs.of("a").is_short) == (True, False)
    assert beliefs.of("a").is_host_limited
    beliefs.test("a", "b")
    assert beliefs.of("a") == LinkBandwidth(95.0, beliefs.now_s)
    beliefs.measured("a", "b", 90.0, hindered=True)
    assert beliefs.of("a") == LinkBandwidth(95.0, beliefs.now_s)


def test_a_board_that_only_hindered_tests_contradict_is_suspect_and_host_limited() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 4.5, hindered=True)
    assert (beliefs.of("a").is_suspect, beliefs.of("a").is_host_limited) == (True, False)
    assert (beliefs.of("a").mbps, beliefs.of("a").suspected_mbps) == (100.0, 4.5)
    beliefs.measured("a", "c", 4.5)
    beliefs.measured("a", "d", 4.5)
    assert beliefs.of("a") == LinkBandwidth(4.5, beliefs.now_s)


def test_a_hindered_test_makes_no_throttled_link_fast_again() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 4.5)
    assert beliefs.of("a").mbps == 4.5
    beliefs.measured("a", "b", 4.3, hindered=True)
    assert (beliefs.of("a").mbps, beliefs.of("a").former_mbps) == (4.5, 100.0)


def test_of_two_nodes_that_are_always_held_back_both_are_believed_slow() -> None:
    beliefs = Beliefs(dict.fromkeys("ab", 100.0))
    beliefs.test("a", "b")
    for _ in range(2):
        beliefs.measured("a", "b", 4.5, hindered=True)
    assert beliefs.of("a").mbps == pytest.approx(4.5 / 1.05)


def test_a_board_that_was_held_back_lowers_nothing_of_its_peer() -> None:
    beliefs = fleet()
    for peer in "bcd":
        beliefs.now_s += 10.0
        test = BandwidthTest(
            "a", peer, 4.5, 0.1, beliefs.now_s, 0.4, is_hindered=True, unhindered=peer
        )
        beliefs.bandwidths.add(test, beliefs.link_mbps)
    assert beliefs.mbps("a", "b", "c", "d") == [pytest.approx(4.5 / 1.05), 100.0, 100.0, 100.0]
    assert beliefs.of("a").is_host_limited
    assert not beliefs.suspects()


def test_traffic_that_raises_a_host_limited_bound_is_none() -> None:
    beliefs = Beliefs(dict.fromkeys("ab", 100.0))
    beliefs.measured("a", "b", 50.0, hindered=True)
    beliefs.bandwidths.carry("a", 60.0, 100.0, beliefs.now_s)
    assert beliefs.of("a").source == "counters"
    assert not beliefs.of("a").is_host_limited


def test_a_board_whose_host_is_always_too_busy_is_believed_slow_after_two_peers() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 4.5, hindered=True)
    assert beliefs.suspects() == {"a", "b"}
    beliefs.measured("a", "b", 4.5, hindered=True)
    assert beliefs.suspects() == {"a", "b"}  # it may be b that is busy
    beliefs.measured("a", "c", 4.1, hindered=True)
    assert beliefs.of("a").mbps == pytest.approx(4.5 / 1.05)
    assert (beliefs.of("a").lower_bound, beliefs.of("a").is_host_limited) == (True, True)
    assert beliefs.mbps("b", "c") == [100.0, 100.0]
    assert not beliefs.suspects()


def test_a_peer_that_tests_without_hindrance_clears_a_board_that_was_busy() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 4.5, hindered=True)
    beliefs.test("a", "c")
    assert beliefs.of("a") == LinkBandwidth(100.0, beliefs.now_s)


@pytest.mark.parametrize("of_peer", [None, 3.0, 95.5])
def test_a_result_at_the_speed_of_the_peers_interface_is_a_lower_bound(
    of_peer: float | None,
) -> None:
    names = {"fast": 940.0, "peer": 95.5, "c": 940.0}
    beliefs = Beliefs(dict(names), {"fast": 1000.0, "peer": 100.0, "c": 1000.0})
    if of_peer:
        beliefs.measured("peer", "c", of_peer, 0.001)
    beliefs.test("fast", "peer")
    known = beliefs.of("fast")
    assert (known.mbps, known.lower_bound, known.is_short) == (95.5, True, False)
    beliefs.test("peer", "fast")
    assert beliefs.of("peer") == LinkBandwidth(95.5, beliefs.now_s)
    beliefs.test("fast", "c")
    assert beliefs.of("fast") == LinkBandwidth(940.0, beliefs.now_s)


# Traffic.


def test_invented_traffic_counts_no_more_than_what_another_node_measured() -> None:
    beliefs = Beliefs(dict.fromkeys("abc", 95.0))
    carry = beliefs.bandwidths.carry
    carry("a", 1e6, 1e6, 0.0)
    assert beliefs.of("a").mbps == 100.0  # nobody has measured it
    for peer in "bcbc":
        beliefs.measured("a", peer, 5.0, hindered=True)
        for link_mbps in (None, 1e6):
            carry("a", 1e6, link_mbps, beliefs.now_s)
        assert beliefs.of("a").mbps <= 5.0 / 0.8
    assert beliefs.bandwidths.contradicted_s("a") == beliefs.now_s


def test_traffic_does_not_make_a_tests_result_valid_for_longer() -> None:
    beliefs = fleet()
    tested_s = beliefs.now_s
    beliefs.bandwidths.carry("d", 95.0, 100.0, tested_s + TTL_S)
    assert beliefs.bandwidths.of("d", tested_s + TTL_S + 1) is None


def test_a_short_test_that_agrees_with_traffic_counts_as_a_test() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 4.5, hindered=True)
    beliefs.measured("a", "c", 4.5, hindered=True)
    beliefs.bandwidths.carry("a", 5.0, 100.0, beliefs.now_s)
    assert (beliefs.of("a").mbps, beliefs.of("a").source) == (5.0, "counters")
    beliefs.measured("a", "d", 4.6, 0.001)
    assert (beliefs.of("a").mbps, beliefs.of("a").source) == (5.0, "tests")


# Times.


@pytest.mark.parametrize("mbps", [5.0, 95.0, 900.0])
def test_a_result_with_an_old_date_does_not_make_what_is_believed_older(mbps: float) -> None:
    beliefs = fleet()
    at_s = {node: beliefs.of(node).at_s for node in "ab"}
    for peer in "bc":
        old = BandwidthTest("a", peer, mbps, 0.1, -1e9, beliefs.rtt_ms)
        beliefs.bandwidths.add(old, beliefs.link_mbps)
    for node, known_s in at_s.items():
        assert beliefs.of(node).at_s >= known_s


# Nobody is believed about itself.


def test_what_a_node_measured_itself_counts_until_another_measured_it() -> None:
    beliefs = Beliefs(dict.fromkeys("abc", 100.0))
    beliefs.true_mbps["liar"] = 10.0
    beliefs.link_mbps["liar"] = None
    beliefs.measured("a", "liar", 900.0)
    assert beliefs.of("liar").mbps == 900.0
    beliefs.test("liar", "b")
    assert beliefs.of("liar").mbps == 10.0
    beliefs.measured("c", "liar", 900.0)
    assert beliefs.of("liar").mbps == 10.0
    beliefs.test("liar", "c")
    assert beliefs.of("liar") == LinkBandwidth(10.0, beliefs.now_s)


def test_a_liar_cannot_slow_another_node_alone() -> None:
    beliefs = fleet()
    for _ in range(5):
        beliefs.measured("a", "b", 1.0)
        beliefs.test("a", "c")
    assert beliefs.of("a").mbps == 100.0
    assert not beliefs.of("a").is_suspect


def test_the_last_peers_are_those_that_measured_the_node() -> None:
    beliefs = Beliefs(dict.fromkeys("abcd", 100.0))
    beliefs.test("a", "b")
    beliefs.test("a", "c")
    beliefs.test("d", "a")
    assert beliefs.bandwidths.last_peers("a") == ("c", "b")
    assert beliefs.bandwidths.last_peers("b") == ()
    assert beliefs.bandwidths.last_peers("d") == ("a",)


def test_a_slow_peer_is_remembered_although_its_result_says_nothing() -> None:
    beliefs = fleet(slow=10.0)
    beliefs.test("a", "slow")
    assert beliefs.of("a").mbps == 100.0
    assert beliefs.bandwidths.last_peers("a")[0] == "slow"


def test_a_node_that_left_is_forgotten() -> None:
    beliefs = fleet()
    beliefs.measured("a", "b", 5.0)
    beliefs.bandwidths.drop(["a"])
    assert beliefs.bandwidths.of("a", beliefs.now_s) is None
    beliefs.test("a", "c")
    assert not beliefs.of("a").is_suspect


# Any sequence.

NODES = "abcde"
tests = st.tuples(
    st.sampled_from(NODES),
    st.sampled_from(NODES),
    st.floats(0.0, 1e4),
    st.floats(0.0, 1.0),
    st.booleans(),
).filter(lambda each: each[0] != each[1])


@examples(100)
@given(
    st.lists(tests, min_size=1, max_size=30),
    st.sampled_from([None, 0.2, 30.0]),
    st.sampled_from([None, 100.0, 1000.0]),
)
def test_a_belief_is_always_what_a_test_showed(
    series: list[tuple[str, str, float, float, bool]], rtt_ms: float | None, link: float | None
) -> None:
    beliefs = Beliefs(dict.fromkeys(NODES, 0.0), dict.fromkeys(NODES, link), rtt_ms)
    for client, server, mbps, seconds, hindered in series:
        beliefs.measured(client, server, mbps, seconds, hindered=hindered)
    for node in NODES:
        known = beliefs.bandwidths.of(node, beliefs.now_s)
        own = [
            value
            for client, server, mbps, seconds, hindered in series
            if node in (client, server)
            for value in (
                mbps,
                BandwidthTest(client, server, mbps, seconds, 0, rtt_ms, hindered).value_mbps,
            )
        ]
        assert (known is None) == (not own)
        assert known is None or known.mbps in own
        assert len(beliefs.bandwidths.last_peers(node)) <= 2


SPEEDS = st.sampled_from([100.0, 50.0, 20.0, 5.0])


@examples(100)
@given(st.lists(SPEEDS, min_size=5, max_size=5))
def test_after_all_have_tested_each_other_the_beliefs_are_the_truth(speeds: list[float]) -> None:
    """But for a single fastest link, which no peer can show."""
    beliefs = Beliefs(dict(zip(NODES, speeds, strict=True)))
    for _ in range(3):
        beliefs.all_pairs(NODES)
    for node, mbps in beliefs.true_mbps.items():
        assert beliefs.of(node).mbps == min(mbps, sorted(speeds)[-2])


@examples(100)
@given(st.lists(st.tuples(st.sampled_from("cde"), SPEEDS), max_size=6))
def test_every_change_is_believed_while_two_links_are_fast(
    changes: list[tuple[str, float]],
) -> None:
    beliefs = fleet(e=100.0)
    for node, mbps in changes:
        beliefs.true_mbps[node] = mbps
        for _ in range(3):
            beliefs.all_pairs(NODES)
        assert beliefs.mbps(*NODES) == list(beliefs.true_mbps.values())


# What pods use beside a test.


@pytest.mark.parametrize(
    ("used", "requested", "link_mbps", "expected"),
    [
        (40.0, 50.0, None, 100.0),  # 40 of the 50 flowed: a link of 100
        (40.0, 0.0, None, 60.0),  # other traffic stays when a pod ends
        (0.0, 50.0, None, 60.0),
        (40.0, 30.0, None, 90.0),
        (40.0, 50.0, 80.0, 80.0),  # TCP takes a part from what flows
    ],
)
def test_what_pods_use_beside_a_test_belongs_to_the_link(
    used: float, requested: float, link_mbps: float | None, expected: float
) -> None:
    bandwidths = NodeBandwidths(1800.0)
    test = BandwidthTest("n1", "n2", 60.0, 1.0, 0.0, 1.0, requested_mbps={"n1": requested})
    for at_s in (0.0, 30.0):  # the second test agrees
        speeds = {"n1": link_mbps, "n2": None}
        bandwidths.add(replace(test, at_s=at_s), speeds, {"n1": used})
        known = bandwidths.of("n1", at_s)
        assert known is not None
        assert known.mbps == pytest.approx(expected)
        assert known.at_s == at_s
        assert not known.is_suspect
    peer = bandwidths.of("n2", 30.0)
    assert peer is not None
    assert peer.mbps == pytest.approx(60.0)
