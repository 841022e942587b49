"""How long users and peers wait for the network between them and a pod."""

from collections.abc import Callable, Sequence

import numpy as np

from leadline_controller.framework.image_layers import MIN_MBPS
from leadline_controller.framework.model import Pod
from leadline_controller.framework.peers import peers_of
from leadline_controller.framework.traffic import PeerAt
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.leadline.terms import (
    UNKNOWN_WAIT_ERROR,
    WAIT_ERROR,
    Demand,
    Uncertain,
    over_error,
)
from leadline_controller.strategies.leadline.waits import MAX_MS
from leadline_controller.strategies.shared.capacity import is_cloud
from leadline_controller.strategies.shared.delays import gateway_round_trips_ms, round_trips_ms
from leadline_controller.strategies.shared.peers import filled_waits_s
from leadline_controller.strategies.shared.unknowns import LIKE_BOARDS, Filled, fill, left_unknown

UNKNOWN_RTT_MS = 100.0
# To users, of a tier of which no round trip is known: the edge is near them and the cloud is far.
_EDGE_RTT_MS = 10.0


def peers_at(view: ClusterView, pod: Pod) -> list[PeerAt]:
    """Those that play a part in where the pod goes."""
    return [each for each in peers_of(view, pod) if not each.is_everywhere]


def users_ms(
    view: ClusterView,
    pod: Pod,
    nodes: Ints,
    demand: Demand,
    has_peers: bool,
    notes: list[Callable[[int], str]],
) -> Uncertain:
    """A round trip to the user and the transfer of one request. A pod that has peers and names no
    user is used by these."""
    if has_peers and view.user_node(pod) is None:
        return Uncertain.exact(np.zeros(nodes.size))
    rtt_ms, at_home = gateway_round_trips_ms(view, view.user_node(pod))
    rtt = round_trips_ms(view, rtt_ms, nodes, LIKE_BOARDS, UNKNOWN_RTT_MS, at_home)
    if rtt.boards is not None and rtt.error is not None:
        for tier, far_ms in ((is_cloud(view), UNKNOWN_RTT_MS), (~is_cloud(view), _EDGE_RTT_MS)):
            if np.isnan(rtt_ms[tier]).all():
                at = tier[nodes] & (rtt.boards >= 0)
                rtt.values[at], rtt.error[at], rtt.boards[at] = far_ms, np.nan, 0
    capacity_mbps = view.bandwidth_capacity_mbps()
    how = nodes, LIKE_BOARDS, left_unknown
    bandwidth = fill(view, capacity_mbps, *how, "bandwidth", "Mbit/s")
    notes += [rtt.note, bandwidth.note]
    left = bandwidth.values - view.bandwidth_requested_mbps[nodes]
    known = ~np.isnan(left)
    left[~known] = left[known].min() if known.any() else np.inf
    least = np.maximum(left / 10, MIN_MBPS)

    def transfer_ms(mbps: Floats) -> Floats:
        found: Floats = 1000 * demand.megabits / np.maximum(mbps, least)
        return np.where(at_home[nodes], 0.0, found)

    left = np.maximum(left, MIN_MBPS)
    spread = np.where(np.isinf(left), 0.0, left) * relative_error(bandwidth)
    sent = over_error(transfer_ms, left, spread)
    trips = rtt.values * relative_error(rtt)
    return Uncertain(
        rtt.values + sent.value,
        rtt.values + sent.mean,
        np.hypot(np.where(at_home[nodes], 0.0, trips), sent.deviation),
    )


def peers_ms(
    view: ClusterView, pod: Pod, nodes: Ints, demand: Demand, peers: Sequence[PeerAt]
) -> Uncertain:
    """What the pod and its peers wait for each other, for each request that it serves."""
    if not peers:
        return Uncertain.exact(np.zeros(nodes.size))
    waits_s, known = filled_waits_s(view, pod, peers, nodes, LIKE_BOARDS, UNKNOWN_RTT_MS)
    each_ms = np.minimum(1000 * waits_s / demand.requests_per_s, MAX_MS)
    error = np.where(known, WAIT_ERROR, UNKNOWN_WAIT_ERROR)
    return Uncertain(each_ms, each_ms, error * each_ms)


def relative_error(filled: Filled) -> Floats:
    """The error of values that stand for unknown ones, as a share of them; of measured ones 0, as
    it is the same for all nodes and would only hide the others'."""
    found = np.zeros(filled.values.shape)
    if filled.boards is None or filled.error is None:
        return found
    at = np.flatnonzero(filled.boards >= 0)
    error, value = filled.error[at], filled.values[at]
    # Of a value of 0, any error is all of it; without an error as well, nothing tells.
    of_zero = np.where(error > 0, 0.0, np.nan)
    relative = np.divide(error, value, out=of_zero, where=value != 0)
    relative[np.isnan(relative)] = UNKNOWN_WAIT_ERROR
    found[at] = np.minimum(np.maximum(relative, WAIT_ERROR), UNKNOWN_WAIT_ERROR)
    return found
