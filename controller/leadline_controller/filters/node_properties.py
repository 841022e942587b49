"""What a node is: NodeReady, NodeUnschedulable, TaintToleration, NodeAffinity (with nodeSelector)
and NodeDeclaredFeatures."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod, Taint
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_IF_READY = ClusterEvent.READY | ClusterEvent.NODES
_IF_UNCORDONED = ClusterEvent.UNCORDONED | ClusterEvent.NODES
_IF_UNTAINTED = ClusterEvent.UNTAINTED | ClusterEvent.NODES
_IF_LABELLED = ClusterEvent.LABELS | ClusterEvent.NODES
_IF_DECLARED = ClusterEvent.FEATURES | ClusterEvent.NODES


def node_ready(view: ClusterView, _: Pod) -> FilterResult:
    """Pass the nodes whose Ready condition is True."""
    passes = view.table.mask("ready", lambda node: node.ready)
    return FilterResult(passes, lambda _: "the node is not ready", requeue_on=_IF_READY)


def node_unschedulable(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes that are not cordoned, or all nodes if the pod tolerates the taint."""
    if any(toleration.tolerates(_UNSCHEDULABLE_TAINT) for toleration in pod.tolerations):
        return FilterResult.all_pass(view)
    passes = view.table.mask("schedulable", lambda node: not node.unschedulable)
    return FilterResult(passes, lambda _: "the node is cordoned", requeue_on=_IF_UNCORDONED)


def taint_toleration(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose hard taints, NoSchedule and NoExecute, the pod tolerates."""

    def reason(i: int) -> str:
        taint = next(
            taint
            for taint in view.nodes[i].taints
            if taint.is_hard and not any(each.tolerates(taint) for each in pod.tolerations)
        )
        shown = f"{taint.key}={taint.value}" if taint.value else taint.key
        return f"untolerated taint {shown}:{taint.effect}"

    return FilterResult(view.table.tolerated_by(pod.tolerations), reason, requeue_on=_IF_UNTAINTED)


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

    return FilterResult(view.table.matching_node_affinity(pod), reason, requeue_on=_IF_LABELLED)


def node_declared_features(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose kubelet declares every feature that the pod needs."""
    if not pod.features:
        return FilterResult.all_pass(view)
    needed = frozenset(pod.features)
    passes = view.table.mask(("features", needed), lambda node: needed <= node.features)

    def reason(i: int) -> str:
        missing = sorted(needed - view.nodes[i].features)
        return f"the kubelet does not declare {', '.join(missing)}"

    return FilterResult(passes, reason, requeue_on=_IF_DECLARED)
