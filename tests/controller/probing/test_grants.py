from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.probing.grants import LATE_S, BandwidthGrants, PingGrants
from leadline_controller.probing.planning import ProbeLimits, RunningLease
from leadline_controller.telemetry.ingestor import NOT_LEASED, OVER_LEASE, TOO_OFTEN
from leadline_wire.v1 import telemetry_pb2 as pb

# 10 MB in 2 s: a pace of 39.5 Mbit/s.
LIMITS = ProbeLimits(duration_ms=2000, max_bytes=10_000_000)
LEASE = RunningLease("a", "b", "x-1", ends_s=13.0)


def report(**changed: Any) -> pb.BandwidthReport:
    """A good result of the client, with some fields changed."""
    good = {"lease_id": "x-1", "peer": "b", "bandwidth_mbps": 20.0, "transferred_bytes": 5_000_000}
    return pb.BandwidthReport(**{**good, **changed})


def granted() -> BandwidthGrants:
    grants = BandwidthGrants(LIMITS)
    grants.add(LEASE, now_s=0.0)
    return grants


def test_a_result_counts_under_its_lease_once() -> None:
    grants = granted()
    assert grants.refusal("a", report(), 5.0) is None
    assert not grants.use_up("b", "x-1")  # only its client's word ends it
    assert grants.use_up("a", "x-1")
    assert grants.refusal("a", report(), 5.0) == NOT_LEASED
    assert not grants.use_up("a", "x-1")


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"lease_id": "x-2"}, NOT_LEASED),
        ({"lease_id": ""}, NOT_LEASED),
        ({"node": "c"}, NOT_LEASED),
        ({"peer": "c"}, NOT_LEASED),
        ({"node": "b", "peer": "a"}, NOT_LEASED),
        ({"bandwidth_mbps": 1e30, "lower_bound": True}, OVER_LEASE),
        ({"bandwidth_mbps": 46.0, "lower_bound": True}, OVER_LEASE),  # more than the bytes allow
        ({"bandwidth_mbps": 45.0, "lower_bound": True}, None),
        ({"bandwidth_mbps": 42.0}, OVER_LEASE),  # at the pace it must be called a lower bound
        ({"bandwidth_mbps": 41.0}, None),
        ({"bandwidth_mbps": 35.0, "lower_bound": True}, OVER_LEASE),  # nothing held it at 35
        ({"bandwidth_mbps": 36.0, "lower_bound": True}, None),
        ({"transferred_bytes": 10_131_072}, None),
        ({"transferred_bytes": 10_131_073}, OVER_LEASE),
        ({"bandwidth_mbps": 0.0}, None),
    ],
)
def test_results_within_and_beyond_a_lease(changed: dict[str, Any], kind: str | None) -> None:
    node = changed.pop("node", "a")
    assert granted().refusal(node, report(**changed), 5.0) == kind


@pytest.mark.parametrize(
    ("node", "peer", "kind"),
    [("a", "b", None), ("b", "a", None), ("c", "b", NOT_LEASED), ("a", "c", NOT_LEASED)],
)
def test_both_ends_may_report_a_failure(node: str, peer: str, kind: str | None) -> None:
    failed = report(peer=peer, bandwidth_mbps=None, transferred_bytes=0)
    assert granted().refusal(node, failed, 5.0) == kind


def test_a_result_may_come_late_but_not_for_ever() -> None:
    grants = granted()
    assert grants.refusal("a", report(), LEASE.ends_s + LATE_S) is None
    assert grants.refusal("a", report(), LEASE.ends_s + LATE_S + 1) == NOT_LEASED
    for number in range(2, 500):
        grants.add(replace(LEASE, lease_id=f"x-{number}", ends_s=number * 10.0), number * 10.0)
    assert len(grants._grants) <= 10


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
