"""Edge and cloud tiers, and the relative sizes of nodes."""

import numpy as np

from leadline_controller.framework.model import CPU, MEMORY
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.shared import spreading

CLOUD = "cloud"


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


def free_share(view: ClusterView, nodes: Ints) -> Floats:
    """The smaller of the free shares of CPU and memory, 0 to 1, shape (len(nodes),); NaN for a node
    of unknown capacity."""
    shares = (spreading.free_share(view, resource, nodes) for resource in (CPU, MEMORY))
    smaller: Floats = np.clip(np.minimum(*shares), 0.0, 1.0)
    return smaller
