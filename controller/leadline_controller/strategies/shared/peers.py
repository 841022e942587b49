"""The waits of a pod and its peers, with something for what is unknown."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import choice
from leadline_controller.framework.peers import free_mbps, main_peer, waits_s
from leadline_controller.framework.peers import round_trips_ms as expected_ms
from leadline_controller.framework.traffic import PeerAt
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.shared.delays import round_trips_ms
from leadline_controller.strategies.shared.unknowns import fill, left_unknown


def main_peer_option() -> Any:
    """Declare the field for `main_peer` of `user_peer`."""
    return choice("on", "off", help="whether a pod without user-node has its main peer as user")


def user_peer(view: ClusterView, pod: Pod, option: str) -> PeerAt | None:
    """The main peer of a pod that names no user node of this cluster; None without one, or if
    `option` is "off"."""
    if option == "off" or view.user_node(pod) is not None:
        return None
    return main_peer(view, pod)


def user_round_trips_ms(view: ClusterView, peer: PeerAt) -> tuple[Floats, Bools]:
    """Expected round trip from each node to a peer that is the user, ms, and the nodes that have
    all of it, shapes (n,). It is NaN there, as nothing has to travel, and where it is unknown."""
    return _travelling(peer, expected_ms(view, [peer])[0])


def _travelling(peer: PeerAt, rtt_ms: Floats) -> tuple[Floats, Bools]:
    at_home = peer.share == 1
    return np.where(at_home, np.nan, rtt_ms), at_home


def filled_waits_s(
    view: ClusterView,
    pod: Pod,
    peers: Sequence[PeerAt],
    nodes: Ints,
    unknown: str,
    unknown_rtt_ms: float = 100.0,
) -> tuple[Floats, Bools]:
    """The waits for all peers, s each second, and which are known, shapes (len(nodes),): see
    `waits_s`. An unknown round trip counts as `round_trips_ms` says, and an unknown bandwidth as
    `fill` does, else as the least known one; if none is known, only round trips count."""
    left = free_mbps(view, pod, peers)
    waits = waits_s(view, peers, nodes, left_mbps=left).sum(axis=0)
    known = ~np.isnan(waits)
    if known.all():
        return waits, known
    rtt_ms = [
        round_trips_ms(view, column, nodes, unknown, unknown_rtt_ms, at_home).values
        for column, at_home in map(_travelling, peers, expected_ms(view, peers))
    ]
    everyone = np.arange(len(view))
    filled = fill(view, left, everyone, unknown, left_unknown, "bandwidth", "Mbit/s").values
    stated = ~np.isnan(filled)
    filled[~stated] = filled[stated].min() if stated.any() else np.inf
    return waits_s(view, peers, nodes, np.array(rtt_ms), filled).sum(axis=0), known
