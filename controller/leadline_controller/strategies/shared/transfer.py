"""The transfer time of data over a node's link."""

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Floats, Ints

# The bandwidth of a link without free capacity, so that every delay is finite.
_MIN_MBPS = 0.001


def transfer_s(view: ClusterView, pod: Pod, volume_mb: float, nodes: Ints) -> Floats:
    """Seconds that `volume_mb` (10^6 bytes) take to each of `nodes`, shape (len(nodes),).

    At the bandwidth that the pod requests, else at the free capacity of the link (DACS Eq. 10). A
    link of unknown bandwidth counts as the slowest known one; if none is known the transfer is
    left out for all nodes.
    """
    megabits = volume_mb * 8
    if pod.annotations.bandwidth_mbps:
        return np.full(nodes.size, megabits / max(pod.annotations.bandwidth_mbps, _MIN_MBPS))
    free_mbps = view.bandwidth_free_mbps()[nodes]
    if np.isnan(free_mbps).all():
        return np.zeros(nodes.size)
    free_mbps = np.where(np.isnan(free_mbps), np.nanmin(free_mbps), free_mbps)
    return megabits / np.maximum(free_mbps, _MIN_MBPS)
