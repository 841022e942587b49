"""NodeReady: a node that does not say it is ready gets no new pod."""

from leadline_controller.framework.cycle import Verdict
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import News
from leadline_controller.framework.view import ClusterView

_HOPE = News.READY | News.NODES


def node_ready(view: ClusterView, _: Pod) -> Verdict:
    """Pass the nodes whose Ready condition is True."""
    passes = view.table.mask("ready", lambda node: node.ready)
    return Verdict(passes, lambda _: "the node is not ready", hope=_HOPE)
