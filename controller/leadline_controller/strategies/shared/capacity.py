"""Tiers, sizes and free shares of nodes, and kube-scheduler's spreading by free shares."""

import numpy as np

from leadline_controller.framework.model import CPU, MEMORY
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints

CLOUD = "cloud"
MAX_POINTS = 10.0  # of one of kube-scheduler's priorities


def is_cloud(view: ClusterView) -> Bools:
    """The nodes of tier "cloud", shape (n,); all others are edge."""
    return view.table.mask("cloud tier", lambda node: node.tier == CLOUD)


def relative_size(view: ClusterView, nodes: Ints) -> Floats:
    """sqrt(cpu / M_CPU * mem / M_MEM) of these nodes' capacities (KubeDSM Eq. 11, for nodes instead
    of pods), where M is the largest capacity in the cluster: 0 to 1, shape (len(nodes),); NaN for
    a node of unknown capacity."""
    product = np.ones(nodes.size)
    for resource in (CPU, MEMORY):
        amount = view.table.allocatable(resource).astype(np.float64)
        product *= amount[nodes] / max(float(amount.max()), 1.0)
    return np.where(product > 0, np.sqrt(product), np.nan)


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


def least_requested(view: ClusterView, nodes: Ints) -> Floats:
    """(S_CPU + S_MEM) / 2 * 10 points (DACS Eq. 1): the emptier a node, the more. Other strategies
    add their own priorities to it, as kube-scheduler does. Shape (len(nodes),), NaN where
    unknown."""
    return (free_share(view, CPU, nodes) + free_share(view, MEMORY, nodes)) / 2 * MAX_POINTS


def whole_points(points: Floats) -> Floats:
    """Rounded down, because kube-scheduler's priorities are whole numbers."""
    return np.floor(points + 1e-9)  # a rounding error must not turn 9 points into 8
