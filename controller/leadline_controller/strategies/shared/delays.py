"""The delays that several papers count: transfers, round trips, profiles, contention."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from leadline_controller.framework.image_layers import MIN_MBPS
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import CLASS_LABEL
from leadline_controller.framework.options import option
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints, NodeTable
from leadline_controller.strategies.shared.unknowns import ZONE_LABEL, Filled, fill, left_unknown

_MAX_EXPONENT = 1000

# Round trips on one wired network differ by this much from one measurement to the next.
SCATTER_MS = 1.0


def transfer_s(
    view: ClusterView, pod: Pod, volume_mb: float, nodes: Ints, unknown: str
) -> tuple[Floats, Filled]:
    """Seconds that `volume_mb` (10^6 bytes) take to each of `nodes`, shape (len(nodes),), and the
    bandwidths that they are from, Mbit/s.

    At the bandwidth that the pod requests, else at the free capacity of the link (DACS Eq. 10). An
    unknown capacity counts as `fill` says. Where that leaves it unknown, as much is free as on the
    slowest known link; if none is known the transfer is left out for all nodes.
    """
    megabits = volume_mb * 8
    if mbps := pod.annotations.bandwidth_mbps:
        stated = np.full(nodes.size, max(mbps, MIN_MBPS))
        return megabits / stated, Filled(stated)
    capacity_mbps = view.bandwidth_capacity_mbps()
    filled = fill(view, capacity_mbps, nodes, unknown, left_unknown, "bandwidth", "Mbit/s")
    free_mbps = filled.values - view.bandwidth_requested_mbps[nodes]
    known = ~np.isnan(free_mbps)
    if not known.any():
        return np.zeros(nodes.size), filled
    free_mbps[~known] = free_mbps[known].min()
    return megabits / np.maximum(free_mbps, MIN_MBPS), filled


def registry_mbps(
    view: ClusterView, nodes: Ints, unknown: str, worst: Callable[[Floats], float]
) -> Filled:
    """The bandwidths from the registry to these nodes; see `fill`."""
    what = "bandwidth from the registry"
    return fill(view, view.registry_mbps(), nodes, unknown, worst, what, "Mbit/s")


def slowest(known_mbps: Floats) -> float:
    """Of these bandwidths; if there is none a value for all, so that the MB decide."""
    return float(known_mbps.min()) if known_mbps.size else 8.0


def gateway_round_trips_ms(view: ClusterView, user: int | None) -> tuple[Floats, Bools]:
    """Round trip from where requests enter the cluster to each node, ms, NaN if not measured, and
    the nodes where they enter, shapes (n,). user: that node, if it is known; else the mean over the
    control plane nodes, else, if there are none, the mean over all other nodes."""
    if user is not None:
        return view.links.rtt_ms_from(user), np.arange(len(view)) == user
    gateways = view.table.mask("masters", lambda node: node.is_control_plane)
    if not gateways.any():
        everyone = view.table.mask("all", lambda _: True)
        return view.links.rtt_mean_and_deviation_ms(everyone)[0], gateways
    mean_ms = view.links.rtt_mean_and_deviation_ms(gateways)[0]
    alone = np.count_nonzero(gateways) == 1
    return mean_ms, gateways if alone else np.zeros(len(view), np.bool_)


def unknown_rtt_option() -> Any:
    """The option that `round_trips_ms` needs."""
    help_text = "round trip when none was ever measured"
    return option(100.0, unit="ms", maximum=1e9, name="unknown_rtt", help=help_text)


def round_trips_ms(
    view: ClusterView,
    rtt_ms: Floats,
    nodes: Ints,
    unknown: str,
    unknown_rtt_ms: float,
    at_home: Bools | None = None,
) -> Filled:
    """The round trips of these nodes, ms, of a column of shape (n,), NaN if not measured: see
    `fill`, for which the worst is the longest one measured in the cluster, or `unknown_rtt_ms` if
    there is none. at_home: the nodes to which nothing has to travel, shape (n,)."""
    home = np.zeros(nodes.size, np.bool_) if at_home is None else at_home[nodes]
    values = rtt_ms[nodes]
    if np.isnan(values[~home]).any():
        worst_ms = view.links.worst_rtt_ms
        if np.isnan(worst_ms):
            worst_ms = unknown_rtt_ms
        what = ("round trip", "ms", ZONE_LABEL)
        filled = fill(view, rtt_ms, nodes, unknown, lambda _: worst_ms, *what)
        if filled.boards is not None:
            filled.boards[home] = -1
    else:
        filled = Filled(values)
    filled.values[home] = 0.0
    return filled


def profiled_ms(table: NodeTable, profile_ms: Mapping[str, float]) -> Floats:
    """The processing time of a pod on each node as measured beforehand, ms, shape (n,): by the
    node's name, else by its node class, else NaN."""
    found = table.topology(CLASS_LABEL).column(profile_ms)
    for name, ms in profile_ms.items():
        if (at := table.index.get(name)) is not None:
            found[at] = ms
    return found


def profiling_ms(
    view: ClusterView, profile_ms: Mapping[str, float], nodes: Ints, unknown: str
) -> Filled:
    """Like profiled_ms, for these nodes: see `fill`, for which the worst is the slowest node of the
    profile, whether the cluster has it or not. The profile must not be empty."""
    slowest_ms = max(profile_ms.values())
    found = profiled_ms(view.table, profile_ms)
    return fill(view, found, nodes, unknown, lambda _: slowest_ms, "profile", "ms")


def contention_s(others: Ints, beta_cs: float, beta_rc: float) -> Floats:
    """The delay of pods that share a node, by the DACS paper (Section 6.1): Gamma = beta_CS +
    2^(zeta - 1) * beta_RC in seconds where zeta > 0, else 0 (Eq. 18 with Algorithm 2, lines 8-9).

    others: zeta, the other pods on each node, shape (n,). beta_cs, beta_rc: seconds of a context
    switch and of competition for resources.
    """
    gamma = beta_cs + np.exp2(np.minimum(others - 1.0, _MAX_EXPONENT)) * beta_rc
    return np.where(others > 0, gamma, 0.0)
