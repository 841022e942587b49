"""A good placement, fast: what the exact search has to beat, and a bound on what it may leave
out. Nothing that it misses can make the optimum worse.
"""

from collections.abc import Callable

import numpy as np
from leadline_controller.framework.node_table import Bools, Floats, Ints

from leadline_experiments.optimum.feasible import Room

Value = Callable[[Ints], float]
_ALIKE = 1e-9


def placement(value: Value, may: Bools, space: Room) -> Ints | None:
    """The node of each pod, shape (pods,), every pod put where it costs least, the largest
    first, and then moved as long as that helps. None where that leaves a pod over, although
    there may be a placement. value: the least is the best, also of some of the pods: those
    without a node have -1. may: shape (pods, nodes)."""
    nodes = np.full(may.shape[0], -1, dtype=np.int64)
    free = space.capacity.copy()
    share = space.wants / np.maximum(space.capacity.max(axis=1, initial=0.0), 1e-9)[:, np.newaxis]
    for pod in np.argsort(-share.max(axis=0, initial=0.0), kind="stable").tolist():
        if not _put(pod, nodes, free, value, may, space.wants[:, pod]):
            return None
    best = value(nodes)
    while True:
        for pod in range(nodes.size):
            free[:, nodes[pod]] += space.wants[:, pod]
            _put(pod, nodes, free, value, may, space.wants[:, pod])
        reached = value(nodes)
        if reached >= best - _ALIKE:
            return nodes
        best = reached


def _put(pod: int, nodes: Ints, free: Floats, value: Value, may: Bools, wants: Floats) -> bool:
    """Put a pod where it is best for all, in place; False where there is no room."""
    options = np.flatnonzero(may[pod] & (wants[:, np.newaxis] <= free).all(axis=0))
    if not options.size:
        return False
    tried = []
    for node in options.tolist():
        nodes[pod] = node
        tried.append(value(nodes))
    nodes[pod] = options[int(np.argmin(tried))]
    free[:, nodes[pod]] -= wants
    return True
