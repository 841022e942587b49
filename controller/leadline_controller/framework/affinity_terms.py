"""Which pods match a term of pod affinity or anti-affinity, required or preferred."""

from collections.abc import Iterable

import numpy as np

from leadline_controller.framework.assigned_pods import PodKind
from leadline_controller.framework.model import AffinityTerm
from leadline_controller.framework.selectors import selects
from leadline_controller.framework.view import Bools, ClusterView


def matching(view: ClusterView, term: AffinityTerm, *, unknown: bool) -> Bools:
    """The assigned pods that match a term of the incoming pod, shape (pods,). unknown: see
    `matches`."""
    kinds, assigned_pods = view.assigned_pods.kinds, view.assigned_pods
    if term.selector is None or not assigned_pods.rows.shape[1]:
        return np.zeros(assigned_pods.node.size, dtype=np.bool_)
    chosen = kinds.by_label.selected(term.selector)
    if not selects_all_namespaces(term):
        chosen &= kinds.in_namespaces(_namespaces(view, term, unknown=unknown))
    return chosen[assigned_pods.kind]


def _namespaces(view: ClusterView, term: AffinityTerm, *, unknown: bool) -> Iterable[str]:
    """The namespaces of the term and its namespace selector. unknown: see `matches`."""
    selector = term.namespace_selector
    if selector is None:
        return term.namespaces
    found = term.namespaces.union(view.namespaces.selected(selector))
    if unknown or not selector:
        return found.union(
            view.assigned_pods.kinds.by_namespace.keys() - view.namespaces.labels.keys()
        )
    return found


def selects_all_namespaces(term: AffinityTerm) -> bool:
    """kube-scheduler (1.36) lets an incoming pod's term select every namespace if its namespace
    selector matches a namespace without labels; this does not hold for assigned pods."""
    return term.namespace_selector is not None and selects(term.namespace_selector, {})


def matches(view: ClusterView, term: AffinityTerm, *, kind: PodKind, unknown: bool) -> bool:
    """Whether the term matches pods of this kind. unknown: the answer if it depends on the labels
    of a namespace and they are unknown."""
    if kind.namespace not in term.namespaces:
        labels = view.namespaces.labels.get(kind.namespace)
        if term.namespace_selector is None:
            return False
        if term.namespace_selector and labels is None and not unknown:
            return False
        if labels is not None and not selects(term.namespace_selector, labels):
            return False
    return selects(term.selector, kind.labels)
