"""One scheduling cycle: filter the nodes, score the candidates, break ties, explain. Pure.

Filters and strategies work on whole columns. The reasons for a single node are made only on
request, so that a decision over thousands of nodes stays cheap.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from random import Random
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np

from leadline_controller.framework.cluster_objects import VolumePlan
from leadline_controller.framework.model import Pod
from leadline_controller.framework.peers import absent_peers
from leadline_controller.framework.queueing_hints import ANY_EVENT, NO_EVENT, ClusterEvent
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints, NodeTable
from leadline_controller.framework.volume_binding import UnresolvableClaimError, VolumeBinder

Better = Literal["lower", "higher"]
# k8s.io/kube-scheduler/extender/v1: MinExtenderPriority, MaxExtenderPriority.
LOWEST, HIGHEST = 0, 10


@dataclass(frozen=True, slots=True, eq=False)
class FilterResult:
    """The result of one filter for one pod."""

    passes: Bools  # the nodes that pass, shape (n,)
    # Why the node with this index does not pass, without the filter's name.
    reason: Callable[[int], str]
    # Why no node can pass, if the reason lies with the pod and not with the nodes.
    unresolvable: str | None = None
    # The nodes that might pass after preemption, shape (n,); None means none.
    resolvable_by_preemption: Bools | None = None
    requeue_on: ClusterEvent = ANY_EVENT  # the cluster events that can make a node pass
    # What is not certain about the node with this index that passes, "" for nothing; None if that
    # is nothing for any node.
    caveat: Callable[[int], str] | None = None
    is_local: bool = False  # whether the pods on other nodes play no part in a node's result

    @property
    def passes_with_preemption(self) -> Bools:
        """The nodes that pass, or might pass after preemption, shape (n,)."""
        more = self.resolvable_by_preemption
        return self.passes if more is None else self.passes | more

    @classmethod
    def all_pass(cls, view: ClusterView) -> "FilterResult":
        """All nodes pass. Most filters say so about most pods, so it is made once."""
        shared = _ALL_PASS.get(view.table)
        if shared is None:
            everyone = view.table.mask("all", lambda _: True)
            shared = _ALL_PASS[view.table] = cls(everyone, lambda _: "")
        return shared

    @classmethod
    def none_pass(
        cls, view: ClusterView, why: str, requeue_on: ClusterEvent = ANY_EVENT
    ) -> "FilterResult":
        """No node can pass, whatever the nodes are like; `why` is the reason."""
        return cls(view.table.none(), lambda _: why, why, requeue_on=requeue_on)


_ALL_PASS: WeakKeyDictionary[NodeTable, FilterResult] = WeakKeyDictionary()
Filter = Callable[[ClusterView, Pod], FilterResult]


@dataclass(frozen=True, slots=True, eq=False)
class Leeway:
    """Which nodes are so nearly equal to a strategy that a pod's preferences may decide."""

    # Totals that differ by no more are nearly equal, in the total's unit.
    tolerance: float = 0.0
    # The finalists if only these positions were candidates; None stands for the best totals.
    among: Callable[[Ints], Ints] | None = None
    # The total from which the tolerance counts; None for each finalist's.
    base: float | None = None
    # The candidates among which the strategy chooses at all, shape (len(candidates),); None: all.
    rivals: Bools | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """A strategy's scores of the candidates; every column has shape (len(candidates),)."""

    candidates: Ints
    total: Floats  # finite, or NaN if the strategy cannot score the node
    finalists: Ints  # positions in `candidates` that tie for the first place, at least one
    why: Callable[[int], str]  # one sentence about the candidate at this position
    # The terms of the total.
    parts: Mapping[str, Floats] = field(default_factory=lambda: MappingProxyType({}))
    leeway: Leeway = Leeway()  # what preferences may decide


# The scores with the finalists that the pod's preferences leave; framework/preferences.py has one.
Prefer = Callable[[ClusterView, Pod, Scores, Better], Scores]


class Strategy(Protocol):
    """A paper's rule for choosing a node, with its options set."""

    __slots__ = ()

    name: ClassVar[str]  # its key in STRATEGIES
    better: ClassVar[Better]  # whether lower or higher totals win
    paper: ClassVar[str]  # the source
    # The measurements that it reads (columns of NodeMetrics, or "rtt_ms" of links).
    needs: ClassVar[tuple[str, ...]]

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Score the nodes with these indexes, at least one."""
        ...

    def charge(self, view: ClusterView, pod: Pod, node: int) -> Mapping[str, int]:  # noqa: ARG002  # a paper may need them
        """What the pod takes from the node within a run, resource -> base units: its requests,
        unless the paper says otherwise."""
        return pod.requests


@runtime_checkable
class FilteringStrategy(Protocol):
    """A strategy that also filters nodes, because its paper does."""

    def filters(self) -> Mapping[str, Filter]:
        """Its filters by name, which run in addition to FILTERS."""
        ...


@runtime_checkable
class PeerStrategy(Protocol):
    """A strategy that can take the pod's main peer as its user."""

    def peer_is_user(self) -> bool:
        """Whether it does."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """By what a node is chosen for a pod."""

    strategy: Strategy
    # By name: those given, and the strategy's own.
    filters: Mapping[str, Filter]
    # Breaks ties: from the same seed the same decisions follow.
    random: Random = field(default_factory=lambda: Random(0))  # noqa: S311  # no secret
    # None leaves preferences aside.
    prefer: Prefer | None = None
    # Comparisons to the letter of the papers: measured values that differ at all differ, and only
    # chance breaks ties.
    letter: bool = False
    seed: int | None = None  # of `random`, where it is known
    # Whether the strategy takes the pod's main peer as its user.
    peer_is_user: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        if isinstance(self.strategy, PeerStrategy):
            object.__setattr__(self, "peer_is_user", self.strategy.peer_is_user())
        if isinstance(self.strategy, FilteringStrategy):
            every = {**self.filters, **self.strategy.filters()}
            object.__setattr__(self, "filters", every)

    def draw_for(self, pod: Pod, seed: int) -> None:
        """Let chance decide on this pod by the seed and its uid alone, however much was drawn for
        others before."""
        self.random.seed(f"{seed} {pod.uid}")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The strategy's scores of the nodes with these indexes, with the finalists that the pod's
        preferences leave."""
        if self.letter and view.metrics.errors.size:
            view = replace(view, metrics=replace(view.metrics, errors=np.zeros((0, 0))))
        scores = self.strategy.score(view, pod, candidates)
        if self.prefer is None:
            return scores
        return self.prefer(view, pod, scores, self.strategy.better)

    def fewest_just_placed(self, view: ClusterView, scores: Scores) -> Ints:
        """Of the finalists, those with the fewest pods that no report shows yet. A strategy that
        reads no reports knows of all pods."""
        tied = scores.finalists
        if self.letter or tied.size == 1 or not self.strategy.needs:
            return tied
        recent = view.recently_placed_pods()[scores.candidates[tied]]
        left: Ints = tied[recent == recent.min()]
        return left


def best(total: Floats, better: Better, margin: Floats | float = 0.0) -> Ints:
    """Positions of the best totals, or all positions if every total is NaN. margin: how much worse
    than the best each may be and still be as good, same shape."""
    known = ~np.isnan(total)
    if not known.any():
        return np.arange(total.size)
    extreme = np.nanmin(total) if better == "lower" else np.nanmax(total)
    with np.errstate(invalid="ignore"):
        return np.flatnonzero((total == extreme) | (np.abs(total - extreme) <= margin))


@dataclass(frozen=True, eq=False)
class Decision:
    """The node for a pod and the reason; node is None if the pod is unschedulable."""

    pod: Pod
    node: str | None
    why: str
    strategy: str
    better: Better
    _view: ClusterView | None = field(default=None, repr=False)
    _filter_results: Mapping[str, FilterResult] = field(default_factory=dict, repr=False)
    _scores: Scores | None = field(default=None, repr=False)
    needs: tuple[str, ...] = ()  # see Strategy
    # The cluster events that can make an unschedulable pod schedulable.
    requeue_on: ClusterEvent = ANY_EVENT
    warning: str = ""  # what the pod asks for and does not get, in one sentence, "" for nothing
    peer_is_user: bool = False  # whether the strategy takes the pod's main peer as its user

    @property
    def has_basis(self) -> bool:
        """Whether scores and rejections are still available."""
        return self._view is not None

    def basis(self) -> tuple[ClusterView | None, Mapping[str, FilterResult], Scores | None]:
        """View, filter results and scores; None if scoring was not reached, or after
        `without_basis`."""
        return self._view, self._filter_results, self._scores

    def without_basis(self) -> "Decision":
        """The same decision in a few bytes, without scores and rejections."""
        return Decision(
            self.pod, self.node, self.why, self.strategy, self.better, warning=self.warning
        )

    def volumes(self) -> VolumePlan | None:
        """The work on the pod's claims that must precede the binding; None if there is none."""
        if self._view is None or self.node is None or not self.pod.claims:
            return None
        try:
            plan = VolumeBinder(self._view, self.pod).plan(self._view.table.index[self.node])
        except UnresolvableClaimError:  # the filter VolumeBinding did not run
            return None
        return plan or None

    def rejected(self) -> dict[str, list[str]]:
        """Node name -> "Filter: reason" of each filter that the node does not pass."""
        if self._view is None:
            return {}
        rejected: dict[str, list[str]] = {}
        for name, result in self._filter_results.items():
            for i in np.flatnonzero(~result.passes):
                node = self._view.table.names[i]
                rejected.setdefault(node, []).append(f"{name}: {result.reason(int(i))}")
        return rejected

    def scores(self) -> dict[str, tuple[float | None, dict[str, float]]]:
        """Node name -> (total, parts); an unknown total is None, an unknown part is missing."""
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
        """Candidate's name -> 0 to 10, and 10 for the finalists; see the function `priorities`."""
        if self._view is None or self._scores is None:
            return {}
        names, scores = self._view.table.names, self._scores
        ranks = priorities(scores.total, scores.finalists, lower_is_better=self.better == "lower")
        return {
            names[node]: rank
            for node, rank in zip(scores.candidates.tolist(), ranks.tolist(), strict=True)
        }


def priorities(total: Floats, finalists: Ints, *, lower_is_better: bool) -> Ints:
    """Totals as the integers of kube-scheduler's extender protocol, shape (n,): 10 for the
    finalists, 0 for the worst total. Rounding loses most of the differences, so the strategy's
    choice gets a number of its own.

    total: shape (n,), finite or NaN. finalists: positions that tie for the first place. The
    others get a share in proportion to their total, rounded down, and 9 at most, so that only
    finalists have 10; DACS' finalists need not have the best total. An unknown total gets 0.
    """
    ranks = np.full(total.size, LOWEST, dtype=np.int64)
    known = ~np.isnan(total)
    if known.any():
        goodness = -total[known] if lower_is_better else total[known]
        # Halved, because the difference of two large finite numbers may overflow.
        from_worst = goodness / 2 - goodness.min() / 2
        spread = from_worst.max()
        share = from_worst / spread if spread > 0 else np.ones(goodness.size)
        ranks[known] = np.minimum(np.floor(share * HIGHEST), HIGHEST - 1)
    ranks[finalists] = HIGHEST
    return ranks


def decide(
    view: ClusterView, pod: Pod, rule: Rule, results: Mapping[str, FilterResult] | None = None
) -> Decision:
    """Choose a node for one pod. results: of the rule's filters, and of others that count in this
    decision alone; None runs the rule's."""
    strategy = rule.strategy
    failure = pre_filter_failure(pod)
    if failure is not None:
        return Decision(pod, None, failure, strategy.name, strategy.better, requeue_on=NO_EVENT)
    warning = unknown_user(view, pod)
    note = "".join(f"; {each}" for each in (warning, *pod.warnings, _absent(view, pod)) if each)
    if results is None:
        results = filtered(view, pod, rule.filters)
    candidates = feasible_nodes(view, results)
    if not candidates.size:
        why = _unschedulable_message(len(view), results)
        if helped := int(np.count_nonzero(helped_by_preemption(view, pod, results.values()))):
            why += f"; {helped} of them run pods of lower priority"
        why += note
        return Decision(
            *(pod, None, why, strategy.name, strategy.better, view, results),
            requeue_on=_requeue_events(results),
            warning=warning,
        )
    scores = rule.score(view, pod, candidates)
    tied = scores.finalists.size
    scores = replace(scores, finalists=rule.fewest_just_placed(view, scores))
    left = scores.finalists.size
    at = int(scores.finalists[rule.random.randrange(left)])
    why = scores.why(at)
    if tied > 1:
        ways = ("fewest pods just placed",) * (left < tied) + ("chosen at random",) * (left > 1)
        why += f"; {tied} nodes tied, {', then '.join(ways)}"
    why += caveats(results, int(candidates[at]), view, strategy) + note
    node = view.table.names[candidates[at]]
    return Decision(
        *(pod, node, why, strategy.name, strategy.better, view, results, scores, strategy.needs),
        warning=warning,
        peer_is_user=rule.peer_is_user,
    )


def caveats(
    results: Mapping[str, FilterResult], node: int, view: ClusterView, strategy: Strategy
) -> str:
    """What the filters are not certain of about the chosen node, and whether the bandwidth that the
    strategy reads is host-limited, as the end of a sentence."""
    found = [each.caveat(node) for each in results.values() if each.caveat is not None]
    if "bandwidth_mbps" in strategy.needs and view.bandwidth_host_limited()[node]:
        known_mbps = view.measured.bandwidth_mbps[node]
        found.append(f"its bandwidth is at least {known_mbps:.4g} Mbit/s (the board was busy)")
    return "".join(f"; {caveat}" for caveat in found if caveat)


def filtered(view: ClusterView, pod: Pod, filters: Mapping[str, Filter]) -> dict[str, FilterResult]:
    """Run these filters. As in kube-scheduler, a node for which other pods of at least the pod's
    priority are nominated must pass with them and without them: they may come, or go elsewhere."""
    results = {name: run(view, pod) for name, run in filters.items()}
    expected: dict[int, list[Pod]] = {}
    for other, node in view.nominated:
        if other.priority >= pod.priority and other.uid != pod.uid:
            expected.setdefault(node, []).append(other)
    for node, others in expected.items():
        if not all(result.passes[node] for result in results.values()):
            continue  # which spares most nodes of a full cluster
        with_others = view
        for other in others:
            with_others = with_others.with_placement(other, node)
        for name, run in filters.items():
            among = run(with_others, pod)
            if results[name].passes[node] and not among.passes[node]:
                results[name] = _refusing(results[name], node, among)
    return results


def _refusing(result: FilterResult, node: int, among: FilterResult) -> FilterResult:
    """The result of a filter for all nodes but one, and for that node the result `among` the pods
    that are nominated for it."""
    passes, helped = result.passes.copy(), result.passes & False
    passes[node] = False
    if result.resolvable_by_preemption is not None:
        helped |= result.resolvable_by_preemption
    could = among.resolvable_by_preemption
    helped[node] = could is not None and could[node]

    def reason(i: int) -> str:
        return f"{among.reason(i)}, with nominated pods" if i == node else result.reason(i)

    return replace(
        result,
        passes=passes,
        reason=reason,
        resolvable_by_preemption=helped,
        requeue_on=result.requeue_on | among.requeue_on,
    )


def feasible_nodes(view: ClusterView, results: Mapping[str, FilterResult]) -> Ints:
    """Indexes of the nodes that pass every filter."""
    feasible, everyone = view.table.all(), FilterResult.all_pass(view).passes
    for result in results.values():
        if result.passes is not everyone:
            feasible &= result.passes
    return np.flatnonzero(feasible)


def decide_in_turn(
    view: ClusterView, pods: Iterable[Pod], rule: Rule
) -> Iterator[tuple[Decision, ClusterView]]:
    """Decide on pods one after the other, each on the view that the decisions before it leave.
    Yields each decision with the view after it."""
    for pod in pods:
        decision = decide(view, pod, rule)
        view = assume(view, decision, rule.strategy)
        yield decision, view


def assume(view: ClusterView, decision: Decision, strategy: Strategy) -> ClusterView:
    """The view with the pod on its node; the same view if the pod is unschedulable."""
    if decision.node is None:
        return view
    node = view.table.index[decision.node]
    charge = strategy.charge(view, decision.pod, node)
    return view.with_placement(decision.pod, node, charge, decision.volumes())


def pre_filter_failure(pod: Pod) -> str | None:
    """Why the pod is unschedulable before any filter runs, as one sentence; None if it is not."""
    if pod.problem:
        return pod.problem
    return "the pod's scheduling gates hold it back" if pod.gated else None


def _absent(view: ClusterView, pod: Pod) -> str:
    """A part of a sentence about the declared peers that are nowhere now, "" if there are none."""
    absent = [each.name[:80] for each in absent_peers(view, pod)]
    if not absent:
        return ""
    more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
    return f"without its peers {', '.join(absent[:3])}{more}, which have no place now"


def unknown_user(view: ClusterView, pod: Pod) -> str:
    """A sentence about a user node that the cluster does not have, and which therefore counts as
    none under every strategy; "" for other pods."""
    name = pod.annotations.user_node
    if name is None or view.user_node(pod) is not None:
        return ""
    return (
        f"annotation leadline.dev/user-node: the cluster has no node {name[:80]!r}, "
        "so the pod counts as without a user"
    )


def _unschedulable_message(count: int, results: Mapping[str, FilterResult]) -> str:
    """kube-scheduler's sentence: how many nodes fail which filter."""
    if not count:
        return "no nodes are known"
    reasons = [f"{name}: {r.unresolvable}" for name, r in results.items() if r.unresolvable]
    if reasons:
        return f"0 of {count} nodes fit: {'; '.join(reasons)}"
    failing = {name: int(np.count_nonzero(~r.passes)) for name, r in results.items()}
    counts = ", ".join(f"{number} {name}" for name, number in failing.items() if number)
    return f"0 of {count} nodes fit: {counts}"


def _requeue_events(results: Mapping[str, FilterResult]) -> ClusterEvent:
    """The events that can help. Where a filter is unresolvable, only that filter's events can."""
    failing = [r for r in results.values() if r.unresolvable]
    if not failing:
        failing = [r for r in results.values() if not r.passes.all()]
    return reduce(or_, (r.requeue_on for r in failing)) if failing else ClusterEvent.NODES


def helped_by_preemption(view: ClusterView, pod: Pod, results: Iterable[FilterResult]) -> Bools:
    """The nodes that might pass without their pods of lower priority, shape (n,); none if the pod
    may not preempt."""
    lower = view.assigned_pods.priority < pod.priority
    if not pod.preempts or not lower.any():
        return view.table.none()
    helped = view.assigned_pods.per_node(lower, len(view)) > 0
    for result in results:
        helped &= result.passes_with_preemption
    return helped
