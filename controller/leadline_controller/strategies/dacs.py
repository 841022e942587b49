"""dacs: delay-aware container scheduling.

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Algorithms 1 and 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Leeway, Scores, Strategy
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.traffic import PeerAt
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.shared.delays import (
    contention_s,
    profiling_ms,
    registry_mbps,
    round_trips_ms,
    transfer_s,
    unknown_rtt_option,
)
from leadline_controller.strategies.shared.peers import (
    main_peer_option,
    user_peer,
    user_round_trips_ms,
)
from leadline_controller.strategies.shared.unknowns import Filled, left_unknown, unknown_option

_GIB = 1024**3
_MASTER_TAINTS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
# The least CPU that a pod gets on a full node, Kubernetes' smallest unit, so that delays are finite
# and full nodes can be compared.
_MIN_CORES = 0.001
_MAX_S = 1e6


def granted(request: float, limit: float, residual: Floats, phi: float) -> Floats:
    """A(c, l, r) = max{c, min{phi * r, l}} (Eq. 9); a missing limit is infinity."""
    return np.maximum(request, np.minimum(phi * residual, limit))


def average_delay_s(
    processing_s: Floats, network_s: Floats, contention: Floats, alpha: float
) -> Floats:
    """Omega = alpha * D_p + (1 - alpha) * D_n + Gamma (Algorithm 2, lines 7-9)."""
    return alpha * processing_s + (1 - alpha) * network_s + contention


def widest_of_near_best(omega_s: Floats, cores: Floats, gib: Floats, lambda_s: float) -> Ints:
    """Positions with the largest residual among those within lambda of the least delay (Algorithm
    2, lines 10-18). The smaller of the two residuals counts, in a tie the larger one, because
    with equal CPU the paper takes the node with more memory (Section 7.4), and then the delay."""
    near = np.flatnonzero(omega_s <= omega_s.min() + lambda_s)
    for criterion in (np.minimum(cores, gib), np.maximum(cores, gib), -omega_s):
        near = near[criterion[near] == criterion[near].max()]
    return near


@dataclass(frozen=True, slots=True)
class Dacs(Strategy):
    """The node with the least delay of work, network and image; of near ones the emptiest.

    Rank by Omega, then take the near-best node with the largest residual (Algorithm 2).

    Omega is in seconds. The residual is min{r^CPU, r^MEM} with CPU in cores and memory in GiB,
    the units of the paper's example; in a tie the larger of the two counts. r is allocatable less
    requested. Within one run a placed pod is charged A (Eq. 14-15), not its request; filters
    count requests only, as kubelets do.

    Without free CPU a pod still gets a thousandth of a core, and without free bandwidth its data
    still gets 0.001 Mbit/s.

    t^IM (Eq. 10) is the time in which a node pulls the layers that it lacks, its download queue
    first, at the speed of its last pulls, or else of its link. If no node's speed is known, or no
    layers of the images are, t^IM is `image_s` for all.

    Missing annotations: `data-mb` defaults to the option of that name; without `bandwidth-mbps`,
    f_v / c^NET uses the free capacity of the link; without `user-node`, the pod's main peer is the
    user (framework/peers.py), and without that the mean round trip to the other workers (Eq. 13)
    stands for tau. `main_peer=off` is the paper alone. `profile-ms` replaces Eq. 8.

    Unknown, never zero, as the paper is silent: a round trip, a bandwidth, a speed of pulls and a
    node that is not in `profile-ms` count as boards like it (strategies/shared/unknowns.py). With
    `unknown=worst`, and where nothing is known of any, a round trip counts as the longest one
    measured in the cluster, or as `unknown_rtt` if there is none, and the others as the slowest
    known; if no bandwidth is known the transfer time is left out for all nodes. The same holds for
    sigma (Eq. 12), except on the user's own node and without other workers, where it is 0.
    Estimates count as measured.
    """

    name = "dacs"
    better = "lower"
    paper = "DACS, Algorithms 1-2"
    needs = ("rtt_ms", "bandwidth_mbps")

    alpha: float = option(0.5, maximum=1.0, help="weight of processing over network delay")
    phi: float = option(0.5, minimum=1e-6, maximum=1.0, help="share of the residual a pod may get")
    lambda_s: float = option(
        0.05, unit="s", maximum=_MAX_S, name="lambda", help="delays this close are equal"
    )
    beta_cs: float = option(1e-6, unit="s", maximum=_MAX_S, help="delay of a context switch")
    beta_rc: float = option(5e-6, unit="s", maximum=_MAX_S, help="delay of resource competition")
    rate: float = option(
        1.0, unit="MB/s", minimum=1e-9, maximum=1e9, help="data one core handles a second"
    )
    image_s: float = option(
        0.0, unit="s", maximum=_MAX_S, help="time to download images of unknown layers, t^IM"
    )
    data_mb: float = option(1.0, unit="MB", maximum=1e12, help="data of a pod without data-mb")
    unknown_rtt_ms: float = unknown_rtt_option()
    unknown: str = unknown_option()
    main_peer: str = main_peer_option()

    def peer_is_user(self) -> bool:
        """As `main_peer` says."""
        return self.main_peer == "on"

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Omega and its parts for every candidate, in seconds."""
        processing_s, profile = self._processing_s(view, pod, candidates)
        # D_n: Eq. 10 for a local pod, Eq. 11 for a remote one.
        sending_s, bandwidth = transfer_s(view, pod, self._volume_mb(pod), candidates, self.unknown)
        image_s, pulls = self._image_s(view, pod, candidates)
        peer = user_peer(view, pod, self.main_peer)
        latency_s, round_trips = self._latency_s(view, pod, candidates, peer)
        network_s = image_s + sending_s + latency_s
        contention = contention_s(view.placed_in_run[candidates], self.beta_cs, self.beta_rc)
        omega_s = average_delay_s(processing_s, network_s, contention, self.alpha)
        cores, gib = view.free(CPU)[candidates] / 1000, view.free(MEMORY)[candidates] / _GIB

        def among(at: Ints) -> Ints:
            return at[widest_of_near_best(omega_s[at], cores[at], gib[at], self.lambda_s)]

        finalists = among(np.arange(candidates.size))

        def why(at: int) -> str:
            text = (
                f"{omega_s[at]:.3f} s average delay "
                f"(processing {processing_s[at]:.3f}, network {network_s[at]:.3f})"
            )
            near = int(np.count_nonzero(omega_s <= omega_s.min() + self.lambda_s))
            if near > 1 and at in finalists:
                text += f", the roomiest of {near} near-best nodes"
            notes = [each.note(at) for each in (profile, bandwidth, round_trips)]
            if peer is not None:
                notes.append(f"; its user is its main peer, {peer.name}")
            return "".join((text, *notes, pulls.note(at) if image_s[at] > 0 else ""))

        parts = {"processing_s": processing_s, "network_s": network_s, "contention_s": contention}
        if image_s.any():
            parts["image_s"] = image_s
        least_s = float(omega_s.min())  # Algorithm 2 calls no more than lambda above it equal
        leeway = Leeway(self.lambda_s, among, base=least_s)
        return Scores(candidates, omega_s, finalists, why, parts, leeway)

    def _image_s(self, view: ClusterView, pod: Pod, nodes: Ints) -> tuple[Floats, Filled]:
        """t^IM (Eq. 10): until the images are there, if their layers and a node's speed are
        known."""
        unknown_s = np.full(nodes.size, self.image_s)
        if not view.images.knows(view.table, pod):
            return unknown_s, Filled(unknown_s)
        filled = registry_mbps(view, nodes, self.unknown, left_unknown)
        speeds = np.full(len(view), np.nan)
        speeds[nodes] = filled.values
        time_s = view.images.pull(view.table, pod, speeds).time_s[nodes]
        known = ~np.isnan(time_s)
        if not known.any():
            return unknown_s, filled
        return np.minimum(np.where(known, time_s, time_s[known].max()), _MAX_S), filled

    def charge(self, view: ClusterView, pod: Pod, node: int) -> Mapping[str, int]:
        """A(c, l, r) of CPU and memory (Eq. 14-15), requests of everything else."""
        at = np.array([node])
        charged = {name: int(self._granted(view, pod, name, at)[0]) for name in (CPU, MEMORY)}
        return {**charged, **pod.requests, **charged}

    def _granted(self, view: ClusterView, pod: Pod, resource: str, nodes: Ints) -> Floats:
        request = float(pod.requests.get(resource, 0))
        limit = float(pod.limits.get(resource, np.inf))
        return granted(request, limit, view.free(resource)[nodes].astype(np.float64), self.phi)

    def _processing_s(self, view: ClusterView, pod: Pod, nodes: Ints) -> tuple[Floats, Filled]:
        """D_p (Eq. 8), or the pod's own profile."""
        if pod.annotations.profile_ms:
            profile = profiling_ms(view, pod.annotations.profile_ms, nodes, self.unknown)
            return profile.values / 1000, profile
        cores = np.maximum(self._granted(view, pod, CPU, nodes) / 1000, _MIN_CORES)
        processing_s = self._volume_mb(pod) / (cores * self.rate)
        return processing_s, Filled(processing_s)

    def _latency_s(
        self, view: ClusterView, pod: Pod, nodes: Ints, peer: PeerAt | None
    ) -> tuple[Floats, Filled]:
        """(tau + sigma) / 2 in seconds; 0 on the user's own node. peer: the user, if no node is."""
        user_node, workers = view.user_node(pod), _workers(view)
        mean_ms, sigma_ms = view.links.rtt_mean_and_deviation_ms(workers)
        if peer is not None:
            tau_ms, at_home = user_round_trips_ms(view, peer)
        else:
            tau_ms = mean_ms if user_node is None else view.links.rtt_ms_from(user_node)
            at_home = np.arange(len(view)) == user_node
        alone = at_home | _has_no_other(workers)
        tau, sigma = (
            round_trips_ms(view, ms, nodes, self.unknown, self.unknown_rtt_ms, where)
            for ms, where in ((tau_ms, at_home), (sigma_ms, alone))
        )
        return (tau.values + sigma.values) / 2 / 1000, tau

    def _volume_mb(self, pod: Pod) -> float:
        return self.data_mb if pod.annotations.data_mb is None else pod.annotations.data_mb


def _has_no_other(workers: Bools) -> Bools:
    """The nodes beside which there is no worker, shape (n,)."""
    nobody: Bools = workers.sum() - workers.astype(np.int64) == 0
    return nobody


def _workers(view: ClusterView) -> Bools:
    """The paper's worker nodes (WN): neither control plane nor cordoned."""
    return view.table.mask(
        "workers",
        lambda node: (
            not node.unschedulable and not any(taint.key in _MASTER_TAINTS for taint in node.taints)
        ),
    )
