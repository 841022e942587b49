"""PodTopologySpread: the constraints that are demands (DoNotSchedule)."""

import numpy as np

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.demands import SpreadConstraint
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import Topology
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.selectors import selects
from leadline_controller.framework.view import Bools, ClusterView, Ints

_HOPE = (
    ClusterEvent.ASSIGNED_PODS
    | ClusterEvent.LABELS
    | ClusterEvent.NODES
    | ClusterEvent.NODE_DELETED
)
_TAINTS = ClusterEvent.TAINTED | ClusterEvent.UNTAINTED


def pod_topology_spread(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes in whose domain one pod more leaves it at most max_skew above the
    emptiest domain. Only nodes that have all of the constraints' topology keys count."""
    if not pod.spread:
        return FilterResult.everywhere(view)
    constraints = tuple(dict.fromkeys(pod.spread))
    labelled = view.table.all()
    for constraint in constraints:
        labelled &= view.table.topology(constraint.topology_key).labelled
    included = {
        policies: labelled & _included(view, pod, *policies)
        for policies in {(c.honor_affinity, c.honor_taints) for c in constraints}
    }
    skews = [
        (c, _skew(view, pod, c, included[c.honor_affinity, c.honor_taints])) for c in constraints
    ]
    passes = labelled.copy()
    for constraint, skew in skews:
        passes &= skew <= constraint.max_skew

    requeue_on = _HOPE | _TAINTS if any(c.honor_taints for c in pod.spread) else _HOPE

    def reason(i: int) -> str:
        for constraint, skew in skews:
            key, most = constraint.topology_key, constraint.max_skew
            if key not in view.nodes[i].labels:
                return f"topology spread: the node has no label {key}"
            if skew[i] > most:
                return f"topology spread over {key}: the skew would be {skew[i]}, at most {most}"
        raise IndexError(i)

    return FilterResult(passes, reason, resolvable_by_preemption=labelled, requeue_on=requeue_on)


def _skew(view: ClusterView, pod: Pod, constraint: SpreadConstraint, counted: Bools) -> Ints:
    """By how much each node's domain would exceed the emptiest one with the pod, shape (n,).
    counted: the nodes that play a part, shape (n,)."""
    topology = view.table.topology(constraint.topology_key)
    per_domain = topology.totals(np.where(counted, _matching(view, pod, constraint), 0))
    own = int(selects(constraint.selector, pod.labels))
    return (per_domain + own - _emptiest(topology, counted, per_domain, constraint))[topology.codes]


def _included(view: ClusterView, pod: Pod, honor_affinity: bool, honor_taints: bool) -> Bools:
    """The nodes that count under these policies, shape (n,)."""
    counted = view.table.all()
    if honor_affinity:
        counted &= view.table.wanted_by(pod)
    if honor_taints:
        counted &= view.table.tolerated_by(pod.tolerations)
    return counted


def _emptiest(
    topology: Topology, counted: Bools, per_domain: Ints, constraint: SpreadConstraint
) -> int:
    present = topology.totals(counted) > 0
    if np.count_nonzero(present) < constraint.min_domains:
        return 0
    return int(per_domain[present].min())


def _matching(view: ClusterView, pod: Pod, constraint: SpreadConstraint) -> Ints:
    """The pods on each node that the constraint counts, shape (n,). As in Kubernetes those
    being deleted don't count, and a selector that selects everything counts nothing."""
    kinds, assigned_pods = view.assigned_pods.kinds, view.assigned_pods
    if not constraint.selector or not assigned_pods.rows.shape[1]:
        return np.zeros(len(view), dtype=np.int64)
    counts = kinds.selected(constraint.selector) & kinds.living_in([pod.namespace])
    counts &= ~kinds.terminating()
    return assigned_pods.per_node(counts[assigned_pods.kind], len(view))
