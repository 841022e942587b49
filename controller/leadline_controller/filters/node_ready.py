"""NodeReady: new pods go only to ready nodes."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_REQUEUE_ON = ClusterEvent.READY | ClusterEvent.NODES


def node_ready(view: ClusterView, _: Pod) -> FilterResult:
    """Pass the nodes whose Ready condition is True."""
    passes = view.table.mask("ready", lambda node: node.ready)
    return FilterResult(passes, lambda _: "the node is not ready", requeue_on=_REQUEUE_ON)
