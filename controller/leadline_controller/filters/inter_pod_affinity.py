"""InterPodAffinity: required affinity and anti-affinity between pods, also the anti-affinity of
the pods that are there already.

What Kubernetes' documentation calls a topology domain is the set of nodes with one value of the
term's topology key. Where a namespace's labels are not known, a pod there counts as one to keep
away from, and not as one to be near to.
"""

from collections.abc import Iterable

import numpy as np

from leadline_controller.framework.assigned_pods import PodKind, kind_of
from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.demands import AffinityTerm
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.selectors import selects
from leadline_controller.framework.view import Bools, ClusterView

_HOPE = (
    ClusterEvent.ASSIGNED_PODS
    | ClusterEvent.NAMESPACES
    | ClusterEvent.LABELS
    | ClusterEvent.NODES
    | ClusterEvent.NODE_DELETED
)


def inter_pod_affinity(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes in whose domains the pod finds every pod that it must be near to, none
    that it must be away from, and none that wants to be away from it."""
    if not (pod.affinity or pod.anti_affinity or view.assigned_pods.aversions.topology_keys):
        return FilterResult.everywhere(view)
    near, away, welcome = _near(view, pod), _away(view, pod), _welcome(view, pod)

    def reason(i: int) -> str:
        if not near[i]:
            return "the pod's affinity rules are not met"
        if not away[i]:
            return "the pod's anti-affinity rules are not met"
        return "the anti-affinity rules of pods there are not met"

    return FilterResult(
        near & away & welcome, reason, resolvable_by_preemption=near, requeue_on=_HOPE
    )


def _near(view: ClusterView, pod: Pod) -> Bools:
    if not pod.affinity:
        return view.table.all()
    labels = dict.fromkeys(term.topology_key for term in pod.affinity)
    topologies = [view.table.topology(label) for label in labels]
    labelled, anywhere = view.table.all(), view.table.none()
    for topology in topologies:
        labelled &= topology.labelled
        anywhere |= topology.labelled
    # One pod has to match all of the terms.
    chosen = np.ones(view.assigned_pods.node.size, dtype=np.bool_)
    for term in dict.fromkeys(pod.affinity):
        chosen &= _matching(view, term, unknown=False)
    per_node = view.assigned_pods.per_node(chosen, len(view))
    if not per_node[anywhere].any():
        # The first of a group that wants to be near to its own kind may start anywhere.
        kind = kind_of(pod)
        own = all(_means(view, term, kind, unknown=False) for term in pod.affinity)
        return labelled if own else view.table.none()
    passes = labelled
    for topology in topologies:
        passes &= topology.totals(per_node)[topology.codes] > 0
    return passes


def _away(view: ClusterView, pod: Pod) -> Bools:
    passes = view.table.all()
    for term in dict.fromkeys(pod.anti_affinity):
        topology = view.table.topology(term.topology_key)
        if len(topology):  # else no node is in a domain
            per_node = view.assigned_pods.per_node(_matching(view, term, unknown=True), len(view))
            passes &= topology.totals(per_node)[topology.codes] == 0
    return passes


def _welcome(view: ClusterView, pod: Pod) -> Bools:
    passes = view.table.all()
    kind = kind_of(pod)
    labels = view.namespaces.labels.get(pod.namespace)
    key = kind, None if labels is None else frozenset(labels.items())

    def term_matches(term: AffinityTerm) -> bool:
        return _covers(view, term, kind, unknown=True)

    for label in sorted(view.assigned_pods.aversions.topology_keys):
        topology = view.table.topology(label)
        if not len(topology):
            continue
        having_anti_affinity = view.assigned_pods.having_anti_affinity(label, key, term_matches)
        if having_anti_affinity.any():
            per_node = view.assigned_pods.per_node(having_anti_affinity, len(view))
            passes &= topology.totals(per_node)[topology.codes] == 0
    return passes


def _matching(view: ClusterView, term: AffinityTerm, *, unknown: bool) -> Bools:
    """Which residents the term means, shape (pods,)."""
    kinds, assigned_pods = view.assigned_pods.kinds, view.assigned_pods
    if term.selector is None or not assigned_pods.rows.shape[1]:
        return np.zeros(assigned_pods.node.size, dtype=np.bool_)
    chosen = kinds.selected(term.selector)
    if not _means_everywhere(term):
        chosen &= kinds.living_in(_namespaces(view, term, unknown=unknown))
    return chosen[assigned_pods.kind]


def _namespaces(view: ClusterView, term: AffinityTerm, *, unknown: bool) -> Iterable[str]:
    """The namespaces that the term's own words mean. See _covers."""
    selector = term.namespace_selector
    if selector is None:
        return term.namespaces
    found = term.namespaces.union(view.namespaces.selected(selector))
    if unknown or not selector:
        return found.union(view.assigned_pods.kinds.namespaces - view.namespaces.labels.keys())
    return found


def _means_everywhere(term: AffinityTerm) -> bool:
    """To kube-scheduler (1.36) the namespace selector of a term of the pod to be placed, if it
    takes a namespace without any labels, means every namespace there is; a resident's does not."""
    return term.namespace_selector is not None and selects(term.namespace_selector, {})


def _means(view: ClusterView, term: AffinityTerm, kind: PodKind, *, unknown: bool) -> bool:
    """Whether a term of the pod to be placed means pods of this kind."""
    if _means_everywhere(term):
        return selects(term.selector, kind.labels)
    return _covers(view, term, kind, unknown=unknown)


def _covers(view: ClusterView, term: AffinityTerm, kind: PodKind, *, unknown: bool) -> bool:
    """Whether the term's own words mean pods of this kind. unknown: what to take it for where that
    depends on a namespace's labels and they are not known."""
    if kind.namespace not in term.namespaces:
        labels = view.namespaces.labels.get(kind.namespace)
        if term.namespace_selector is None:
            return False
        if term.namespace_selector and labels is None and not unknown:
            return False
        if labels is not None and not selects(term.namespace_selector, labels):
            return False
    return selects(term.selector, kind.labels)
