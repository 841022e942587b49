"""NodeReady: a node that does not say it is ready gets no new pod."""

from leadline_controller.core.cycle import Verdict
from leadline_controller.core.model import Pod
from leadline_controller.core.news import News
from leadline_controller.core.view import ClusterView

_HOPE = News.READY | News.NODES


def node_ready(view: ClusterView, _: Pod) -> Verdict:
    """Pass the nodes whose Ready condition is True."""
    passes = view.table.mask("ready", lambda node: node.ready)
    return Verdict(passes, lambda _: "the node is not ready", hope=_HOPE)
