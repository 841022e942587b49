"""The delays that several papers count: transfers, round trips, profiles, contention."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline_controller.framework.images import MIN_MBPS
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import CLASS_LABEL
from leadline_controller.framework.options import option
from leadline_controller.framework.view import ClusterView, Floats, Ints, LinkTable, NodeTable

_MAX_EXPONENT = 1000

# Round trips on one wired network differ by this much from one measurement to the next.
SCATTER_MS = 1.0


def transfer_s(view: ClusterView, pod: Pod, volume_mb: float, nodes: Ints) -> Floats:
    """Seconds that `volume_mb` (10^6 bytes) take to each of `nodes`, shape (len(nodes),).

    At the bandwidth that the pod requests, else at the free capacity of the link (DACS Eq. 10). A
    link of unknown bandwidth counts as the slowest known one; if none is known the transfer is
    left out for all nodes.
    """
    megabits = volume_mb * 8
    if pod.annotations.bandwidth_mbps:
        return np.full(nodes.size, megabits / max(pod.annotations.bandwidth_mbps, MIN_MBPS))
    free_mbps = view.bandwidth_free_mbps()[nodes]
    if np.isnan(free_mbps).all():
        return np.zeros(nodes.size)
    return megabits / slowest_where_unknown_mbps(free_mbps)


def slowest_where_unknown_mbps(mbps: Floats) -> Floats:
    """These bandwidths, at least a thousandth of a Mbit/s; one that is unknown (NaN) counts as the
    slowest known one, and all as 1 if none is known."""
    known = mbps[~np.isnan(mbps)]
    slowest = known.min() if known.size else 1.0
    return np.maximum(np.where(np.isnan(mbps), slowest, mbps), MIN_MBPS)


def unknown_rtt_option() -> Any:
    """The option that `longest_where_unknown_ms` needs."""
    help_text = "round trip when none was ever measured"
    return option(100.0, unit="ms", maximum=1e9, name="unknown_rtt", help=help_text)


def longest_where_unknown_ms(rtt_ms: Floats, links: LinkTable, unknown_rtt_ms: float) -> Floats:
    """These round trips, but one that was not measured (NaN) counts as the longest one measured in
    the cluster, or as `unknown_rtt_ms` if there is none."""
    worst_ms = links.worst_rtt_ms
    return np.where(np.isnan(rtt_ms), unknown_rtt_ms if np.isnan(worst_ms) else worst_ms, rtt_ms)


def profiled_ms(table: NodeTable, profile_ms: Mapping[str, float]) -> Floats:
    """The processing time of a pod on each node as measured beforehand, ms, shape (n,): by the
    node's name, else by its node class, else NaN."""
    found = table.topology(CLASS_LABEL).column(profile_ms)
    for name, ms in profile_ms.items():
        if (at := table.index.get(name)) is not None:
            found[at] = ms
    return found


def slowest_where_unknown_ms(table: NodeTable, profile_ms: Mapping[str, float]) -> Floats:
    """Like profiled_ms, but a node that is not in the profile counts as the slowest that is. The
    profile must not be empty."""
    found = profiled_ms(table, profile_ms)
    return np.where(np.isnan(found), max(profile_ms.values()), found)


def contention_s(others: Ints, beta_cs: float, beta_rc: float) -> Floats:
    """The delay of pods that share a node, by the DACS paper (Section 6.1): Gamma = beta_CS +
    2^(zeta - 1) * beta_RC in seconds where zeta > 0, else 0 (Eq. 18 with Algorithm 2, lines 8-9).

    others: zeta, the other pods on each node, shape (n,). beta_cs, beta_rc: seconds of a context
    switch and of competition for resources.
    """
    gamma = beta_cs + np.exp2(np.minimum(others - 1.0, _MAX_EXPONENT)) * beta_rc
    return np.where(others > 0, gamma, 0.0)
