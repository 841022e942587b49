"""The peers of pods that come together, of which some are in the batch itself and have no place
yet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from leadline_controller.framework.image_layers import MIN_MBPS
from leadline_controller.framework.model import Pod
from leadline_controller.framework.peers import peers_among
from leadline_controller.framework.traffic import PeerAt
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.leadline.network import UNKNOWN_RTT_MS
from leadline_controller.strategies.leadline.terms import UNKNOWN_WAIT_ERROR, WAIT_ERROR
from leadline_controller.strategies.leadline.waits import Between
from leadline_controller.strategies.shared.delays import round_trips_ms
from leadline_controller.strategies.shared.unknowns import LIKE_BOARDS, fill, left_unknown


@dataclass(frozen=True, slots=True, eq=False)
class BatchPeers:
    """Who in a batch of m pods waits for whom."""

    # Of each pod, its peers in the batch and those whose peer it is; their places are empty.
    of: Sequence[Sequence[PeerAt]]
    # Of each pod, by the name of a peer: which share of it has a place already.
    placed_share: Sequence[dict[str, float]]
    requests_per_s: Floats  # shape (m, m), symmetric
    mbps: Floats

    def less_of_placed(self, at: int, peers: Sequence[PeerAt]) -> list[PeerAt]:
        """The peers of this pod that have a place, with the share of its traffic that they keep
        once the batch has come."""
        shares = self.placed_share[at]
        return [_scaled(each, shares.get(each.name, 1.0)) for each in peers]

    def between(self, view: ClusterView, nodes: Ints, caution: float) -> Between:
        """What they exchange, over the distances between these nodes."""

        def distances(chosen: Ints) -> tuple[Floats, Floats]:
            return _distances(view, nodes[chosen], caution)

        return Between(self.requests_per_s, self.mbps, distances)


def among_batch(view: ClusterView, pods: Sequence[Pod]) -> BatchPeers:
    """The peers that pods have among each other."""
    count = len(pods)
    requests, mbps = np.zeros((2, count, count))
    of: list[list[PeerAt]] = [[] for _ in pods]
    placed_share: list[dict[str, float]] = [{} for _ in pods]
    nowhere = np.zeros(len(view))
    for at, pod in enumerate(pods):
        for peer in peers_among(view, pod, pods):
            members = int(peer.members.sum())
            bounds = peer.least_requests_per_s, peer.most_requests_per_s
            whole = PeerAt(peer.name, nowhere, peer.mbps, *bounds, None, declared=True)
            of[at].append(whole)
            placed_share[at][peer.name] = peer.placed / (peer.placed + members)
            each = _scaled(whole, 1 / (peer.placed + members))
            for other in np.flatnonzero(peer.members).tolist():
                of[other].append(replace(each, name=pod.key))
            requests[at, peer.members] += each.requests_per_s
            mbps[at, peer.members] += each.mbps
    # Where both tell, they tell of the same.
    most = (np.maximum(each, each.T) for each in (requests, mbps))
    return BatchPeers(of, placed_share, *most)


def _scaled(peer: PeerAt, share: float) -> PeerAt:
    return replace(
        peer,
        mbps=share * peer.mbps,
        least_requests_per_s=share * peer.least_requests_per_s,
        most_requests_per_s=share * peer.most_requests_per_s,
    )


def _distances(view: ClusterView, nodes: Ints, caution: float) -> tuple[Floats, Floats]:
    """Seconds of a round trip and of a megabit between each two nodes, shapes (n, n), with what
    their errors cost. The unknown is as `filled_waits_s` has it."""
    trip_s = np.zeros((nodes.size, nodes.size))
    for row, node in enumerate(nodes.tolist()):
        rtt_ms = view.links.rtt_ms_from(node)
        at_home = np.zeros(len(view), dtype=np.bool_)
        at_home[node] = True
        rtt_ms[node] = np.nan
        filled = round_trips_ms(view, rtt_ms, nodes, LIKE_BOARDS, UNKNOWN_RTT_MS, at_home)
        trip_s[row] = filled.values / 1000 * _with_error(filled.is_known, caution)
    left = view.bandwidth_free_mbps()
    stated = fill(view, left, nodes, LIKE_BOARDS, left_unknown, "bandwidth", "Mbit/s")
    mbps, known = stated.values, ~np.isnan(stated.values)
    mbps[~known] = mbps[known].min() if known.any() else np.inf
    mbps = np.maximum(mbps, MIN_MBPS)
    megabit_s = 1 / np.minimum(mbps, mbps[:, np.newaxis])
    both_known = stated.is_known & stated.is_known[:, np.newaxis]
    megabit_s *= _with_error(both_known, caution)
    np.fill_diagonal(megabit_s, 0.0)
    return (trip_s + trip_s.T) / 2, megabit_s


def _with_error(known: Bools, caution: float) -> Floats:
    factor: Floats = 1.0 + caution * np.where(known, WAIT_ERROR, UNKNOWN_WAIT_ERROR)
    return factor
