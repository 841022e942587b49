"""The cluster view of a simulation."""

from collections.abc import Mapping, Sequence

import numpy as np
from leadline_controller.framework.model import Link, Node
from leadline_controller.framework.view import ClusterView, Ints, LinkTable, NodeMetrics, NodeTable


def view_of(
    nodes: Sequence[Node],
    links: Sequence[Link] = (),
    requested: Mapping[str, Ints] | None = None,
    metrics: NodeMetrics | None = None,
) -> ClusterView:
    """A view in which nothing was placed yet. What is not given is unknown; of `requested`, 0."""
    table = NodeTable(nodes)
    return ClusterView(
        table=table,
        requested=requested or {},
        metrics=metrics or NodeMetrics.unknown(len(table)),
        links=LinkTable(table.index, links),
        bandwidth_requested_mbps=np.zeros(len(table)),
        placed_in_run=np.zeros(len(table), dtype=np.int64),
    )
