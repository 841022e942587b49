"""The machines and the cluster view of a simulation."""

from collections.abc import Mapping, Sequence

import numpy as np
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import CPU, MEMORY, PODS, Link, Node, Taint
from leadline_controller.framework.node_metrics import NodeMetrics
from leadline_controller.framework.view import ClusterView, Ints, NodeTable

_GIB = 1024**3
_MOST_PODS = 110  # a kubelet's default


def machine(
    name: str,
    cores: int,
    gib: int,
    *,
    tier: str = "edge",
    taints: Sequence[Taint] = (),
    bandwidth_mbps: float | None = None,
) -> Node:
    """A node with these cores and GiB of memory. bandwidth_mbps: stated capacity of its link."""
    amounts = {CPU: cores * 1000, MEMORY: gib * _GIB, PODS: _MOST_PODS}
    return Node(name, amounts, taints=tuple(taints), tier=tier, bandwidth_mbps=bandwidth_mbps)


def view_of(
    nodes: Sequence[Node],
    links: Sequence[Link] = (),
    requested: Mapping[str, Ints] | None = None,
    metrics: NodeMetrics | None = None,
) -> ClusterView:
    """A view in which nothing was placed yet. What is not given is unknown; of `requested`, 0.
    Strategies read `metrics` to the letter: nothing is assumed beside what was measured."""
    table = NodeTable(nodes)
    return ClusterView(
        table=table,
        requested=requested or {},
        metrics=metrics or NodeMetrics.unknown(len(table)),
        links=LinkTable(table.index, links),
        bandwidth_requested_mbps=np.zeros(len(table)),
        placed_in_run=np.zeros(len(table), dtype=np.int64),
    )
