"""TaintToleration: NoSchedule and NoExecute taints keep out pods that don't tolerate them."""

from leadline_controller.core.cycle import Verdict
from leadline_controller.core.model import Node, Pod, Taint
from leadline_controller.core.view import ClusterView

_HARD = ("NoSchedule", "NoExecute")


def taint_toleration(view: ClusterView, pod: Pod) -> Verdict:
    """Pass the nodes all of whose hard taints the pod tolerates."""

    def untolerated(node: Node) -> Taint | None:
        for taint in node.taints:
            if taint.effect in _HARD and not any(t.tolerates(taint) for t in pod.tolerations):
                return taint
        return None

    def reason(i: int) -> str:
        taint = untolerated(view.nodes[i])
        assert taint is not None  # noqa: S101  # only asked of nodes that did not pass
        shown = f"{taint.key}={taint.value}" if taint.value else taint.key
        return f"untolerated taint {shown}:{taint.effect}"

    key = ("taints", pod.tolerations)
    return Verdict(view.table.mask(key, lambda node: untolerated(node) is None), reason)
