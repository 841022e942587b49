"""NodePorts: two pods can't hold the same host port of one node."""

import numpy as np

from leadline_controller.core.cycle import Verdict
from leadline_controller.core.model import HostPort, Pod
from leadline_controller.core.news import News
from leadline_controller.core.view import ClusterView

_HOPE = News.PORTS | News.NODES


def node_ports(view: ClusterView, pod: Pod) -> Verdict:
    """Pass the nodes where none of the pod's host ports is taken."""
    if not pod.host_ports:
        return Verdict.everywhere(view)

    def taken(i: int) -> HostPort | None:
        held = view.host_ports.get(i, ())
        return next((w for w in pod.host_ports if any(w.collides(h) for h in held)), None)

    passes = np.ones(len(view), dtype=np.bool_)
    for i in view.host_ports:
        passes[i] = taken(i) is None

    def reason(i: int) -> str:
        port = taken(i)
        assert port is not None  # noqa: S101  # only asked of nodes that did not pass
        return f"host port {port.port}/{port.protocol} is taken"

    return Verdict(passes, reason, evictable=view.table.all(), hope=_HOPE)
