"""A cluster view with the nodes that kube-scheduler sent to the extender.

kube-scheduler may send whole nodes, which are at least as new as those of our own watch. The pods
on them and the measurements stay ours.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from leadline_controller.framework.model import Node
from leadline_controller.framework.view import ClusterView, NodeTable
from leadline_controller.telemetry.state import TelemetryState


def with_given_nodes(
    view: ClusterView, given: Mapping[str, Node], telemetry: TelemetryState, now_s: float
) -> ClusterView:
    """`view` with these nodes (by name) in place of its own. Unknown nodes come last and hold no
    pods. The same object when the nodes are equal to the view's."""
    index = view.table.index
    if all(name in index and view.nodes[index[name]] == node for name, node in given.items()):
        return view
    new = [node for name, node in given.items() if name not in index]
    table = NodeTable([*(given.get(node.name, node) for node in view.nodes), *new])
    zeros = np.zeros(len(new), dtype=np.int64)
    return replace(
        view,
        table=table,
        requested={name: np.append(col, zeros) for name, col in view.requested.items()},
        metrics=telemetry.metrics(table, now_s),
        links=telemetry.link_table(table, now_s),
        bandwidth_requested_mbps=np.append(view.bandwidth_requested_mbps, zeros),
        placed_in_run=np.append(view.placed_in_run, zeros),
    )
