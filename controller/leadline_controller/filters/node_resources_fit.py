"""NodeResourcesFit: what the pod asks for must be free (DACS Algorithm 1, lines 6-8, for CPU
and memory; the number of pods and extended resources as Kubernetes has them)."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.quantity import MAX_AMOUNT, format_shortage
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_HOPE = ClusterEvent.RESOURCES_FREED | ClusterEvent.NODES


def node_resources_fit(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes where every resource that the pod asks for is free."""
    wanted = {resource: amount for resource, amount in pod.requests.items() if amount > 0}
    free = {resource: view.free(resource) for resource in wanted}
    passes, could = view.table.all(), view.table.all()
    for resource, amount in wanted.items():
        # An amount at the cap may be any amount, so no node is known to have it.
        passes &= (free[resource] >= amount) & (amount < MAX_AMOUNT)
        could &= (view.table.allocatable(resource) >= amount) & (amount < MAX_AMOUNT)

    def reason(i: int) -> str:
        short = [
            f"insufficient {resource}: {format_shortage(resource, amount, int(free[resource][i]))}"
            for resource, amount in wanted.items()
            if free[resource][i] < amount or amount >= MAX_AMOUNT
        ]
        return "; ".join(short)

    return FilterResult(passes, reason, resolvable_by_preemption=could, requeue_on=_HOPE)
