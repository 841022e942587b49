"""NodeAffinity: nodeSelector and required node affinity."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_REQUEUE_ON = ClusterEvent.LABELS | ClusterEvent.NODES


def node_affinity(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes that match the nodeSelector and one of the required terms. As in Kubernetes,
    a term without expressions matches no node."""
    if not pod.node_selector and pod.required_affinity is None:
        return FilterResult.all_pass(view)

    def reason(i: int) -> str:
        labels, selector = view.nodes[i].labels, pod.node_selector
        if any(labels.get(name) != value for name, value in selector.items()):
            wanted = ", ".join(f"{name}={value}" for name, value in sorted(selector.items()))
            return f"the nodeSelector wants {wanted}"
        return "no term of the required node affinity matches"

    return FilterResult(view.table.matching_node_affinity(pod), reason, requeue_on=_REQUEUE_ON)
