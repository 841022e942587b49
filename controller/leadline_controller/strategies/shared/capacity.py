"""Tiers, sizes and free shares of nodes, and kube-scheduler's spreading by free shares."""

import numpy as np

from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints

CLOUD = "cloud"
MAX_POINTS = 10.0  # of one of kube-scheduler's priorities


def is_cloud(view: ClusterView) -> Bools:
    """The nodes of tier "cloud", shape (n,); all others are edge."""
    return view.table.mask("cloud tier", lambda node: node.tier == CLOUD)


def free_share(view: ClusterView, resource: str, nodes: Ints) -> Floats:
    """S = (capacity - requested) / capacity of each of these nodes (DACS Eq. 2), shape
    (len(nodes),); NaN where a node has none of the resource."""
    capacity = view.table.allocatable(resource)[nodes].astype(np.float64)
    capacity[capacity == 0] = np.nan
    return view.free(resource)[nodes] / capacity


def scarcer_free_share(view: ClusterView, nodes: Ints) -> Floats:
    """The smaller of the free shares of CPU and memory, 0 to 1, shape (len(nodes),); NaN for a node
    of unknown capacity."""
    shares = (free_share(view, resource, nodes) for resource in (CPU, MEMORY))
    smaller: Floats = np.clip(np.minimum(*shares), 0.0, 1.0)
    return smaller


def keeps_free(view: ClusterView, pod: Pod, nodes: Ints, cores: float, gib: float) -> Floats:
    """1 for a node that has more free than the pod asks for besides so many cores and GiB of
    memory, 0 for another, shape (len(nodes),); NaN for a node of unknown capacity."""
    kept = np.ones(nodes.size)
    for resource, reserve in ((CPU, cores * 1000), (MEMORY, gib * 1024**3)):
        free = view.free(resource)[nodes] - reserve
        kept *= np.where(reserve > 0, free > pod.requests.get(resource, 0), 1)
        kept[view.table.allocatable(resource)[nodes] == 0] = np.nan
    return kept


def least_requested(view: ClusterView, nodes: Ints) -> Floats:
    """(S_CPU + S_MEM) / 2 * 10 points (DACS Eq. 1): the emptier a node, the more. Other strategies
    add their own priorities to it, as kube-scheduler does. Shape (len(nodes),), NaN where
    unknown."""
    return (free_share(view, CPU, nodes) + free_share(view, MEMORY, nodes)) / 2 * MAX_POINTS


def whole_points(points: Floats) -> Floats:
    """Rounded down, because kube-scheduler's priorities are whole numbers."""
    return np.floor(points + 1e-9)  # a rounding error must not turn 9 points into 8
