"""kube-scheduler's ImageLocality: how much of what a pod needs a node has already.

Each thing counts with its size times the share of the nodes that have it, so that no node is
swamped for being the only one ("node heating"), and what is small counts for nothing.
"""

import numpy as np

from leadline_controller.core.spreading import MOST_POINTS, whole_points
from leadline_controller.core.view import Bools, Floats

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
