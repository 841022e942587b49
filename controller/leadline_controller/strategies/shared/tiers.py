"""Edge and cloud: which nodes are which, and how big they are beside each other."""

import numpy as np

from leadline_controller.framework.model import CPU, MEMORY
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints

CLOUD = "cloud"


def is_cloud(view: ClusterView) -> Bools:
    """The nodes of tier "cloud", shape (n,); all others are edge."""
    return view.table.mask("cloud tier", lambda node: node.tier == CLOUD)


def relative_size(view: ClusterView, nodes: Ints) -> Floats:
    """sqrt(cpu / M_CPU * mem / M_MEM) of what these nodes can hold (KubeDSM Eq. 11, of nodes
    and not of pods), M being the most that any node of the cluster has: 0 to 1, shape
    (len(nodes),); NaN where a node does not say how much it has."""
    product = np.ones(nodes.size)
    for resource in (CPU, MEMORY):
        amount = view.table.allocatable(resource).astype(np.float64)
        product *= amount[nodes] / max(float(amount.max()), 1.0)
    return np.where(product > 0, np.sqrt(product), np.nan)


def free_share(view: ClusterView, nodes: Ints) -> Floats:
    """The smaller of the free shares of CPU and memory, 0 to 1, shape (len(nodes),); NaN where a
    node does not say how much it has."""
    shares = []
    for resource in (CPU, MEMORY):
        amount = view.table.allocatable(resource)[nodes].astype(np.float64)
        amount[amount == 0] = np.nan
        shares.append(np.clip(view.free(resource)[nodes] / amount, 0.0, 1.0))
    smaller: Floats = np.minimum(*shares)
    return smaller
