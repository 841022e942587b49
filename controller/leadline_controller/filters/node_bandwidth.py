"""NodeBandwidthFit: the link must have the capacity that the pod requests (DACS Algorithm 1,
line 7, for the network)."""

import numpy as np

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_REQUEUE_ON = ClusterEvent.BANDWIDTH | ClusterEvent.NODES


def node_bandwidth(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose link has `leadline.dev/bandwidth-mbps` free. A link whose capacity is
    neither stated nor measured does not pass."""
    wanted_mbps = pod.annotations.bandwidth_mbps
    if not wanted_mbps:
        return FilterResult.all_pass(view)
    free_mbps = view.bandwidth_free_mbps()

    def reason(i: int) -> str:
        if np.isnan(free_mbps[i]):
            return f"needs {wanted_mbps:g} Mbit/s, the link's bandwidth is unknown"
        return f"insufficient bandwidth: needs {wanted_mbps:g} Mbit/s, has {free_mbps[i]:g}"

    return FilterResult(free_mbps >= wanted_mbps, reason, requeue_on=_REQUEUE_ON)
