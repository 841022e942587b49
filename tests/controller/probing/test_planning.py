from collections import Counter
from collections.abc import Sequence

import pytest
from leadline_controller.probing.planning import (
    CHOSEN_PEERS,
    MAX_DISTANCES,
    MAX_RING_PAIRS,
    PingRing,
    ProbeLimits,
)

NAMES = tuple("abcdefghij")
LEASED = {name: f"10.0.0.{i}" for i, name in enumerate(NAMES)}


def peers_of(ring: PingRing, node: str, near: Sequence[str] = ()) -> list[str]:
    return [peer.node for peer in ring.work(node, near).peers]


@pytest.mark.parametrize(
    ("node", "anchors", "near", "first"),
    [
        ("b", [], [], []),
        ("b", ["e"], [], ["e"]),
        ("b", ["e"], ["d", "e"], ["e", "d"]),
        ("b", [], ["gone", "b", "c"], ["c"]),
        ("e", ["e", "gone"], [], []),
        ("bb", ["e"], [], ["e"]),  # without an address of its own
    ],
)
def test_a_node_pings_the_anchors_then_near_nodes_then_others(
    node: str, anchors: list[str], near: list[str], first: list[str]
) -> None:
    peers = peers_of(PingRing(LEASED, anchors, ProbeLimits(ping_peers=4)), node, near)
    assert peers[: len(first)] == first
    assert len(peers) == len(set(peers)) == 4
    assert set(peers) <= set(NAMES) - {node}


def test_a_lease_has_the_limits_and_addresses() -> None:
    work = PingRing(LEASED, ["a"], ProbeLimits(ping_peers=1)).work("b")
    limits = ProbeLimits()
    assert [(peer.node, peer.address) for peer in work.peers] == [("a", LEASED["a"])]
    assert (work.interval_s, work.count) == (limits.ping_interval_s, limits.ping_count)
    assert work.ttl_s == limits.ping_ttl_s


@pytest.mark.parametrize("count", [3, 9, 10])
def test_every_node_is_pinged_by_as_many_as_it_pings(count: int) -> None:
    addresses = {name: LEASED[name] for name in NAMES[:count]}
    for start in range(5):
        ring = PingRing(addresses, [], ProbeLimits(ping_peers=2), start)
        pinged = Counter(peer for name in addresses for peer in peers_of(ring, name))
        assert pinged == dict.fromkeys(addresses, 2)


@pytest.mark.parametrize("chosen", [0, CHOSEN_PEERS])
@pytest.mark.parametrize("count", [2, 3, 17, 25, 100, 128])
def test_all_pairs_are_measured_within_the_turns_that_they_need(count: int, chosen: int) -> None:
    addresses = {f"n{i:03}": f"10.0.0.{i}" for i in range(count)}
    limits = ProbeLimits(ping_peers=8)
    turns = -(-(count // 2) // (limits.ping_peers - CHOSEN_PEERS))
    names = list(addresses)
    near = {name: [*names[at + 1 :], *names[:at]][:chosen] for at, name in enumerate(names)}
    measured, start = set(), 0
    for _ in range(turns):
        ring = PingRing(addresses, [], limits, start)
        measured |= {
            frozenset((name, peer)) for name in names for peer in peers_of(ring, name, near[name])
        }
        start += min(ring.steps)
    assert len(measured) == count * (count - 1) // 2


def test_nodes_without_near_ones_cover_more_of_the_ring() -> None:
    addresses = {f"n{i:03}": f"10.0.0.{i}" for i in range(50)}
    ring = PingRing(addresses, ["n007"], ProbeLimits(ping_peers=8))
    names = list(addresses)
    ring.work("n000", names[:5])
    ring.work("n001", ["n007", "gone"])
    ring.work("n007", [])
    assert all(steps >= least for steps, least in zip(ring.steps, (3, 7, 8), strict=True))
    assert ring.steps[0] < ring.steps[1] <= ring.steps[2]


def test_of_many_nodes_each_measures_a_bounded_number() -> None:
    addresses = {f"n{i:03}": f"10.0.0.{i}" for i in range(400)}
    peers = {
        peer
        for start in range(400)
        for peer in peers_of(PingRing(addresses, [], ProbeLimits(), start), "n000")
    }
    assert len(peers) == 2 * MAX_DISTANCES


def test_the_pairs_of_thousands_of_nodes_can_all_be_stored() -> None:
    addresses = {f"n{i:05}": "10.0.0.1" for i in range(10_000)}
    rings = [PingRing(addresses, [], ProbeLimits(), 8 * turn) for turn in range(40)]
    peers = {peer for ring in rings for peer in peers_of(ring, "n00000")}
    assert len(peers) * len(addresses) // 2 == MAX_RING_PAIRS


def test_a_node_alone_pings_nobody() -> None:
    assert peers_of(PingRing({"a": "10.0.0.1"}, [], ProbeLimits()), "a") == []
