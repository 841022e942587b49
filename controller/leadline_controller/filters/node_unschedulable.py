"""NodeUnschedulable: a cordoned node takes only pods that tolerate the unschedulable taint."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod, Taint
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_REQUEUE_ON = ClusterEvent.UNCORDONED | ClusterEvent.NODES


def node_unschedulable(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes that are not cordoned, or all nodes if the pod tolerates the taint."""
    if any(toleration.tolerates(_UNSCHEDULABLE_TAINT) for toleration in pod.tolerations):
        return FilterResult.all_pass(view)
    passes = view.table.mask("schedulable", lambda node: not node.unschedulable)
    return FilterResult(passes, lambda _: "the node is cordoned", requeue_on=_REQUEUE_ON)
