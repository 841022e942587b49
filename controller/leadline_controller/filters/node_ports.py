"""NodePorts: each host port of a node belongs to one pod at most."""

from collections.abc import Iterator

import numpy as np

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import HostPort, Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_REQUEUE_ON = ClusterEvent.PORTS_FREED | ClusterEvent.NODES


def node_ports(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes on which the pod's host ports are free."""
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
        passes,
        reason,
        resolvable_by_preemption=view.table.all(),
        requeue_on=_REQUEUE_ON,
        is_local=True,
    )
