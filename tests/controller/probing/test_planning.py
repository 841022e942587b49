from collections.abc import Iterator

import pytest
from leadline_controller.probing import planning
from leadline_controller.probing.planning import PingRing, ProbeLimits, RoundRobin, pairs
from leadline_wire.v1 import telemetry_pb2 as pb

LIMITS = ProbeLimits(interval_s=10.0, duration_ms=2000, ttl_ms=5000)
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
ALL = [("a", "b"), ("a", "c"), ("b", "c")]


def test_without_anchors_every_pair_is_tested() -> None:
    assert list(pairs(["c", "a", "b"], [])) == ALL


def test_with_anchors_each_node_is_tested_against_each() -> None:
    assert list(pairs(["a", "b", "s"], ["s", "gone", "s"])) == [("a", "s"), ("b", "s")]


def test_anchors_are_tested_against_each_other_once() -> None:
    expected = [("a", "s"), ("t", "s"), ("a", "t")]
    assert list(pairs(["a", "s", "t"], ["s", "t"])) == expected
    assert list(pairs(["s", "t"], ["s", "t"])) == [("t", "s")]


def test_one_lease_runs_at_a_time_in_turn() -> None:
    leases = RoundRobin(LIMITS)
    order = []
    for round_ in range(6):
        granted = leases.next(round_ * 10.0, ALL, ADDRESSES, "x")
        assert granted is not None
        (server, serving), (client, testing) = granted
        assert (serving.role, testing.role) == (pb.BandwidthLease.SERVER, pb.BandwidthLease.CLIENT)
        assert serving.lease_id == testing.lease_id
        assert (serving.peer.node, testing.peer.address) == (client, ADDRESSES[server])
        assert leases.next(round_ * 10.0 + 1, ALL, ADDRESSES, "x") is None
        assert leases.finish(testing.lease_id)
        order.append((client, server))
    assert order == ALL + ALL


def test_a_lease_without_a_result_expires() -> None:
    leases = RoundRobin(LIMITS)
    assert leases.next(0.0, ALL, ADDRESSES, "x") is not None
    # 5 s to arrive, 5 s to begin, 2 s to run, 1 s to spare
    assert leases.next(12.9, ALL, ADDRESSES, "x") is None
    assert not leases.is_due(12.9)
    assert leases.next(13.0, ALL, ADDRESSES, "x") is not None


def test_leases_carry_the_limits() -> None:
    limits = ProbeLimits(duration_ms=1500, max_bytes=7_000_000, ttl_ms=4000, port=5999)
    granted = RoundRobin(limits).next(0.0, ALL, ADDRESSES, "x")
    assert granted is not None
    for _, work in granted:
        caps = (work.duration_ms, work.max_bytes, work.ttl_ms, work.port)
        assert caps == (1500, 7_000_000, 4000, 5999)


def test_the_pair_that_has_waited_longest_is_next() -> None:
    leases = RoundRobin(LIMITS)
    later = [*ALL, ("d", "e")]
    addresses = {**ADDRESSES, "d": "10.0.0.4", "e": "10.0.0.5"}
    assert _tested(leases, 0.0, ALL, addresses) == ("a", "b")
    assert _tested(leases, 10.0, later, addresses) == ("a", "c")
    assert _tested(leases, 20.0, later, addresses) == ("b", "c")
    assert _tested(leases, 30.0, later, addresses) == ("d", "e")
    assert _tested(leases, 40.0, later, addresses) == ("a", "b")


def test_a_flapping_board_keeps_its_turn() -> None:
    leases = RoundRobin(LIMITS)
    order = []
    for turn in range(6):
        away = turn % 2 == 1  # board a
        wanted = [("b", "c"), ("c", "d")] if away else [("a", "b"), ("b", "c"), ("c", "d")]
        addresses = {name: f"10.0.0.{i}" for i, name in enumerate("abcd")}
        order.append(_tested(leases, turn * 10.0, wanted, addresses))
    expected = [("a", "b"), ("b", "c"), ("c", "d")]
    assert order == [*expected, ("b", "c"), ("a", "b"), ("c", "d")]


def test_slow_tests_do_not_starve_other_pairs() -> None:
    leases = RoundRobin(ProbeLimits(interval_s=1.0))
    # Each lease is lost and blocks for 13 s, so a round takes longer than its intervals.
    order = [_tested(leases, turn * 13.0, ALL, ADDRESSES, lost=True) for turn in range(6)]
    assert order == ALL + ALL


def test_an_early_result_does_not_advance_the_next_test() -> None:
    leases = RoundRobin(LIMITS)
    first = leases.next(0.0, ALL, ADDRESSES, "x")
    assert first is not None
    assert leases.finish(first[0][1].lease_id)
    assert leases.next(9.9, ALL, ADDRESSES, "x") is None
    assert leases.next(10.0, ALL, ADDRESSES, "x") is not None


def test_a_result_of_another_lease_ends_nothing() -> None:
    leases = RoundRobin(LIMITS)
    assert leases.next(0.0, ALL, ADDRESSES, "x") is not None
    assert not leases.finish("y-1")
    assert leases.running is not None


def test_pairs_without_an_address_wait() -> None:
    leases = RoundRobin(LIMITS)
    granted = leases.next(0.0, ALL, {"b": "10.0.0.2", "c": "10.0.0.3"}, "x")
    assert granted is not None
    assert granted[1][0] == "b"
    assert RoundRobin(LIMITS).next(0.0, ALL, {}, "x") is None


@pytest.mark.parametrize(
    ("node", "anchors", "expected"),
    [
        ("b", [], ["c", "d", "e"]),
        ("e", [], ["a", "b", "c"]),
        ("b", ["e"], ["e", "c", "d"]),
        ("e", ["e", "gone"], ["a", "b", "c"]),
        ("bb", [], ["c", "d", "e"]),  # without an address of its own: where it would stand
    ],
)
def test_a_node_pings_the_anchors_and_its_successors(
    node: str, anchors: list[str], expected: list[str]
) -> None:
    addresses = {name: f"10.0.0.{i}" for i, name in enumerate("abcde")}
    work = PingRing(addresses, anchors, ProbeLimits(ping_peers=3)).work(node)
    assert [peer.node for peer in work.peers] == expected


def test_every_node_is_pinged_by_as_many_as_it_pings() -> None:
    addresses = {f"n{i}": f"10.0.0.{i}" for i in range(9)}
    ring = PingRing(addresses, [], ProbeLimits(ping_peers=3))
    works = [ring.work(name) for name in addresses]
    pinged = [peer.node for work in works for peer in work.peers]
    assert {name: pinged.count(name) for name in addresses} == dict.fromkeys(addresses, 3)


def _tested(
    leases: RoundRobin,
    now_s: float,
    wanted: list[tuple[str, str]],
    addresses: dict[str, str],
    *,
    lost: bool = False,
) -> tuple[str, str]:
    granted = leases.next(now_s, wanted, addresses, "x")
    assert granted is not None
    (server, _), (client, work) = granted
    assert lost or leases.finish(work.lease_id)
    return client, server


def test_after_a_pause_no_lease_of_another_leader_can_still_run() -> None:
    theirs, ours = RoundRobin(LIMITS), RoundRobin(LIMITS)
    assert theirs.next(0.0, ALL, ADDRESSES, "theirs") is not None
    assert theirs.running is not None
    ours.pause(0.0)
    assert ours.next(theirs.running.ends_s - 0.1, ALL, ADDRESSES, "ours") is None
    assert ours.next(theirs.running.ends_s, ALL, ADDRESSES, "ours") is not None


# Thousands of nodes.


class Counted:
    """Pairs, and how many of them were looked at."""

    def __init__(self, wanted: Iterator[tuple[str, str]]) -> None:
        self._wanted, self.count = wanted, 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for pair in self._wanted:
            self.count += 1
            yield pair


def test_the_scan_for_a_lease_is_bounded() -> None:
    addresses = {f"n{i:05}": f"10.0.{i >> 8}.{i & 255}" for i in range(5000)}
    leases = RoundRobin(LIMITS)
    for turn in range(20):
        wanted = Counted(pairs(list(addresses), [], leases.latest))
        granted = leases.next(turn * 13.0, wanted, addresses, "x")
        assert granted is not None
        assert (granted[1][0], granted[0][0]) == ("n00000", f"n{turn + 1:05}")
        assert wanted.count <= turn + 1


def test_each_pair_has_its_turn_beyond_the_scan_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "MAX_PAIRS_SCANNED", 20)
    names = [f"n{i:02}" for i in range(12)]  # 66 pairs
    addresses = dict.fromkeys(names, "10.0.0.1")
    leases = RoundRobin(LIMITS)
    order = []
    for turn in range(3 * 66):
        wanted = Counted(pairs(names, [], leases.latest))
        granted = leases.next(turn * 13.0, wanted, addresses, "x")
        assert granted is not None
        order.append((granted[1][0], granted[0][0]))
        assert wanted.count <= 20
        assert len(leases._last_s) <= 20
    assert set(order[:66]) == set(order[66:132]) == set(order[132:]) == set(pairs(names, []))


def test_each_anchor_has_its_turn_beyond_the_scan_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "MAX_PAIRS_SCANNED", 15)
    names, anchors = [f"n{i:02}" for i in range(9)], ["n00", "n03", "n06"]
    addresses = dict.fromkeys(names, "10.0.0.1")
    leases = RoundRobin(LIMITS)
    wanted = set(pairs(names, anchors))
    order = []
    for turn in range(len(wanted)):
        granted = leases.next(turn * 13.0, pairs(names, anchors, leases.latest), addresses, "x")
        assert granted is not None
        order.append((granted[1][0], granted[0][0]))
    assert set(order) == wanted
