"""TaintToleration: NoSchedule and NoExecute taints keep out pods that don't tolerate them."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_HOPE = ClusterEvent.UNTAINTED | ClusterEvent.NODES


def taint_toleration(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes all of whose hard taints the pod tolerates."""

    def reason(i: int) -> str:
        taint = view.nodes[i].untolerated(pod.tolerations)
        assert taint is not None  # noqa: S101  # only asked of nodes that did not pass
        shown = f"{taint.key}={taint.value}" if taint.value else taint.key
        return f"untolerated taint {shown}:{taint.effect}"

    return FilterResult(view.table.tolerated_by(pod.tolerations), reason, requeue_on=_HOPE)
