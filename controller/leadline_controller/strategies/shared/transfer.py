"""How long data takes over a node's link, by what is known of it; the strategies that count
transfers share this."""

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Floats, Ints

# A trickle still flows over a link that is taken up, so that every delay is finite.
_LEAST_MBPS = 0.001


def transfer_s(view: ClusterView, pod: Pod, volume_mb: float, nodes: Ints) -> Floats:
    """Seconds that `volume_mb` (10^6 bytes) take to each of `nodes`, shape (len(nodes),).

    At the bandwidth that the pod asks for, else at what the link has left (DACS Eq. 10). A
    link whose bandwidth is unknown counts as the slowest known; when none is known the
    transfer is left out for all.
    """
    megabits = volume_mb * 8
    if pod.hints.bandwidth_mbps:
        return np.full(nodes.size, megabits / max(pod.hints.bandwidth_mbps, _LEAST_MBPS))
    free_mbps = view.bandwidth_free_mbps()[nodes]
    if np.isnan(free_mbps).all():
        return np.zeros(nodes.size)
    free_mbps = np.where(np.isnan(free_mbps), np.nanmin(free_mbps), free_mbps)
    return megabits / np.maximum(free_mbps, _LEAST_MBPS)
