from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from leadline_controller.probing.budgets import PlannedTest
from leadline_controller.probing.grants import BLOCK_BYTES, LATE_S, BandwidthGrants, PingGrants
from leadline_controller.telemetry.bandwidth_tests import BURST_S, BandwidthTest
from leadline_controller.telemetry.contradictions import outvoted
from leadline_controller.telemetry.ingestor import NOT_LEASED, OVER_LEASE, TOO_OFTEN
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.bandwidth_reports import (
    DONE,
    ENDS_S,
    MAX_BYTES,
    MOST_MBPS,
    PLANNED,
    granted,
    received,
    sent,
)

FAILED, REFUSED, ABSENT = (
    pb.BandwidthReport.FAILED,
    pb.BandwidthReport.REFUSED,
    pb.BandwidthReport.ABSENT,
)


RESULT = BandwidthTest("a", "b", mbps=80.0, seconds=50_000 * 1e-6, at_s=5.0)


@pytest.mark.parametrize("is_server_first", [False, True])
def test_a_result_counts_once_both_ends_have_reported(is_server_first: bool) -> None:
    grants = granted()
    reports = [("a", sent(), 4.0), ("b", received(), 5.0)]
    (first, one, one_s), (second, other, other_s) = reports[:: -1 if is_server_first else 1]
    assert grants.refusal(first, one, 5.0) is None
    assert grants.report(first, one, one_s) == (None, None)
    assert grants.refusal(first, one, 5.0) == NOT_LEASED  # it has reported
    assert grants.refusal(second, other, 5.0) is None
    assert grants.report(second, other, other_s) == (MAX_BYTES, RESULT)
    for node, report, _ in reports:
        assert grants.refusal(node, report, 5.0) == NOT_LEASED


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"lease_id": "x-2"}, NOT_LEASED),
        ({"lease_id": ""}, NOT_LEASED),
        ({"node": "c"}, NOT_LEASED),
        ({"peer": "c"}, NOT_LEASED),
        ({"node": "a", "peer": "a"}, NOT_LEASED),
        ({"bandwidth_mbps": 1e30}, OVER_LEASE),
        # More than the interfaces do in that time, and a shaper's burst of 5 ms.
        ({"bandwidth_mbps": 122.0}, OVER_LEASE),
        ({"bandwidth_mbps": 120.0}, None),
        ({"bandwidth_mbps": 221.0, "measured_us": 5000}, OVER_LEASE),
        ({"bandwidth_mbps": 219.0, "measured_us": 5000}, None),
        ({"bandwidth_mbps": 109.0, "measured_us": 70_000}, None),
        ({"measured_us": 106_000}, OVER_LEASE),  # more bytes than came
        ({"measured_us": 104_000}, None),
        ({"measured_us": 0}, OVER_LEASE),
        ({"measured_us": None}, OVER_LEASE),
        ({"bandwidth_mbps": None}, OVER_LEASE),
        ({"transferred_bytes": MAX_BYTES + BLOCK_BYTES}, None),
        ({"transferred_bytes": MAX_BYTES + BLOCK_BYTES + 1}, OVER_LEASE),
        ({"bandwidth_mbps": 0.0}, OVER_LEASE),
        ({"bandwidth_mbps": 6.0}, OVER_LEASE),  # fewer bytes than any measurement leaves
        ({"bandwidth_mbps": 6.0, "lower_bound": True}, OVER_LEASE),
        ({"bandwidth_mbps": 8.0}, None),  # the rest passed in a shaper's burst
        ({"bandwidth_mbps": 0.0, "transferred_bytes": 0}, None),
        ({"outcome": FAILED, "bandwidth_mbps": None, "measured_us": None}, None),
    ],
)
def test_a_servers_report_within_and_beyond_its_lease(
    changed: dict[str, Any], kind: str | None
) -> None:
    node = changed.get("node", "b")
    fields = {name: value for name, value in changed.items() if name != "node"}
    assert granted().refusal(node, received(**fields), 5.0) == kind


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({}, None),
        ({"peer": "c"}, NOT_LEASED),
        ({"transferred_bytes": MAX_BYTES + BLOCK_BYTES + 1}, OVER_LEASE),
        ({"outcome": FAILED, "transferred_bytes": 0}, None),
        ({"bandwidth_mbps": 1e30}, None),  # nobody asks a client
    ],
)
def test_a_clients_report_within_and_beyond_its_lease(
    changed: dict[str, Any], kind: str | None
) -> None:
    assert granted().refusal("a", sent(**changed), 5.0) == kind


@pytest.mark.parametrize("measured_us", [50_000, 20_000, 5000])
def test_a_shapers_burst_makes_no_link_faster_than_the_interfaces(measured_us: int) -> None:
    grants = granted()
    seconds = measured_us * 1e-6
    most_mbps = 1.1 * MOST_MBPS * (seconds + BURST_S) / seconds
    grants.report("a", sent(), 4.0)
    report = received(bandwidth_mbps=0.999 * most_mbps, measured_us=measured_us)
    assert grants.refusal("b", report, 5.0) is None
    _, test = grants.report("b", report, 5.0)
    assert test is not None
    assert not test.is_exact
    assert test.value_mbps <= 1.1 * MOST_MBPS


def test_a_clients_bandwidth_does_not_count() -> None:
    grants = granted()
    grants.report("a", sent(bandwidth_mbps=99.0), 4.0)
    assert grants.report("b", received(), 5.0) == (MAX_BYTES, RESULT)


@pytest.mark.parametrize(
    ("client", "server", "agree"),
    [
        ({}, {}, True),
        ({}, {"transferred_bytes": 900_000}, True),  # some were still in the client's buffer
        ({}, {"transferred_bytes": 190_000}, False),
        ({"transferred_bytes": 900_000}, {}, False),  # more came than was sent
        ({"duration_ms": 1}, {}, True),
        ({"duration_ms": 1}, {"measured_us": 60_000}, False),  # it took the client less
        ({"transferred_bytes": 0}, {}, False),
    ],
)
def test_ends_that_contradict_each_other_are_not_believed(
    client: dict[str, Any], server: dict[str, Any], agree: bool
) -> None:
    grants = granted()
    grants.report("a", sent(**client), 4.0)
    moved, result = grants.report("b", received(**server), 5.0)
    assert moved == MAX_BYTES
    assert (result is not None) == agree


def test_a_board_that_disagrees_with_most_of_its_peers_is_named_for_an_hour() -> None:
    grants, names = BandwidthGrants(), ("a", "b", "c", "d", "e")
    for client, server in permutations(names, 2):
        planned = PlannedTest(client, server, MAX_BYTES, (), {client: 0.08, server: 0.08})
        grants.add(planned, "x-1", MOST_MBPS, now_s=0.0, ends_s=ENDS_S)
        transferred = 190_000 if "c" in (client, server) else MAX_BYTES
        grants.report(client, sent(peer=server), 4.0)
        grants.report(server, received(peer=client, transferred_bytes=transferred), 5.0)
    assert grants.contradicting(100.0) == {"c"}
    assert grants.contradicting(4000.0) == set()


@pytest.mark.parametrize("seed", range(20))
def test_peers_that_cannot_be_named_are_left_out_without_an_effect(seed: int) -> None:
    random, count = np.random.default_rng(seed), int(np.random.default_rng(seed).integers(3, 30))
    grants = BandwidthGrants()
    wrong = random.random(count) < 0.2
    every = np.array(list(combinations(range(count), 2)))
    ends = every[random.random(len(every)) < 0.5]
    disagree = wrong[ends].any(axis=1) | (random.random(len(ends)) < 0.05)
    for (a, b), disagrees in zip(ends.tolist(), disagree.tolist(), strict=True):
        client, server = f"n{a:02}", f"n{b:02}"
        planned = PlannedTest(client, server, MAX_BYTES, (), {client: 0.08, server: 0.08})
        grants.add(planned, "x-1", MOST_MBPS, now_s=0.0, ends_s=ENDS_S)
        transferred = 190_000 if disagrees else MAX_BYTES
        grants.report(client, sent(peer=server), 4.0)
        grants.report(server, received(peer=client, transferred_bytes=transferred), 5.0)
    everyone, places = np.unique(ends, return_inverse=True)
    found = outvoted(len(everyone), places.reshape(-1, 2), disagree)
    assert grants.contradicting(10.0) == {f"n{at:02}" for at in everyone[found]}


def test_nobody_is_named_for_one_disagreement() -> None:
    grants = granted()
    assert grants.contradicting(0.0) == set()
    grants.report("a", sent(), 4.0)
    grants.report("b", received(transferred_bytes=190_000), 5.0)
    assert grants.contradicting(10.0) == set()


@pytest.mark.parametrize("end", ["a", "b"])
@pytest.mark.parametrize("other_failed", [False, True])
def test_a_failure_at_one_end_is_charged_in_full_once_the_other_has_reported(
    end: str, other_failed: bool
) -> None:
    grants = granted()
    failed = {"bandwidth_mbps": None, "transferred_bytes": 0}
    reports = {
        node: make(**({"outcome": FAILED} | failed if other_failed or node == end else {}))
        for node, make in (("a", sent), ("b", received))
    }
    first = reports.pop(end)
    assert grants.report(end, first, 4.0) == (None, None)
    assert grants.refusal(end, first, 5.0) == NOT_LEASED
    ((other, second),) = reports.items()
    assert grants.refusal(other, second, 5.0) is None
    assert grants.report(other, second, 5.0) == (MAX_BYTES, None)


@pytest.mark.parametrize(
    ("client", "server", "charged"),
    [
        (REFUSED, REFUSED, 0),
        (REFUSED, ABSENT, 0),
        (REFUSED, FAILED, MAX_BYTES),
        (FAILED, ABSENT, MAX_BYTES),
        (REFUSED, DONE, MAX_BYTES),
        (pb.BandwidthReport.OUTCOME_UNSPECIFIED, REFUSED, MAX_BYTES),
    ],
)
def test_only_a_test_that_both_ends_refused_costs_nothing(
    client: pb.BandwidthReport.Outcome, server: pb.BandwidthReport.Outcome, charged: int
) -> None:
    grants = granted()
    grants.report("b", received(outcome=server), 4.0)
    assert grants.report("a", sent(outcome=client), 4.0) == (charged, None)


@pytest.mark.parametrize("at_s", [-1e9, float("-inf")])
def test_a_result_is_no_older_than_its_lease(at_s: float) -> None:
    grants = BandwidthGrants()
    grants.add(PLANNED, "x-1", MOST_MBPS, now_s=100.0, ends_s=110.0)
    grants.report("a", sent(), 104.0)
    _, result = grants.report("b", received(), at_s)
    assert result is not None
    assert result.at_s == 100.0


@pytest.mark.parametrize("end", ["a", "b"])
def test_a_result_of_a_hindered_board_is_marked(end: str) -> None:
    hindered = {"hindrances": [pb.BandwidthReport.CPU_BOUND]}
    grants = granted()
    grants.report("a", sent(**(hindered if end == "a" else {})), 4.0)
    _, result = grants.report("b", received(**(hindered if end == "b" else {})), 5.0)
    assert result is not None
    assert result.is_hindered
    assert not result.is_exact


@pytest.mark.parametrize("end", ["a", "b"])
@pytest.mark.parametrize(("waited_share", "is_hindered"), [(0.19, False), (0.21, True)])
def test_a_rate_is_exact_unless_a_board_waited_for_its_processor(
    end: str, waited_share: float, is_hindered: bool
) -> None:
    waited = {"waited_us": round(waited_share * received().measured_us)}
    grants = granted()
    grants.report("a", sent(**(waited if end == "a" else {})), 4.0)
    _, result = grants.report("b", received(**(waited if end == "b" else {})), 5.0)
    assert result is not None
    assert result.is_hindered == is_hindered


@pytest.mark.parametrize("end", ["a", "b"])
def test_waits_do_not_count_if_the_bytes_came_evenly_all_the_same(end: str) -> None:
    waited = {"waited_us": 10 * received().measured_us}
    for hindrances in ([], [pb.BandwidthReport.CPU_BOUND]):
        grants = granted()
        held_back = {**waited, "hindrances": hindrances}
        grants.report("a", sent(**(held_back if end == "a" else {})), 4.0)
        report = received(**(held_back if end == "b" else {}), steady=True)
        _, result = grants.report("b", report, 5.0)
        assert result is not None
        assert result.is_hindered == bool(hindrances)


def test_a_report_may_come_late_but_not_for_ever() -> None:
    grants = granted()
    assert grants.refusal("b", received(), ENDS_S + LATE_S) is None
    assert grants.refusal("b", received(), ENDS_S + LATE_S + 1) == NOT_LEASED
    for number in range(2, 500):
        at_s = number * 10.0
        grants.add(PLANNED, f"x-{number}", MOST_MBPS, now_s=at_s, ends_s=at_s + ENDS_S)
    assert len(grants._grants) <= 10


def test_the_reports_of_several_leases_are_kept_apart() -> None:
    grants = granted()
    other = PlannedTest("c", "d", MAX_BYTES, (), {"c": 0.08, "d": 0.08})
    grants.add(other, "x-2", MOST_MBPS, now_s=0.0, ends_s=ENDS_S)
    assert grants.refusal("d", received(peer="c"), 5.0) == NOT_LEASED
    grants.report("a", sent(), 4.0)
    assert grants.report("d", received(lease_id="x-2", peer="c"), 4.0) == (None, None)
    assert grants.report("b", received(), 5.0) == (MAX_BYTES, RESULT)


# Round trips.


def work(*peers: str) -> pb.PingLease:
    return pb.PingLease(
        peers=[pb.Peer(node=peer, address="10.0.0.2") for peer in peers],
        interval_s=10,
        count=3,
        ttl_s=60,
    )


def pinging(since_s: float = 100.0) -> PingGrants:
    grants = PingGrants()
    grants.add("a", work("b", "c"), since_s)
    return grants


def test_round_trips_count_only_under_a_lease_and_while_it_lasts() -> None:
    grants = pinging()
    assert grants.refusal("b", 101.0, 101.0) == NOT_LEASED
    assert grants.peers("b", 101.0) == frozenset()
    assert grants.refusal("a", 101.0, 101.0) is None
    assert grants.peers("a", 101.0) == {"b", "c"}
    assert grants.refusal("a", 300.0, 300.0) == NOT_LEASED
    assert grants.peers("a", 300.0) == frozenset()


def test_a_round_from_before_the_first_lease_is_refused() -> None:
    assert pinging().refusal("a", 99.0, 101.0) == NOT_LEASED
    assert pinging().refusal("a", float("-inf"), 101.0) == NOT_LEASED


def test_rounds_count_as_often_as_leased() -> None:
    grants = pinging()
    kinds = [grants.refusal("a", 101.0 + i / 100, 101.0) for i in range(1000)]
    assert kinds.count(None) <= 5  # three at once, and one each 10 s
    assert set(kinds) == {None, TOO_OFTEN}


def test_rounds_at_the_leased_pace_count_all_though_they_jitter() -> None:
    grants = pinging()
    for number in range(200):
        if number % 2 == 0:
            grants.add("a", work("b", "c"), 100.0 + 10 * number)
        at_s = 101.0 + 10 * number + (8.0 if number % 3 else 0.0)
        assert grants.refusal("a", at_s, at_s) is None


def test_buffered_rounds_that_arrive_at_once_are_valid() -> None:
    grants = pinging()
    kinds = [grants.refusal("a", 101.0 + 10 * i, 165.0) for i in range(6)]
    assert kinds == [None] * 6


def test_the_peers_of_the_previous_lease_are_valid_for_one_more_round() -> None:
    grants = pinging()
    grants.add("a", work("d"), 120.0)
    assert grants.peers("a", 130.0) == {"b", "c", "d"}
    assert grants.peers("a", 140.0) == {"d"}


def test_expired_leases_are_dropped() -> None:
    grants = pinging()
    grants.drop_expired(200.0)
    assert grants.peers("a", 200.0) != frozenset()
    grants.drop_expired(1000.0)
    assert grants._grants == {}
