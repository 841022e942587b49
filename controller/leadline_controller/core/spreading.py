"""kube-scheduler's spreading: the emptier a node, the more points it gets.

A priority of its own, to which other strategies add theirs as kube-scheduler adds its.
"""

import numpy as np

from leadline_controller.core.model import CPU, MEMORY
from leadline_controller.core.view import ClusterView, Floats, Ints

MOST_POINTS = 10.0  # of one priority
_HAIR = 1e-9  # 9 points must not be 8 for a rounding error


def free_share(view: ClusterView, resource: str, candidates: Ints) -> Floats:
    """S = (capacity - requested) / capacity of each candidate (DACS Eq. 2), shape
    (candidates,); NaN where a node has none of the resource."""
    capacity = view.table.allocatable(resource)[candidates].astype(np.float64)
    capacity[capacity == 0] = np.nan
    return view.free(resource)[candidates] / capacity


def least_requested(view: ClusterView, candidates: Ints, rounding: str = "exact") -> Floats:
    """(S_CPU + S_MEM) / 2 * 10 points (DACS Eq. 1), shape (candidates,), NaN where unknown.
    rounding: see `rounded`."""
    shares = free_share(view, CPU, candidates) + free_share(view, MEMORY, candidates)
    return rounded(shares / 2 * MOST_POINTS, rounding)


def rounded(points: Floats, rounding: str) -> Floats:
    """The points as they are ("exact"), or rounded down as kube-scheduler does, whose
    priorities are whole numbers ("whole"): nodes that are nearly as good are then equal."""
    return np.floor(points + _HAIR) if rounding == "whole" else points
