"""PodTopologySpread: the constraints with whenUnsatisfiable: DoNotSchedule."""

import numpy as np

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod, SpreadConstraint
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.selectors import selects
from leadline_controller.framework.spreading import included_nodes, matching_pods
from leadline_controller.framework.view import Bools, ClusterView, Ints

_REQUEUE_ON = (
    ClusterEvent.ASSIGNED_PODS
    | ClusterEvent.LABELS
    | ClusterEvent.NODES
    | ClusterEvent.NODE_DELETED
)
_REQUEUE_ON_TAINTS = _REQUEUE_ON | ClusterEvent.TAINTED | ClusterEvent.UNTAINTED


def pod_topology_spread(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose domain, with the pod, exceeds the global minimum by at most max_skew.
    Only nodes with the topology keys of all constraints count."""
    if not pod.spread:
        return FilterResult.all_pass(view)
    constraints = tuple(dict.fromkeys(pod.spread))
    labelled = view.table.all()
    for constraint in constraints:
        labelled &= view.table.topology(constraint.topology_key).labelled
    counted = {
        policies: labelled & included_nodes(view, pod, *policies)
        for policies in {(c.honor_affinity, c.honor_taints) for c in constraints}
    }
    skews = [
        (c, _skew(view, pod, c, counted[c.honor_affinity, c.honor_taints])) for c in constraints
    ]
    passes = labelled.copy()
    for constraint, skew in skews:
        passes &= skew <= constraint.max_skew
    taints_matter = any(constraint.honor_taints for constraint in constraints)

    def reason(i: int) -> str:
        for constraint, skew in skews:
            key, most = constraint.topology_key, constraint.max_skew
            if key not in view.nodes[i].labels:
                return f"topology spread: the node has no label {key}"
            if skew[i] > most:
                return f"topology spread over {key}: the skew would be {skew[i]}, at most {most}"
        raise IndexError(i)

    return FilterResult(
        passes,
        reason,
        resolvable_by_preemption=labelled,
        requeue_on=_REQUEUE_ON_TAINTS if taints_matter else _REQUEUE_ON,
    )


def _skew(view: ClusterView, pod: Pod, constraint: SpreadConstraint, counted: Bools) -> Ints:
    """The skew of each node's domain with the pod on that node, shape (n,). counted: the nodes
    whose pods and domains count, shape (n,)."""
    topology = view.table.topology(constraint.topology_key)
    matching = matching_pods(view, pod, constraint.selector)
    per_domain = topology.totals(np.where(counted, matching, 0))
    domains = topology.totals(counted) > 0
    enough_domains = np.count_nonzero(domains) >= constraint.min_domains
    global_minimum = int(per_domain[domains].min()) if enough_domains else 0
    matches_itself = int(selects(constraint.selector, pod.labels))
    return (per_domain + matches_itself - global_minimum)[topology.codes]
