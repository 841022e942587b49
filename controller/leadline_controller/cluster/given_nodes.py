"""A view with nodes as an extender was given them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from leadline_controller.framework.model import Node
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.view import (
    ClusterView,
    NodeTable,
)
from leadline_controller.telemetry.state import TelemetryState


def with_given_nodes(
    view: ClusterView, given: Mapping[str, Node], telemetry: TelemetryState, now_s: float
) -> ClusterView:
    """`view` with these nodes (by name) in place of its own. Unknown nodes come last and hold no
    pods. The same object when the nodes are equal to the view's.

    kube-scheduler may send its extender whole nodes, which are at least as new as those of our own
    watch. The pods on them and the measurements stay ours.
    """
    index = view.table.index
    if all(name in index and view.nodes[index[name]] == node for name, node in given.items()):
        return view
    new = [node for name, node in given.items() if name not in index]
    table = NodeTable([*(given.get(node.name, node) for node in view.nodes), *new])
    zeros = np.zeros(len(new), dtype=np.int64)
    measured, assumed = telemetry.metrics(table, now_s), view.assumed
    columns = {
        name: np.append(getattr(view.metrics, name), getattr(measured, name)[len(view) :])
        for name in METRICS
    }
    if assumed is not None:
        unknown = np.append(assumed.rates_unknown, zeros)
        assumed = replace(assumed, measured=measured, rates_unknown=unknown)
    return replace(
        view,
        table=table,
        requested={name: np.append(col, zeros) for name, col in view.requested.items()},
        metrics=replace(measured, **columns),
        assumed=assumed,
        recently_placed=np.append(view.recently_placed_pods(), zeros),
        links=telemetry.link_table(table, now_s),
        bandwidth_requested_mbps=np.append(view.bandwidth_requested_mbps, zeros),
        placed_in_run=np.append(view.placed_in_run, zeros),
        charged_in_run={name: np.append(col, zeros) for name, col in view.charged_in_run.items()},
    )
