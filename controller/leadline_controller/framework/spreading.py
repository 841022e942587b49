"""Which pods and nodes a topology spread constraint counts, as a requirement or a preference."""

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.selectors import Selector
from leadline_controller.framework.view import Bools, ClusterView, Ints


def included_nodes(view: ClusterView, pod: Pod, honor_affinity: bool, honor_taints: bool) -> Bools:
    """The nodes that count under these node inclusion policies, shape (n,)."""
    counted = view.table.all()
    if honor_affinity:
        counted &= view.table.matching_node_affinity(pod)
    if honor_taints:
        counted &= view.table.tolerated_by(pod.tolerations)
    return counted


def matching_pods(view: ClusterView, pod: Pod, selector: Selector | None) -> Ints:
    """How many pods of each node a constraint of the pod counts, shape (n,). As in Kubernetes, pods
    that are being deleted do not count, and an empty selector counts none."""
    assigned_pods = view.assigned_pods
    if not selector or not assigned_pods.rows.shape[1]:
        return np.zeros(len(view), dtype=np.int64)
    counts = assigned_pods.kinds.living(pod.namespace, selector)
    return assigned_pods.per_node(counts[assigned_pods.kind], len(view))
