"""Runs one filter by name."""

from leadline_controller.filters import FILTERS
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.view import ClusterView

from tests.controller.builders import node

ZONE = "topology.kubernetes.io/zone"


def reasons(name: str, cluster: ClusterView, wanted: Pod) -> dict[str, str | None]:
    """Why each node is rejected, None where it passes."""
    result = FILTERS[name](cluster, wanted)
    return {
        node_name: None if result.passes[i] else result.reason(i)
        for i, node_name in enumerate(cluster.table.names)
    }


def passing(name: str, cluster: ClusterView, wanted: Pod) -> str:
    """The names of the nodes that pass, in order, with spaces."""
    return " ".join(n for n, why in reasons(name, cluster, wanted).items() if why is None)


def zoned(*zones: str | None) -> list[Node]:
    """Nodes n0, n1 and so on; None is a node without a zone label."""
    return [
        node(f"n{i}", labels={} if zone is None else {ZONE: zone}) for i, zone in enumerate(zones)
    ]
