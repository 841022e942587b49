"""Batch scheduling: a strategy plans several pods together and may move running pods. Every
step of the plan must pass the filters. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Protocol, TypeGuard, runtime_checkable

import numpy as np

from leadline_controller.framework.cycle import (
    Decision,
    Filter,
    Rule,
    Strategy,
    assume,
    caveats,
    decide,
    feasible_nodes,
    filtered,
    pre_filter_failure,
    unknown_user,
)
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import Bools, ClusterView

Running = tuple[Pod, int]  # a pod that is on a node, and the node's index
Allowed = Callable[[Pod], Bools]
MayGo = Callable[[Pod], Bools]  # the nodes to which a running pod may be moved, shape (n,)


@dataclass(frozen=True, slots=True)
class Move:
    """Moves a running pod from one node to another, given by index."""

    pod: Pod
    source: int
    target: int
    why: str
    # Keys of the pods for which the move makes room. If none of them arrives, the move is dropped.
    # Empty if the move serves no other pod.
    room_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """A strategy's plan for a batch."""

    # Key of a pending pod -> index of its node; a pod without an entry is decided on alone.
    placed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    moves: tuple[Move, ...] = ()  # of running pods, all before the first placement
    # Key of a placed pod -> one sentence.
    why: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    method: str = ""  # how the plan was searched for
    # Whether moves of these pods that are not just those of the plan still leave the cluster better
    # than it is.
    is_worth: Callable[[Sequence[Move]], bool] = lambda _: True
    # Whether the first of the moves may be made without the others, as far as `is_worth` says so.
    in_part: bool = False


@runtime_checkable
class BatchStrategy(Strategy, Protocol):
    """A strategy that plans several pods at once, and moves running ones for it."""

    __slots__ = ()

    # Whether a pod that comes alone is decided on by the same rule, so that what it does pod by pod
    # tells what it is worth: for `leadline score`, for shadows.
    pod_by_pod: ClassVar[bool] = False

    def plan(
        self,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
    ) -> BatchPlan:
        """Plan nodes for the pending pods, and moves of running ones.

        allowed(pod): the nodes that pass the filters for a pending or running pod, preemption
        included, shape (n,). The plan itself must make sure that there is room.
        """
        ...


def decides_together(strategy: Strategy) -> TypeGuard[BatchStrategy]:
    """Whether the strategy's rule is that of its plans, and not one for single pods."""
    return isinstance(strategy, BatchStrategy) and not strategy.pod_by_pod


def decide_batch(
    view: ClusterView,
    pods: Iterable[Pod],
    running: Sequence[Running],
    rule: Rule,
) -> tuple[list[Decision], BatchPlan, ClusterView]:
    """Plan a batch and check every step against the filters. Returns the decisions in the order
    of `pods`, the plan without its dropped moves, and the view after it.

    A move is dropped if its target does not pass the filters, or if it makes room for pods none
    of which gets its planned node. A pod whose planned node does not pass is decided on alone.
    """
    plan, end, placed = plan_batch(view, pods, running, rule)
    decisions = []
    for decision, end in placed:  # noqa: B007  # the last one counts
        decisions.append(decision)
    return decisions, plan, end


def plan_batch(
    view: ClusterView,
    pods: Iterable[Pod],
    running: Sequence[Running],
    rule: Rule,
) -> tuple[BatchPlan, ClusterView, Iterator[tuple[Decision, ClusterView]]]:
    """Like decide_batch, with lazy decisions. Returns the plan, the view after its moves, and the
    decisions, each with the view after it."""
    wanted = list(pods)
    plan, moved = checked_plan(view, wanted, running, rule)
    return plan, moved, _decisions(moved, wanted, plan, rule)


def checked_plan(
    view: ClusterView,
    wanted: Sequence[Pod],
    running: Sequence[Running],
    rule: Rule,
    may_go: MayGo | None = None,
) -> tuple[BatchPlan, ClusterView]:
    """Plan a batch without deciding on its pods; a strategy that plans none leaves it empty.
    may_go: None for any node. Returns the plan without the moves that are dropped, and the view
    after its moves."""
    if not isinstance(rule.strategy, BatchStrategy):
        return BatchPlan(), view
    pending = [pod for pod in wanted if pre_filter_failure(pod) is None]
    if wanted and not pending:  # without pending pods it would be a suggestion
        return BatchPlan(), view
    plan = rule.strategy.plan(
        view,
        pending,
        running,
        _allowed(view, running, rule.filters, may_go),
    )
    while True:
        moved, dropped = _apply_moves(view, plan.moves, rule.filters)
        if dropped is None:
            random_state = rule.random.getstate()
            if any(move.room_for for move in plan.moves):
                trial = _decisions(moved, wanted, plan, rule)
                dropped = _useless_move(plan, (decision for decision, _ in trial), view)
            rule.random.setstate(random_state)
            if dropped is None:
                return plan, moved
        plan = replace(plan, moves=tuple(move for move in plan.moves if move is not dropped))


def suggested_steps(
    view: ClusterView,
    running: Sequence[Running],
    rule: Rule,
    may_go: MayGo | None = None,
    *,
    may_return: bool = True,
    fits: Callable[[Sequence[Move]], bool] = lambda _: True,
) -> tuple[Move, ...]:
    """The moves of a plan without pending pods, in steps. None, if a pod that goes by way of the
    cloud, or a move that is left out, costs what the plan gains, and the next plan would not bring
    that either: the same would then be planned again and again. may_return: whether the next plan
    may move the same pods. fits: whether so many moves may be made now; of a plan that may be
    carried out in part, the most that fit."""
    plan, _ = checked_plan(view, [], running, rule, may_go)
    steps = in_steps(view, plan.moves, rule.filters)
    if plan.in_part:
        parts = (steps[:count] for count in range(len(steps), 0, -1))
        return next((each for each in parts if fits(each) and plan.is_worth(each)), ())
    if plan.is_worth(steps):
        return steps
    if not may_return:
        return ()
    placed = {pod.key: (pod, node) for pod, node in running}
    for step in steps:
        view = view.without_placement(step.pod, step.source)
        view = view.with_placement(step.pod, step.target)
        placed[step.pod.key] = step.pod, step.target
    following, _ = checked_plan(view, [], [*placed.values()], rule, may_go)
    then = in_steps(view, following.moves, rule.filters)
    return steps if plan.is_worth((*steps, *then)) else ()


def decide_as_planned(
    view: ClusterView,
    pod: Pod,
    plan: BatchPlan,
    rule: Rule,
) -> Decision:
    """The decision for the pod's planned node; where that does not pass, or there is none, the
    decision for the pod alone. A plan leaves preferences aside."""
    return _planned_decision(view, pod, plan, rule) or decide(view, pod, rule)


def in_steps(
    view: ClusterView, moves: Sequence[Move], filters: Mapping[str, Filter]
) -> tuple[Move, ...]:
    """The moves in an order in which each finds its room, as one pod moves after the other.

    Where each waits for another one's place, as when two pods change places, one goes to a cloud
    node, as in the paper (KubeDSM, Section 5.3), and stays there until a later plan brings it
    back: its replacement is a new pod, which nobody has planned for yet. Without such a node the
    moves that are left are left out.
    """
    left, steps = list(moves), list[Move]()
    cloud = view.table.mask("cloud tier", lambda node: node.tier == "cloud")
    while left:
        step, done = None, None
        for move in left:
            passes = _nodes_for(view, move, filters)
            if passes[move.target]:
                step, done = move, move
                break
            away = np.flatnonzero(passes & cloud)
            if step is None and away.size and not cloud[move.source]:
                why = f"{move.why}, by way of the cloud"
                step, done = replace(move, target=int(away[0]), why=why), move
        if step is None:
            break
        left = [move for move in left if move is not done]
        steps.append(step)
        view = view.without_placement(step.pod, step.source)
        view = view.with_placement(step.pod, step.target)
    return tuple(steps)


def _nodes_for(view: ClusterView, move: Move, filters: Mapping[str, Filter]) -> Bools:
    """The nodes that pass the filters once the pod has left its node, shape (n,)."""
    without = view.without_placement(move.pod, move.source)
    passes = view.table.all()
    for run in filters.values():
        passes &= run(without, move.pod).passes
    return passes


def _decisions(
    view: ClusterView,
    pods: Iterable[Pod],
    plan: BatchPlan,
    rule: Rule,
) -> Iterator[tuple[Decision, ClusterView]]:
    for pod in pods:
        decision = decide_as_planned(view, pod, plan, rule)
        view = assume(view, decision, rule.strategy)
        yield decision, view


def _allowed(
    view: ClusterView,
    running: Sequence[Running],
    filters: Mapping[str, Filter],
    may_go: MayGo | None,
) -> Allowed:
    node_of = {pod.key: node for pod, node in running}
    cached: dict[str, Bools] = {}
    every, none = view.table.all(), view.table.none()

    def allowed(pod: Pod) -> Bools:
        if pod.key in cached:
            return cached[pod.key]
        node = node_of.get(pod.key)
        nodes = every if node is None or may_go is None else may_go(pod)
        # Thousands may run, of which none may move. One that is being deleted, or could not be
        # scheduled again, must not.
        if not nodes.any() or pod.terminating or pre_filter_failure(pod) is not None:
            return none
        without_pod = view if node is None else view.without_placement(pod, node)
        for run in filters.values():
            nodes = nodes & run(without_pod, pod).passes_with_preemption
        cached[pod.key] = nodes
        return nodes

    return allowed


def _apply_moves(
    view: ClusterView, moves: Sequence[Move], filters: Mapping[str, Filter]
) -> tuple[ClusterView, Move | None]:
    """The view after the moves, and the first move whose target does not pass the filters after
    all pods have left their nodes, if there is one."""
    for move in moves:
        view = view.without_placement(move.pod, move.source)
    for move in moves:
        if not all(run(view, move.pod).passes[move.target] for run in filters.values()):
            return view, move
        view = view.with_placement(move.pod, move.target)
    return view, None


def _planned_decision(
    view: ClusterView,
    pod: Pod,
    plan: BatchPlan,
    rule: Rule,
) -> Decision | None:
    """The decision for the planned node; None if there is no such node or it does not pass. Its
    scores are for the pod alone, so the planned node need not have the best one."""
    node = plan.placed.get(pod.key)
    if node is None or pre_filter_failure(pod) is not None:
        return None
    strategy, results = rule.strategy, filtered(view, pod, rule.filters)
    candidates = feasible_nodes(view, results)
    chosen = np.flatnonzero(candidates == node)
    if not chosen.size:
        return None
    why = plan.why.get(pod.key, "as planned for the whole batch")
    why += caveats(results, node, view, strategy)
    warning = unknown_user(view, pod)
    why += "".join(f"; {each}" for each in (warning, *pod.warnings) if each)
    scores = replace(strategy.score(view, pod, candidates), finalists=chosen)
    name = view.table.names[node]
    return Decision(
        *(pod, name, why, strategy.name, strategy.better, view, results, scores, strategy.needs),
        warning=warning,
    )


def _useless_move(plan: BatchPlan, decisions: Iterable[Decision], view: ClusterView) -> Move | None:
    """The first move that makes room for pods none of which arrives."""
    names = view.table.names
    arrived = {move.pod.key for move in plan.moves}
    for decision in decisions:
        planned = plan.placed.get(decision.pod.key)
        if planned is not None and decision.node == names[planned]:
            arrived.add(decision.pod.key)
    useless = (m for m in plan.moves if m.room_for and arrived.isdisjoint(m.room_for))
    return next(useless, None)
