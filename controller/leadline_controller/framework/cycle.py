"""One decision: filter, score, break ties, explain. Pure.

Filters and strategies work on whole columns; what they say of a single node is made only
when somebody asks, so that deciding over thousands of nodes stays cheap.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from random import Random
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.normalize import priorities
from leadline_controller.framework.queueing_hints import ANYTHING, NOTHING, ClusterEvent
from leadline_controller.framework.storage import VolumePlan
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.framework.volume_binding import RefusedClaimError, VolumeSearch

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True, eq=False)
class FilterResult:
    """What one filter says. passes: shape (n,). reason: why the node with this index does
    not pass, without the filter's name. nowhere: why the pod can be on no node at all, where
    that has nothing to do with the nodes. evictable: shape (n,), where it might pass if pods
    were pushed out; None is nowhere. hope: the news that may turn a node's refusal."""

    passes: Bools
    reason: Callable[[int], str]
    unresolvable: str | None = None
    resolvable_by_preemption: Bools | None = None
    requeue_on: ClusterEvent = ANYTHING

    @property
    def passes_with_preemption(self) -> Bools:
        """Where it passes, or might if pods were pushed out, shape (n,)."""
        return (
            self.passes
            if self.resolvable_by_preemption is None
            else self.passes | self.resolvable_by_preemption
        )

    @classmethod
    def everywhere(cls, view: ClusterView) -> "FilterResult":
        """The filter has nothing against any node."""
        return cls(view.table.mask("all", lambda _: True), _no_reason)

    @classmethod
    def refused(
        cls, view: ClusterView, why: str, requeue_on: ClusterEvent = ANYTHING
    ) -> "FilterResult":
        """The pod can be on no node, whatever the nodes are like."""
        return cls(view.table.none(), lambda _: why, why, requeue_on=requeue_on)


def _no_reason(_: int) -> str:
    return ""


Filter = Callable[[ClusterView, Pod], FilterResult]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What a strategy makes of the candidates; every column has shape (len(candidates),).

    total: finite, or NaN where the strategy can't tell. parts: what the total is made of.
    finalists: positions in `candidates` between which the strategy sees no difference, one
    at least. why: one sentence on the candidate at this position.
    """

    candidates: Ints
    total: Floats
    finalists: Ints
    why: Callable[[int], str]
    parts: Mapping[str, Floats] = field(default_factory=lambda: MappingProxyType({}))


class Strategy(Protocol):
    """A paper's rule, with its options set.

    name: as in STRATEGIES. better: which way its totals are read. paper: where the rule is
    from. needs: what should be measured for it (columns of NodeMetrics, or "rtt_ms" of
    links); nothing else that is measured plays a part.
    """

    name: ClassVar[str]
    better: ClassVar[Better]
    paper: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Score the nodes with these indexes; there is at least one."""
        ...

    def charge(self, view: ClusterView, pod: Pod, node: int) -> Mapping[str, int]:
        """What a run takes off the node for this pod: resource -> base units."""
        ...


@runtime_checkable
class Selective(Protocol):
    """A strategy whose paper also says which nodes are out of the question."""

    def filters(self) -> Mapping[str, Filter]:
        """Its filters by name, to run beside FILTERS."""
        ...


def filters_with(filters: Mapping[str, Filter], strategy: Strategy) -> Mapping[str, Filter]:
    """These, and those that the strategy itself brings."""
    return {**filters, **strategy.filters()} if isinstance(strategy, Selective) else filters


def best(total: Floats, better: Better) -> Ints:
    """Positions of the best totals; all positions when every total is NaN."""
    known = ~np.isnan(total)
    if not known.any():
        return np.arange(total.size)
    extreme = np.nanmin(total) if better == "lower" else np.nanmax(total)
    return np.flatnonzero(total == extreme)


@dataclass(frozen=True, eq=False)
class Decision:
    """Where a pod goes and why; node is None when it goes nowhere. needs: the strategy's. hope:
    the news after which a pod that goes nowhere should be tried again."""

    pod: Pod
    node: str | None
    why: str
    strategy: str
    better: Better
    _view: ClusterView | None = field(default=None, repr=False)
    _verdicts: Mapping[str, FilterResult] = field(default_factory=dict, repr=False)
    _scores: Scores | None = field(default=None, repr=False)
    needs: tuple[str, ...] = ()
    requeue_on: ClusterEvent = ANYTHING

    @property
    def has_basis(self) -> bool:
        """Whether it can still tell of scores and rejections."""
        return self._view is not None

    def basis(self) -> tuple[ClusterView | None, Mapping[str, FilterResult], Scores | None]:
        """What it was made from; None where it did not get that far or that is gone."""
        return self._view, self._verdicts, self._scores

    def without_basis(self) -> "Decision":
        """The same decision in a few bytes: it can't tell of scores and rejections any more."""
        return Decision(self.pod, self.node, self.why, self.strategy, self.better)

    def volumes(self) -> VolumePlan | None:
        """What has to be done for the pod's claims before it is bound; None if nothing is."""
        if self._view is None or self.node is None or not self.pod.claims:
            return None
        try:
            plan = VolumeSearch(self._view, self.pod).plan(self._view.table.index[self.node])
        except RefusedClaimError:  # decided without the filter that would have said so
            return None
        return plan or None

    def rejected(self) -> dict[str, list[str]]:
        """Node name -> "Filter: reason" of each filter that said no."""
        if self._view is None:
            return {}
        rejected: dict[str, list[str]] = {}
        for name, verdict in self._verdicts.items():
            for i in np.flatnonzero(~verdict.passes):
                node = self._view.table.names[i]
                rejected.setdefault(node, []).append(f"{name}: {verdict.reason(int(i))}")
        return rejected

    def scores(self) -> dict[str, tuple[float | None, dict[str, float]]]:
        """Node name -> (total, parts); what the strategy could not tell is None or missing."""
        if self._view is None or self._scores is None:
            return {}
        names, scores = self._view.table.names, self._scores
        return {
            names[node]: (
                None if np.isnan(scores.total[at]) else float(scores.total[at]),
                {
                    part: float(column[at])
                    for part, column in scores.parts.items()
                    if not np.isnan(column[at])
                },
            )
            for at, node in enumerate(scores.candidates)
        }

    def priorities(self) -> dict[str, int]:
        """Node name -> 0 to 10, 10 for the strategy's choice, of the nodes that passed; see
        framework/normalize.py."""
        if self._view is None or self._scores is None:
            return {}
        names, scores = self._view.table.names, self._scores
        ranks = priorities(scores.total, scores.finalists, lower_is_better=self.better == "lower")
        return {
            names[node]: rank
            for node, rank in zip(scores.candidates.tolist(), ranks.tolist(), strict=True)
        }


def decide(
    view: ClusterView,
    pod: Pod,
    filters: Mapping[str, Filter],
    strategy: Strategy,
    random: Random,
) -> Decision:
    """Choose a node for one pod. The strategy's own filters, if it has any, need not be among
    `filters`. Ties are broken by `random`, so a seed repeats them."""
    problem = obstacle(view, pod)
    if problem is not None:
        # A node may be the one that is asked for; all else is up to the pod.
        requeue_on = NOTHING if pod.problem or pod.gated else ClusterEvent.NODES
        return Decision(pod, None, problem, strategy.name, strategy.better, requeue_on=requeue_on)
    tests = filters_with(filters, strategy)
    verdicts = {name: test(view, pod) for name, test in tests.items()}
    candidates = candidates_of(view, verdicts)
    if not candidates.size:
        why = _nowhere(len(view), verdicts) + _no_preemption(view, pod, verdicts.values())
        return Decision(
            *(pod, None, why, strategy.name, strategy.better, view, verdicts),
            requeue_on=_hope(verdicts),
        )
    scores = strategy.score(view, pod, candidates)
    at = int(scores.finalists[random.randrange(scores.finalists.size)])
    why = scores.why(at)
    if scores.finalists.size > 1:
        why += f"; {scores.finalists.size} nodes tied, chosen at random"
    node = view.table.names[candidates[at]]
    return Decision(
        pod, node, why, strategy.name, strategy.better, view, verdicts, scores, strategy.needs
    )


def candidates_of(view: ClusterView, verdicts: Mapping[str, FilterResult]) -> Ints:
    """The nodes that every filter passes, by index."""
    feasible = view.table.all()
    for verdict in verdicts.values():
        feasible &= verdict.passes
    return np.flatnonzero(feasible)


def decide_in_turn(
    view: ClusterView,
    pods: Iterable[Pod],
    filters: Mapping[str, Filter],
    strategy: Strategy,
    random: Random,
) -> Iterator[tuple[Decision, ClusterView]]:
    """Place pods one after the other, each seeing what the ones before it took. Each decision
    comes with the view after it."""
    for pod in pods:
        decision = decide(view, pod, filters, strategy, random)
        view = after(view, decision, strategy)
        yield decision, view


def after(view: ClusterView, decision: Decision, strategy: Strategy) -> ClusterView:
    """The view once the decision is carried out; the same where the pod goes nowhere."""
    if decision.node is None:
        return view
    node = view.table.index[decision.node]
    charge = strategy.charge(view, decision.pod, node)
    return view.with_placement(decision.pod, node, charge, decision.volumes())


def obstacle(view: ClusterView, pod: Pod) -> str | None:
    """Why the pod can't be placed whatever the nodes are like, as one sentence."""
    return pod.problem or _held(pod) or _unknown_user(view, pod)


def _held(pod: Pod) -> str | None:
    return "the pod's scheduling gates hold it back" if pod.gated else None


def _unknown_user(view: ClusterView, pod: Pod) -> str | None:
    user_node = pod.hints.user_node
    if user_node is None or user_node in view.table.index:
        return None
    return f"annotation leadline.dev/user-node: the cluster has no node {user_node[:80]!r}"


def _nowhere(count: int, verdicts: Mapping[str, FilterResult]) -> str:
    """The scheduler's usual sentence: how many nodes fail for which filter."""
    if not count:
        return "no nodes are known"
    whole = [f"{name}: {v.unresolvable}" for name, v in verdicts.items() if v.unresolvable]
    if whole:
        return f"0 of {count} nodes fit: {'; '.join(whole)}"
    failing = {name: int(np.count_nonzero(~v.passes)) for name, v in verdicts.items()}
    told = ", ".join(f"{number} {name}" for name, number in failing.items() if number)
    return f"0 of {count} nodes fit: {told}"


def _hope(verdicts: Mapping[str, FilterResult]) -> ClusterEvent:
    """What may help: with a filter for which the nodes don't matter, nothing about nodes."""
    refusing = [v for v in verdicts.values() if v.unresolvable]
    if not refusing:
        refusing = [v for v in verdicts.values() if not v.passes.all()]
    return (
        reduce(or_, (v.requeue_on for v in refusing), NOTHING) if refusing else ClusterEvent.NODES
    )


def _no_preemption(view: ClusterView, pod: Pod, verdicts: Iterable[FilterResult]) -> str:
    """What to say where kube-scheduler might push pods of lower priority out."""
    lower = view.assigned_pods.priority < pod.priority
    if not pod.preempts or not lower.any():
        return ""
    curable = view.assigned_pods.per_node(lower, len(view)) > 0
    for verdict in verdicts:
        curable &= verdict.passes_with_preemption
    if not curable.any():
        return ""
    count = np.count_nonzero(curable)
    return f"; {count} of them run pods of lower priority, but Leadline does not preempt"
