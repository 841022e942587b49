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
    neither stated nor measured does not pass. One of which a lower bound is measured passes, unless
    its interface is too slow: the pod's request makes it the next link to be tested."""
    wanted_mbps = pod.annotations.bandwidth_mbps
    if not wanted_mbps:
        return FilterResult.all_pass(view)
    free_mbps, possible_mbps = view.bandwidth_free_mbps(), view.bandwidth_possible_mbps()

    def bound(i: int) -> str:
        is_bound = possible_mbps[i] > free_mbps[i]
        known_mbps = view.measured.bandwidth_mbps[i]
        busy = ", the board was busy" if view.bandwidth_host_limited()[i] else ""
        return f"at least {known_mbps:.4g} Mbit/s is known{busy}" if is_bound else ""

    def reason(i: int) -> str:
        if np.isnan(free_mbps[i]):
            return f"needs {wanted_mbps:g} Mbit/s, the link's bandwidth is unknown"
        most = f"at most {possible_mbps[i]:g} ({bound(i)})" if bound(i) else f"{free_mbps[i]:g}"
        return f"insufficient bandwidth: needs {wanted_mbps:g} Mbit/s, has {most}"

    def caveat(i: int) -> str:
        return "" if free_mbps[i] >= wanted_mbps else bound(i)

    return FilterResult(
        possible_mbps >= wanted_mbps,
        reason,
        resolvable_by_preemption=possible_mbps + view.bandwidth_requested_mbps >= wanted_mbps,
        requeue_on=_REQUEUE_ON,
        caveat=caveat,
        is_local=True,
    )
