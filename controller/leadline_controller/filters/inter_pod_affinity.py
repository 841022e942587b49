"""InterPodAffinity: required affinity and anti-affinity between pods, with the anti-affinity of
the pods that are already assigned.

A topology domain is the set of nodes with the same value of the term's topology key. A pod in a
namespace whose labels are unknown matches anti-affinity terms, but not affinity terms.
"""

from functools import partial

import numpy as np

from leadline_controller.framework.affinity_terms import matches, matching, selects_all_namespaces
from leadline_controller.framework.assigned_pods import kind_of
from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.selectors import selects
from leadline_controller.framework.view import Bools, ClusterView

_REQUEUE_ON = (
    ClusterEvent.ASSIGNED_PODS
    | ClusterEvent.NAMESPACES
    | ClusterEvent.LABELS
    | ClusterEvent.NODES
    | ClusterEvent.NODE_DELETED
)


def inter_pod_affinity(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose domains satisfy the pod's affinity and anti-affinity, and the
    anti-affinity of the pods there."""
    if not (pod.affinity or pod.anti_affinity or view.assigned_pods.anti_affinities.topology_keys):
        return FilterResult.all_pass(view)
    affinity, anti_affinity = _affinity(view, pod), _anti_affinity(view, pod)
    existing_anti_affinity = _existing_anti_affinity(view, pod)

    def reason(i: int) -> str:
        if not affinity[i]:
            return "the pod's affinity rules are not met"
        if not anti_affinity[i]:
            return "the pod's anti-affinity rules are not met"
        return "the anti-affinity rules of pods there are not met"

    return FilterResult(
        affinity & anti_affinity & existing_anti_affinity,
        reason,
        resolvable_by_preemption=affinity,
        requeue_on=_REQUEUE_ON,
    )


def _affinity(view: ClusterView, pod: Pod) -> Bools:
    if not pod.affinity:
        return view.table.all()
    labels = dict.fromkeys(term.topology_key for term in pod.affinity)
    topologies = [view.table.topology(label) for label in labels]
    labelled, anywhere = view.table.all(), view.table.none()
    for topology in topologies:
        labelled &= topology.labelled
        anywhere |= topology.labelled
    # An assigned pod must match all of the terms.
    chosen = np.ones(view.assigned_pods.node.size, dtype=np.bool_)
    for term in dict.fromkeys(pod.affinity):
        chosen &= matching(view, term, unknown=False)
    per_node = view.assigned_pods.per_node(chosen, len(view))
    if not per_node[anywhere].any():
        # The first pod of a group with affinity to itself may be anywhere.
        kind = kind_of(pod)
        matches_itself = all(
            selects(term.selector, kind.labels)
            if selects_all_namespaces(term)
            else matches(view, term, kind=kind, unknown=False)
            for term in pod.affinity
        )
        return labelled if matches_itself else view.table.none()
    passes = labelled
    for topology in topologies:
        passes &= topology.totals(per_node)[topology.codes] > 0
    return passes


def _anti_affinity(view: ClusterView, pod: Pod) -> Bools:
    passes = view.table.all()
    for term in dict.fromkeys(pod.anti_affinity):
        topology = view.table.topology(term.topology_key)
        if len(topology):  # else no node is in a domain
            per_node = view.assigned_pods.per_node(matching(view, term, unknown=True), len(view))
            passes &= topology.totals(per_node)[topology.codes] == 0
    return passes


def _existing_anti_affinity(view: ClusterView, pod: Pod) -> Bools:
    passes = view.table.all()
    kind = kind_of(pod)
    labels = view.namespaces.labels.get(pod.namespace)
    key = kind, None if labels is None else frozenset(labels.items())
    test = partial(matches, view, kind=kind, unknown=True)
    for label in sorted(view.assigned_pods.anti_affinities.topology_keys):
        topology = view.table.topology(label)
        if not len(topology):
            continue
        having_anti_affinity = view.assigned_pods.having_anti_affinity(label, key, test)
        if having_anti_affinity.any():
            per_node = view.assigned_pods.per_node(having_anti_affinity, len(view))
            passes &= topology.totals(per_node)[topology.codes] == 0
    return passes
