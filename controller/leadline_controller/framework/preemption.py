"""Which pods must go so that a pod of higher priority fits: the choice of kube-scheduler's plugin
DefaultPreemption (Kubernetes 1.36), as pure arithmetic over a cluster view.

On each node that might help, all pods of lower priority are taken away. Where the pod then fits,
they come back one by one, as long as it still fits: first those whose disruption budgets do not
allow their eviction, and of these the most important ones first. Who cannot come back is a victim.
The plugin then compares the nodes by their victims.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from leadline_controller.framework.cluster_objects import DisruptionBudget
from leadline_controller.framework.cycle import (
    Filter,
    FilterResult,
    Rule,
    filtered,
    helped_by_preemption,
)
from leadline_controller.framework.model import Pod
from leadline_controller.framework.selectors import selects
from leadline_controller.framework.view import Bools, ClusterView

# kube-scheduler's minCandidateNodesAbsolute and minCandidateNodesPercentage.
_LEAST_CANDIDATES, _LEAST_SHARE = 100, 0.1
# So that more victims of negative priority are never better than fewer.
_PRIORITY_OFFSET = 2**31

Placed = tuple[Pod, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that the pod fits without the victims."""

    node: int  # its index
    victims: tuple[Pod, ...]  # the most important first
    violations: int  # how many of them their disruption budgets do not let go


def find_candidates(
    view: ClusterView,
    pod: Pod,
    rule: Rule,
    results: Mapping[str, FilterResult],
    assigned: Iterable[Placed],
    budgets: Sequence[DisruptionBudget],
    first: int | None = None,
) -> list[Candidate]:
    """The nodes on which victims make room for the pod.

    results: of the rule's filters for this pod and view. assigned: the pods on the view's nodes.
    Pods that the view counts and that are not among them, such as reserved room, are never
    victims. Where to begin is drawn, if the nodes are so many that not all are looked at.
    first: the node to begin with, where victims of an earlier try may have gone already.
    """
    helped = helped_by_preemption(view, pod, results.values())
    lower: dict[int, list[Pod]] = {}
    for each, node in assigned:
        if helped[node] and each.priority < pod.priority:
            lower.setdefault(node, []).append(each)
    search = _Search(view, pod, rule.filters, lower, budgets)
    nodes = sorted(lower)
    enough = max(_LEAST_CANDIDATES, int(len(view) * _LEAST_SHARE))
    begin = rule.random.randrange(len(nodes)) if len(nodes) > enough else 0
    in_turn = [*nodes[begin:], *nodes[:begin]]
    if first in lower:
        in_turn.remove(first)
        in_turn.insert(0, first)
    found: list[Candidate] = []
    for at in range(0, len(in_turn), enough):
        possible, local = search.possible(in_turn[at : at + enough])
        for together in [possible] if local else [[node] for node in possible]:
            found += search.among(together)
            if len(found) >= enough and any(each.violations == 0 for each in found):
                return found
    return found


def best_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that tie for the first place by the plugin's rules: the fewest victims against
    their budgets; the lowest priority of the most important victim; the lowest sum of priorities;
    the fewest victims; the most important victims that started last."""
    ranks = [_rank(each) for each in candidates]
    least = min(ranks, default=None)
    return [each for each, rank in zip(candidates, ranks, strict=True) if rank == least]


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for victims."""

    view: ClusterView
    pod: Pod
    filters: Mapping[str, Filter]
    lower: Mapping[int, list[Pod]]  # node -> its pods of lower priority
    budgets: Sequence[DisruptionBudget]

    def possible(self, nodes: Sequence[int]) -> tuple[list[int], bool]:
        """Those that pass each local filter if their pods of lower priority are all gone, and
        whether all filters are local, so that the nodes can be looked at together."""
        results = filtered(self._without(nodes), self.pod, self.filters).values()
        # A filter that preemption can't help looks at no pods.
        local = [each for each in results if each.is_local or each.resolvable_by_preemption is None]
        passes = self.view.table.all()
        for each in local:
            passes &= each.passes
        return [node for node in nodes if passes[node]], len(local) == len(results)

    def among(self, nodes: Sequence[int]) -> list[Candidate]:
        """The candidates among these nodes, whose pods must not matter to each other's results."""
        view = self._without(nodes)
        passes = self._passes(view)
        violating: dict[int, list[Pod]] = {}
        others: dict[int, list[Pod]] = {}
        for node in nodes:
            if passes[node]:
                pods = sorted(self.lower[node], key=_importance)
                split = _split_by_budgets(pods, self.budgets)
                violating[node], others[node] = split
        victims: dict[int, list[Pod]] = {node: [] for node in violating}
        for tried in zip_longest(*((*violating[node], *others[node]) for node in victims)):
            back = [(each, node) for node, each in zip(victims, tried, strict=True) if each]
            more = view.with_assigned(back)
            passes = self._passes(more)
            for each, node in back:
                if not passes[node]:
                    victims[node].append(each)
            stay = [placed for placed in back if passes[placed[1]]]
            if len(stay) == len(back):
                view = more
            elif stay:
                view = view.with_assigned(stay)
        return [
            Candidate(
                node,
                tuple(sorted(pods, key=_importance)),
                sum(each in violating[node] for each in pods),
            )
            for node, pods in victims.items()
            if pods
        ]

    def _without(self, nodes: Iterable[int]) -> ClusterView:
        """The view without the pods of lower priority on these nodes."""
        return self.view.without_placements(
            [(each, node) for node in nodes for each in self.lower[node]]
        )

    def _passes(self, view: ClusterView) -> Bools:
        """The nodes that the pod fits, shape (n,)."""
        passes = view.table.all()
        for result in filtered(view, self.pod, self.filters).values():
            passes &= result.passes
        return passes


def _importance(pod: Pod) -> tuple[int, float]:
    """The smaller, the more important: the higher priority, then the longer running one."""
    return -pod.priority, _started_s(pod)


def _started_s(pod: Pod) -> float:
    return np.inf if pod.started_s is None else pod.started_s


def _split_by_budgets(
    pods: Iterable[Pod], budgets: Sequence[DisruptionBudget]
) -> tuple[list[Pod], list[Pod]]:
    """The pods whose eviction would be against a budget if those before them are evicted, and the
    others. As in kube-scheduler, neither an empty selector nor a pod without labels matches."""
    allowed = [budget.allowed for budget in budgets]
    violating, others = list[Pod](), list[Pod]()
    for pod in pods:
        is_violating = False
        for number, budget in enumerate(budgets):
            if (
                pod.labels
                and budget.selector
                and budget.namespace == pod.namespace
                and pod.name not in budget.disrupted
                and selects(budget.selector, pod.labels)
            ):
                allowed[number] -= 1
                is_violating |= allowed[number] < 0
        (violating if is_violating else others).append(pod)
    return violating, others


def _rank(candidate: Candidate) -> tuple[float, ...]:
    """The smaller, the better."""
    victims, highest = candidate.victims, candidate.victims[0].priority
    running_since_s = min(_started_s(each) for each in victims if each.priority == highest)
    return (
        candidate.violations,
        highest,
        sum(each.priority + _PRIORITY_OFFSET for each in victims),
        len(victims),
        -running_since_s,
    )
