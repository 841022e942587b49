"""InterPodAffinity: preferred affinity and anti-affinity between pods, those of assigned pods
included."""

from functools import partial

import numpy as np

from leadline_controller.framework.affinity_terms import matches, matching
from leadline_controller.framework.assigned_pods import PodKind, kind_of
from leadline_controller.framework.model import Pod, WeightedTerm
from leadline_controller.framework.preferences import MOST, PreferenceScores
from leadline_controller.framework.view import ClusterView, Floats, Ints


def inter_pod_affinity(view: ClusterView, pod: Pod, candidates: Ints) -> PreferenceScores | None:
    """The sum of the weights of all terms that match between the pod and the pods in the node's
    domains; the least sum is normalized to 0, the largest to 100.

    The terms are the pod's own preferred ones, and of assigned pods the preferred ones and, with
    weight 1, the required affinity.
    """
    by_topology = _of_assigned_pods(view, pod)
    for each in pod.preferences.pods:
        matched = view.assigned_pods.per_node(matching(view, each.term, unknown=False), len(view))
        weights = by_topology.setdefault(each.topology_key, np.zeros(len(view)))
        weights += each.weight * matched
    raw = np.zeros(candidates.size, dtype=np.int64)
    for label, weights in by_topology.items():
        topology = view.table.topology(label)
        raw += topology.totals(weights)[topology.codes[candidates]]
    if not by_topology or not raw.any():
        return None
    least, most = raw.min(), raw.max()
    share = (raw - least) / max(most - least, 1)
    return PreferenceScores(raw, (MOST * share).astype(np.int64))


def _of_assigned_pods(view: ClusterView, pod: Pod) -> dict[str, Floats]:
    """By topology key, the weights of the assigned pods' terms that match the pod, summed up on
    the node of each, shape (n,)."""
    found: dict[str, Floats] = {}
    assigned, kind = view.assigned_pods, kind_of(pod)
    labels = view.namespaces.labels.get(pod.namespace)
    key = kind, None if labels is None else frozenset(labels.items())
    weight = partial(_weight, view, kind)
    for label in sorted(assigned.attractions.topology_keys):
        if len(view.table.topology(label)):
            weights = assigned.attraction(label, key, weight)
            if weights is not None:
                found[label] = np.bincount(assigned.node, weights, len(view)).astype(float)
    return found


def _weight(view: ClusterView, kind: PodKind, each: WeightedTerm) -> int:
    return each.weight if matches(view, each.term, kind=kind, unknown=False) else 0
