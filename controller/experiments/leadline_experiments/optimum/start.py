"""A fast heuristic for a good placement. The exact search starts from it and skips all that is
worse, so the heuristic affects the search's duration and not the optimum.
"""

from collections.abc import Callable

import numpy as np
from leadline_controller.framework.node_table import Bools, Floats, Ints

from leadline_experiments.optimum.feasible import Resources

Objective = Callable[[Ints], float]
_ALIKE = 1e-9


def placement(objective: Objective, may: Bools, resources: Resources) -> Ints | None:
    """The node of each pod, shape (pods,), or None if the heuristic cannot place all pods.

    Each pod, the largest first, goes to the node with the lowest objective; then pods move while
    that lowers it. objective: to minimise, also of partial placements, where a pod without a node
    has -1. may: allowed nodes, shape (pods, nodes).
    """
    nodes = np.full(may.shape[0], -1, dtype=np.int64)
    free = resources.capacity.copy()
    share = (
        resources.requests
        / np.maximum(resources.capacity.max(axis=1, initial=0.0), 1e-9)[:, np.newaxis]
    )
    for pod in np.argsort(-share.max(axis=0, initial=0.0), kind="stable").tolist():
        if not _put(pod, nodes, free, objective, may, resources.requests[:, pod]):
            return None
    best = objective(nodes)
    while True:
        for pod in range(nodes.size):
            free[:, nodes[pod]] += resources.requests[:, pod]
            _put(pod, nodes, free, objective, may, resources.requests[:, pod])
        reached = objective(nodes)
        if reached >= best - _ALIKE:
            return nodes
        best = reached


def _put(
    pod: int, nodes: Ints, free: Floats, objective: Objective, may: Bools, requests: Floats
) -> bool:
    """Put a pod on the node with the lowest objective, in place; False if it fits nowhere."""
    options = np.flatnonzero(may[pod] & (requests[:, np.newaxis] <= free).all(axis=0))
    if not options.size:
        return False
    values = []
    for node in options.tolist():
        nodes[pod] = node
        values.append(objective(nodes))
    nodes[pod] = options[int(np.argmin(values))]
    free[:, nodes[pod]] -= requests
    return True
