"""NodeUnschedulable: a cordoned node takes only pods that tolerate being there."""

from leadline_controller.framework.cycle import Verdict
from leadline_controller.framework.model import Pod, Taint
from leadline_controller.framework.queueing_hints import News
from leadline_controller.framework.view import ClusterView

_CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_HOPE = News.UNCORDONED | News.NODES


def node_unschedulable(view: ClusterView, pod: Pod) -> Verdict:
    """Pass the nodes that are not cordoned, and all for a pod that tolerates a cordon."""
    if any(toleration.tolerates(_CORDON) for toleration in pod.tolerations):
        return Verdict.everywhere(view)
    passes = view.table.mask("schedulable", lambda node: not node.unschedulable)
    return Verdict(passes, lambda _: "the node is cordoned", hope=_HOPE)
