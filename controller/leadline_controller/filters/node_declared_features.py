"""NodeDeclaredFeatures: the kubelet must declare the features that a pod needs."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_REQUEUE_ON = ClusterEvent.FEATURES | ClusterEvent.NODES


def node_declared_features(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose kubelet declares every feature that the pod needs."""
    if not pod.features:
        return FilterResult.all_pass(view)
    needed = frozenset(pod.features)
    passes = view.table.mask(("features", needed), lambda node: needed <= node.features)

    def reason(i: int) -> str:
        missing = sorted(needed - view.nodes[i].features)
        return f"the kubelet does not declare {', '.join(missing)}"

    return FilterResult(passes, reason, requeue_on=_REQUEUE_ON)
