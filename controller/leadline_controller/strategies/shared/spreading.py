"""kube-scheduler's spreading: the emptier a node, the higher its score.

Other strategies add their own priorities to it, as kube-scheduler does.
"""

import numpy as np

from leadline_controller.framework.model import CPU, MEMORY
from leadline_controller.framework.view import ClusterView, Floats, Ints

MAX_POINTS = 10.0  # of one priority


def free_share(view: ClusterView, resource: str, candidates: Ints) -> Floats:
    """S = (capacity - requested) / capacity of each candidate (DACS Eq. 2), shape
    (candidates,); NaN where a node has none of the resource."""
    capacity = view.table.allocatable(resource)[candidates].astype(np.float64)
    capacity[capacity == 0] = np.nan
    return view.free(resource)[candidates] / capacity


def least_requested(view: ClusterView, candidates: Ints) -> Floats:
    """(S_CPU + S_MEM) / 2 * 10 points (DACS Eq. 1), shape (candidates,), NaN where unknown."""
    shares = free_share(view, CPU, candidates) + free_share(view, MEMORY, candidates)
    return shares / 2 * MAX_POINTS


def whole_points(points: Floats) -> Floats:
    """Rounded down, because kube-scheduler's priorities are whole numbers."""
    return np.floor(points + 1e-9)  # a rounding error must not turn 9 points into 8
