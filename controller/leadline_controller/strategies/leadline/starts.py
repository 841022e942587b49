"""Until a pod is ready: its pulls behind the node's queue, and then the start of its workload on
this class of board."""

import numpy as np

from leadline_controller.framework.assumed_load import Expectations, workload_of
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.leadline.network import relative_error
from leadline_controller.strategies.leadline.terms import Uncertain
from leadline_controller.strategies.shared.delays import registry_mbps
from leadline_controller.strategies.shared.unknowns import LIKE_BOARDS, left_unknown


def pulls_s(view: ClusterView, pod: Pod, nodes: Ints) -> Uncertain:
    """Until its images are there, s, shape (m,); 0 for all if no layers are known."""
    if not view.images.knows(view.table, pod):
        return Uncertain.exact(np.zeros(nodes.size))
    filled = registry_mbps(view, nodes, LIKE_BOARDS, left_unknown)
    speeds = np.full(len(view), np.nan)
    speeds[nodes] = filled.values
    time_s = view.images.pull(view.table, pod, speeds).time_s[nodes]
    known = ~np.isnan(time_s)
    if not known.any():
        return Uncertain.exact(np.zeros(nodes.size))
    time_s = np.where(known, time_s, time_s[known].max())
    return Uncertain(time_s, time_s, time_s * relative_error(filled))


def starts_s(view: ClusterView, expectations: Expectations, pod: Pod, nodes: Ints) -> Floats:
    """From there until it is ready, s, shape (m,); 0 for all where no start was seen."""
    of_class = expectations.starts.of(workload_of(pod))
    if not of_class:
        return np.zeros(nodes.size)
    found = view.table.classes.column(of_class)[nodes]
    return np.where(np.isnan(found), of_class[""], found)
