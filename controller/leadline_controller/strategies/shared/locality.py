"""kube-scheduler's ImageLocality: how much of what a pod needs a node has already.

Each thing counts with its size times the share of the nodes that have it, so that no node is
swamped for being the only one ("node heating"), and what is small counts for nothing.
"""

import numpy as np

from leadline_controller.framework.cycle import Scores, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.shared.spreading import (
    MOST_POINTS,
    least_requested,
    whole_points,
)

# kubernetes: pkg/scheduler/framework/plugins/imagelocality, minThreshold and
# maxContainerThreshold.
LEAST_MB = 23.0
MOST_MB = 1000.0


def spread_mb(size_mb: float, held: Bools) -> Floats:
    """size * (nodes that have it / nodes) where a node has it, else 0, MB, shape (n,).
    held: the nodes that have it, shape (n,)."""
    return np.where(held, size_mb * np.count_nonzero(held) / max(held.size, 1), 0.0)


def locality_points(sum_mb: Floats, containers: int) -> Floats:
    """0 points up to 23 MB, 10 from 1000 MB a container, in proportion between; whole
    points, shape (n,)."""
    most_mb = MOST_MB * max(containers, 1)
    within = np.clip(sum_mb, LEAST_MB, most_mb)
    return whole_points((within - LEAST_MB) / (most_mb - LEAST_MB) * MOST_POINTS)


def beside_spreading(
    view: ClusterView, pod: Pod, candidates: Ints, points: Floats, w: float
) -> Scores:
    """Spreading and locality together: the most points win. points: of locality, 0 to 10, shape
    (n,). w: what 10 of them weigh."""
    spread, locality = least_requested(view, candidates), points[candidates]
    total = spread + w / MOST_POINTS * locality
    cached_mb = view.images.cached_mb(view.table, pod)[candidates]

    def why(at: int) -> str:
        if np.isnan(total[at]):
            return "no candidate's capacity is known"
        if np.isnan(cached_mb[at]):
            return f"no layers of its images are known; {spread[at]:g} points for spreading"
        return (
            f"{cached_mb[at]:.4g} MB of its layers are there: {locality[at]:.3g} points, "
            f"{spread[at]:.3g} for spreading"
        )

    parts = {"spread": spread, "locality": locality, "cached_mb": cached_mb}
    return Scores(candidates, total, best(total, "higher"), why, parts)
