"""NodeUnschedulable: a cordoned node takes only pods that tolerate being there."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod, Taint
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_HOPE = ClusterEvent.UNCORDONED | ClusterEvent.NODES


def node_unschedulable(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes that are not cordoned, and all for a pod that tolerates a cordon."""
    if any(toleration.tolerates(_CORDON) for toleration in pod.tolerations):
        return FilterResult.everywhere(view)
    passes = view.table.mask("schedulable", lambda node: not node.unschedulable)
    return FilterResult(passes, lambda _: "the node is cordoned", requeue_on=_HOPE)
