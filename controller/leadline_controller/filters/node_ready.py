"""NodeReady: a node that does not say it is ready gets no new pod."""

from leadline_controller.core.cycle import Verdict
from leadline_controller.core.model import Pod
from leadline_controller.core.view import ClusterView


def node_ready(view: ClusterView, _: Pod) -> Verdict:
    """Pass the nodes whose Ready condition is True."""
    return Verdict(
        view.table.mask("ready", lambda node: node.ready), lambda _: "the node is not ready"
    )
