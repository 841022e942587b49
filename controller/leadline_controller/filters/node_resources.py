"""What is free on a node: NodeResourcesFit, NodePorts and NodeBandwidthFit."""

from collections.abc import Iterator

import numpy as np

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import HostPort, Pod
from leadline_controller.framework.quantity import MAX_AMOUNT, format_shortage
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_IF_FREED = ClusterEvent.RESOURCES_FREED | ClusterEvent.NODES
_IF_PORTS_FREED = ClusterEvent.PORTS_FREED | ClusterEvent.NODES
_IF_BANDWIDTH = ClusterEvent.BANDWIDTH | ClusterEvent.NODES


def node_resources_fit(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes on which every resource that the pod requests is free (DACS Algorithm 1, lines
    6-8, for CPU and memory; the number of pods and extended resources as in Kubernetes)."""
    wanted = {resource: amount for resource, amount in pod.requests.items() if amount > 0}
    free = {resource: view.free(resource) for resource in wanted}
    passes, passes_empty = view.table.all(), view.table.all()
    for resource, amount in wanted.items():
        # A capped amount may stand for any larger one, so no node has enough.
        passes &= (free[resource] >= amount) & (amount < MAX_AMOUNT)
        passes_empty &= (view.table.allocatable(resource) >= amount) & (amount < MAX_AMOUNT)

    def reason(i: int) -> str:
        short = [
            f"insufficient {resource}: {format_shortage(resource, amount, int(free[resource][i]))}"
            for resource, amount in wanted.items()
            if free[resource][i] < amount or amount >= MAX_AMOUNT
        ]
        return "; ".join(short)

    return FilterResult(passes, reason, resolvable_by_preemption=passes_empty, requeue_on=_IF_FREED)


def node_ports(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes on which the pod's host ports are free: one pod at most may have each."""
    if not pod.host_ports:
        return FilterResult.all_pass(view)

    wanted: dict[tuple[str, int], list[HostPort]] = {}
    for port in dict.fromkeys(pod.host_ports):
        wanted.setdefault((port.protocol, port.port), []).append(port)

    def taken(i: int) -> Iterator[HostPort]:
        for held in view.host_ports.get(i, ()):
            same = wanted.get((held.protocol, held.port), ())
            yield from (port for port in same if port.conflicts_with(held))

    passes = np.ones(len(view), dtype=np.bool_)
    for i in view.host_ports:
        passes[i] = next(taken(i), None) is None

    def reason(i: int) -> str:
        first = min(taken(i), key=pod.host_ports.index)
        return f"host port {first.port}/{first.protocol} is taken"

    return FilterResult(
        passes, reason, resolvable_by_preemption=view.table.all(), requeue_on=_IF_PORTS_FREED
    )


def node_bandwidth(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose link has `leadline.dev/bandwidth-mbps` free (DACS Algorithm 1,
    line 7, for the network). A link whose capacity is neither stated nor measured does not
    pass."""
    wanted_mbps = pod.annotations.bandwidth_mbps
    if not wanted_mbps:
        return FilterResult.all_pass(view)
    free_mbps = view.bandwidth_free_mbps()

    def reason(i: int) -> str:
        if np.isnan(free_mbps[i]):
            return f"needs {wanted_mbps:g} Mbit/s, the link's bandwidth is unknown"
        return f"insufficient bandwidth: needs {wanted_mbps:g} Mbit/s, has {free_mbps[i]:g}"

    return FilterResult(free_mbps >= wanted_mbps, reason, requeue_on=_IF_BANDWIDTH)
