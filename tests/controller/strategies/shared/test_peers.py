"""Waits for peers with something for what is unknown."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.model import DeclaredPeer, Link, Pod, PodAnnotations
from leadline_controller.framework.peers import peers_of
from leadline_controller.strategies.shared.peers import filled_waits_s, user_peer

from tests.controller.builders import node, pod, view

NAMES = ("a", "b", "c", "d")


def declaring(*peers: DeclaredPeer, user: str | None = None) -> Pod:
    return replace(pod("web"), annotations=PodAnnotations(user_node=user, peers=peers))


def waits(links: list[Link], mbps: list[float | None], *peers: DeclaredPeer) -> list[float]:
    found = view(
        [node(name, bandwidth_mbps=each) for name, each in zip(NAMES, mbps, strict=True)],
        links=links,
    )
    wanted = declaring(*peers)
    filled, _ = filled_waits_s(
        found, wanted, peers_of(found, wanted), np.arange(4), "like-boards", 50.0
    )
    return [float(each) for each in filled]


def test_what_is_unknown_counts_as_boards_like_it_do() -> None:
    links = [Link("a", "b", 2.0), Link("a", "c", 6.0)]
    peer = DeclaredPeer("node/a", 0.0, 10.0)
    assert waits(links, [100.0] * 4, peer) == pytest.approx([0, 0.02, 0.06, 0.04])
    sending = DeclaredPeer("node/a", 10.0, 0.0)
    assert waits([], [100.0, 50.0, 20.0, None], sending) == pytest.approx([0, 0.2, 0.5, 0.2])


def test_where_nothing_is_known_only_the_option_counts() -> None:
    peer = DeclaredPeer("node/a", 10.0, 10.0)
    assert waits([], [None] * 4, peer) == pytest.approx([0, 0.5, 0.5, 0.5])


def test_which_waits_are_known() -> None:
    found = view([node(name, bandwidth_mbps=100.0) for name in NAMES], links=[Link("a", "b", 2.0)])
    wanted = declaring(DeclaredPeer("node/a", 1.0, 10.0))
    peers = peers_of(found, wanted)
    for nodes, expected in ((np.arange(4), [True, True, False, False]), (np.arange(2), [True] * 2)):
        filled, known = filled_waits_s(found, wanted, peers, nodes, "worst")
        assert known.tolist() == expected
        assert filled.tolist() == pytest.approx([0.0, 0.03, 0.03, 0.03][: nodes.size])


RTTS = st.none() | st.floats(0, 1e9)
AMOUNTS = st.floats(0, 1e12)


@given(
    st.lists(RTTS, min_size=3, max_size=3),
    st.lists(st.none() | AMOUNTS, min_size=4, max_size=4),
    st.lists(st.tuples(st.sampled_from("abc"), AMOUNTS, AMOUNTS), max_size=3),
)
def test_filled_waits_are_known_and_not_negative(
    rtt_ms: list[float | None],
    mbps: list[float | None],
    declared: list[tuple[str, float, float]],
) -> None:
    pairs = (("a", "b"), ("a", "c"), ("b", "d"))
    links = [Link(a, b, ms) for (a, b), ms in zip(pairs, rtt_ms, strict=True) if ms is not None]
    peers = [DeclaredPeer(f"node/{name}", *amounts) for name, *amounts in declared]
    assert all(0 <= each < inf for each in waits(links, mbps, *peers))


def test_the_main_peer_is_the_user_where_no_user_node_is() -> None:
    found = view([node("a"), node("b")])
    peer = DeclaredPeer("node/a")
    chosen = user_peer(found, declaring(peer), "on")
    assert chosen is not None
    assert chosen.name == "node/a"
    assert user_peer(found, declaring(peer), "off") is None
    assert user_peer(found, declaring(peer, user="b"), "on") is None
    assert user_peer(found, declaring(peer, user="gone"), "on") is not None
    assert user_peer(found, declaring(), "on") is None
