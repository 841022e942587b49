"""PodTopologySpread: constraints with ScheduleAnyway, and kube-scheduler's default ones."""

from math import log

import numpy as np

from leadline_controller.framework.model import Pod, SpreadConstraint
from leadline_controller.framework.preferences import MOST, PreferenceScores
from leadline_controller.framework.selectors import Selector
from leadline_controller.framework.spreading import included_nodes, matching_pods
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints

_HOSTNAME = "kubernetes.io/hostname"
# kube-scheduler's system default constraints: topology key, maxSkew.
_DEFAULTS = ((_HOSTNAME, 3), ("topology.kubernetes.io/zone", 5))


def pod_topology_spread(view: ClusterView, pod: Pod, candidates: Ints) -> PreferenceScores | None:
    """The number of matching pods in the node's domains, each weighted by the logarithm of how many
    domains there are; the fewest are normalized to 100.

    A pod without any constraints of its own has the default ones, with the selectors of its owner
    and its Services. A node that lacks a topology key of the pod's own constraints gets 0.
    """
    constraints, has_own = pod.preferences.spread, bool(pod.spread or pod.preferences.spread)
    if not has_own:
        peers = view.pod_selectors.of(pod)
        constraints = tuple(SpreadConstraint(key, skew, peers) for key, skew in _DEFAULTS if peers)
    if not constraints:
        return None
    labelled = view.table.all()
    for constraint in constraints if has_own else ():
        labelled &= view.table.topology(constraint.topology_key).labelled
    # Policies that a pod may name are four, its constraints many.
    counted = {
        policies: labelled & included_nodes(view, pod, *policies)
        for policies in {
            (each.honor_affinity, each.honor_taints)
            for each in constraints
            if each.topology_key != _HOSTNAME
        }
    }
    scored = labelled[candidates]
    score = np.zeros(candidates.size)
    pods: dict[Selector | None, Ints] = {}  # the default constraints share theirs
    for constraint in constraints:
        if (selector := constraint.selector) not in pods:
            pods[selector] = matching_pods(view, pod, selector)
        nodes = counted.get((constraint.honor_affinity, constraint.honor_taints), labelled)
        score += _score(view, constraint, pods[selector], labelled, nodes, candidates)
    raw = np.where(scored, _rounded(score), 0)
    return PreferenceScores(raw, _normalized(raw, scored))


def _score(
    view: ClusterView,
    constraint: SpreadConstraint,
    pods: Ints,
    labelled: Bools,
    counted: Bools,
    candidates: Ints,
) -> Floats:
    """What one constraint adds to the score of each candidate. pods: how many of each node match,
    shape (n,). labelled, counted: the nodes whose domains and whose pods count, shape (n,)."""
    topology = view.table.topology(constraint.topology_key)
    scored = candidates[labelled[candidates]]
    if constraint.topology_key == _HOSTNAME:
        size, count = scored.size, pods
    else:
        codes = topology.codes_with_empty()
        size = int(np.count_nonzero(np.bincount(codes[scored])))
        count = np.bincount(codes, np.where(counted, pods, 0))[codes]
    weighted = count[candidates] * log(size + 2) + (constraint.max_skew - 1)
    return np.where(topology.labelled[candidates], weighted, 0.0)


def _rounded(score: Floats) -> Ints:
    """To whole numbers, halves up, as Go's math.Round does with numbers from 0."""
    whole = np.trunc(score)
    return (whole + (score - whole >= 0.5)).astype(np.int64)


def _normalized(raw: Ints, scored: Bools) -> Ints:
    most = raw.max()
    if not most or not scored.any():
        return np.where(scored, MOST, 0)
    return np.where(scored, MOST * (most + raw[scored].min() - raw) // most, 0)
