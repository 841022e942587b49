"""TaintToleration: NoSchedule and NoExecute taints repel pods that do not tolerate them."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_REQUEUE_ON = ClusterEvent.UNTAINTED | ClusterEvent.NODES


def taint_toleration(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose hard taints the pod tolerates."""

    def reason(i: int) -> str:
        taint = next(
            taint
            for taint in view.nodes[i].taints
            if taint.is_hard and not any(each.tolerates(taint) for each in pod.tolerations)
        )
        shown = f"{taint.key}={taint.value}" if taint.value else taint.key
        return f"untolerated taint {shown}:{taint.effect}"

    return FilterResult(view.table.tolerated_by(pod.tolerations), reason, requeue_on=_REQUEUE_ON)
