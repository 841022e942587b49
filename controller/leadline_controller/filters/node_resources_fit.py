"""NodeResourcesFit: the pod's requests must be free (DACS Algorithm 1, lines 6-8, for CPU and
memory; the number of pods and extended resources as in Kubernetes)."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.quantity import MAX_AMOUNT, format_shortage
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_REQUEUE_ON = ClusterEvent.RESOURCES_FREED | ClusterEvent.NODES


def node_resources_fit(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes on which every resource that the pod requests is free."""
    wanted = {resource: amount for resource, amount in pod.requests.items() if amount > 0}
    free = {resource: view.unrequested(resource) for resource in wanted}
    passes, passes_empty = view.table.all(), view.table.all()
    for resource, amount in wanted.items():
        passes &= free[resource] >= amount
        passes_empty &= view.table.holds(resource, amount)
    if any(amount >= MAX_AMOUNT for amount in wanted.values()):
        # A capped amount may stand for any larger one, so no node has enough.
        passes, passes_empty = view.table.none(), view.table.none()

    def reason(i: int) -> str:
        short = [
            f"insufficient {resource}: {format_shortage(resource, amount, int(free[resource][i]))}"
            for resource, amount in wanted.items()
            if free[resource][i] < amount or amount >= MAX_AMOUNT
        ]
        return "; ".join(short)

    return FilterResult(
        passes,
        reason,
        resolvable_by_preemption=passes_empty,
        requeue_on=_REQUEUE_ON,
        is_local=True,
    )
