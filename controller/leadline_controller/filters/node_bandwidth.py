"""NodeBandwidthFit: the link must have the capacity that the pod requests (DACS Algorithm 1,
line 7, for the network)."""

import numpy as np

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView, Floats

_REQUEUE_ON = ClusterEvent.BANDWIDTH | ClusterEvent.NODES


def node_bandwidth(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose link has `leadline.dev/bandwidth-mbps` free. A link whose capacity is
    neither stated nor measured does not pass. One of which a lower bound is measured passes, unless
    its interface is too slow: the pod's request makes it the next link to be tested.

    Of a stated capacity, what flows on the link counts where it is more than what is requested. A
    measured one is what a test got beside that, so it must not be taken off twice."""
    wanted_mbps = pod.annotations.bandwidth_mbps
    if not wanted_mbps:
        return FilterResult.all_pass(view)
    unrequested_mbps, flowing_mbps = view.bandwidth_possible_mbps(), _beyond_requests_mbps(view)
    free_mbps = view.bandwidth_free_mbps() - flowing_mbps
    possible_mbps = unrequested_mbps - flowing_mbps

    def bound(i: int) -> str:
        is_bound = possible_mbps[i] > free_mbps[i]
        known_mbps = view.measured.bandwidth_mbps[i]
        busy = ", the board was busy" if view.bandwidth_host_limited()[i] else ""
        return f"at least {known_mbps:.4g} Mbit/s is known{busy}" if is_bound else ""

    def reason(i: int) -> str:
        if np.isnan(free_mbps[i]):
            return f"needs {wanted_mbps:g} Mbit/s, the link's bandwidth is unknown"
        most = f"at most {possible_mbps[i]:g} ({bound(i)})" if bound(i) else f"{free_mbps[i]:g}"
        text = f"insufficient bandwidth: needs {wanted_mbps:g} Mbit/s, has {most}"
        if not flowing_mbps[i]:
            return text
        return f"{text}, as {flowing_mbps[i]:.4g} more flow than is requested"

    def caveat(i: int) -> str:
        return "" if free_mbps[i] >= wanted_mbps else bound(i)

    return FilterResult(
        possible_mbps >= wanted_mbps,
        reason,
        resolvable_by_preemption=unrequested_mbps + view.bandwidth_requested_mbps >= wanted_mbps,
        requeue_on=_REQUEUE_ON,
        caveat=caveat,
        is_local=True,
    )


def _beyond_requests_mbps(view: ClusterView) -> Floats:
    """By how much what flows on each node's link exceeds what is requested, Mbit/s, shape (n,); 0
    where the capacity is not stated."""
    beyond = np.zeros(len(view))
    for name, mbps in view.traffic.flowing_mbps.items():
        if (at := view.table.index.get(name)) is not None:
            beyond[at] = max(mbps - view.bandwidth_requested_mbps[at], 0.0)
    beyond[np.isnan(view.table.bandwidth_mbps)] = 0.0
    return beyond
