"""kube-scheduler's priorities that spread pods, alone or together, for strategies that add their
own to them."""

from typing import Any

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import choice
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.capacity import MAX_POINTS, least_requested, whole_points

# kube-scheduler rounds its points down, so totals that differ by less may be the same there.
WHOLE_POINT = 1.0


def rounding_option() -> Any:
    """Declare the field for `rounding` of `spread_points`."""
    return choice("exact", "whole", help="points as they are, or rounded down")


def spread_option() -> Any:
    """Declare the field for `spread` of `spread_points`."""
    return choice(
        *("least-requested", "selector-spread"),
        help="free resources alone, or the service's other replicas, too",
    )


def spread_points(view: ClusterView, pod: Pod, nodes: Ints, rounding: str, spread: str) -> Floats:
    """kube-scheduler's LeastRequested (DACS Eq. 1), 0 to 10 points, rounded down if `rounding` is
    "whole"; plus the points of `selector_spread` if `spread` is "selector-spread". Shape
    (len(nodes),), NaN for a node of unknown capacity."""
    points = least_requested(view, nodes)
    if rounding == "whole":
        points = whole_points(points)
    if spread == "selector-spread":
        points = points + selector_spread(view, pod, nodes)
    return points


def selector_spread(view: ClusterView, pod: Pod, nodes: Ints) -> Floats:
    """kube-scheduler's SelectorSpread without its zones: 10 * (most - r) / most in whole points,
    where r is the number of the service's replicas on the node and `most` the largest r of all
    these nodes; 10 for all if there are none. Shape (len(nodes),)."""
    replicas = view.replicas_of(pod)[nodes]
    most = replicas.max()
    if most == 0:
        return np.full(nodes.size, MAX_POINTS)
    return whole_points(MAX_POINTS * (most - replicas) / most)
