"""Several pods at once: a strategy plans all of them together and may move pods that run
already; the filters then have the last word on every single step. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import numpy as np

from leadline_controller.framework.cycle import (
    Decision,
    Filter,
    Strategy,
    after,
    candidates_of,
    decide,
    obstacle,
)
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import Bools, ClusterView

Running = tuple[Pod, int]  # a pod that is on a node, and the node's index
Allowed = Callable[[Pod], Bools]


@dataclass(frozen=True, slots=True)
class Move:
    """A running pod goes from one node to another, given by index. room_for: keys of the pods
    for which it makes room, so that it is pointless where none of them gets there; empty
    where it is an end in itself."""

    pod: Pod
    source: int
    target: int
    why: str
    room_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """What a strategy makes of a batch, as data.

    placed: key of a pending pod -> index of its node; a pod that is not in it is decided on
    alone. moves: of running pods; all of them are meant to happen before anything is placed.
    why: key of a placed pod -> one sentence. method: how the plan was searched for.
    """

    placed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    moves: tuple[Move, ...] = ()
    why: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    method: str = ""


@runtime_checkable
class BatchStrategy(Strategy, Protocol):
    """A strategy that plans several pods at once."""

    def plan(
        self,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
    ) -> BatchPlan:
        """Where the pending pods go, and which running ones move.

        allowed(pod): shape (n,), the nodes that the filters leave to a pod, pending or
        running, if others make room there; whether there is room is for the plan to see to.
        """
        ...


def decide_batch(
    view: ClusterView,
    pods: Iterable[Pod],
    running: Sequence[Running],
    filters: Mapping[str, Filter],
    strategy: BatchStrategy,
    random: Random,
) -> tuple[list[Decision], BatchPlan, ClusterView]:
    """Plan, then hold every step against the filters: the decisions in the order of `pods`,
    the plan with those moves that came off, and the view after it.

    A move that a filter refuses is dropped, and so is one that made room for pods none of
    which got where the plan wanted them. A placement that a filter refuses is decided on by
    the strategy's score alone, or the pod stays pending with the filters' reasons.
    """
    plan, end, placed = plan_batch(view, pods, running, filters, strategy, random)
    decisions = []
    for decision, view_after in placed:
        decisions.append(decision)
        end = view_after
    return decisions, plan, end


def plan_batch(
    view: ClusterView,
    pods: Iterable[Pod],
    running: Sequence[Running],
    filters: Mapping[str, Filter],
    strategy: BatchStrategy,
    random: Random,
) -> tuple[BatchPlan, ClusterView, Iterator[tuple[Decision, ClusterView]]]:
    """As decide_batch, with the decisions made one at a time: the plan, the view after its moves,
    and the decisions, each with the view after it."""
    wanted = list(pods)
    plan = strategy.plan(
        view,
        [pod for pod in wanted if obstacle(view, pod) is None],
        running,
        _allowed(view, running, filters),
    )
    while True:
        cleared, refused = _moved(view, plan.moves, filters)
        if refused is None:
            ties = random.getstate()
            if any(move.room_for for move in plan.moves):
                rehearsal = _placed(cleared, wanted, plan, filters, strategy, random)
                refused = _pointless(plan, (decision for decision, _ in rehearsal), view)
            if refused is None:
                random.setstate(ties)
                placed = _placed(cleared, wanted, plan, filters, strategy, random)
                return plan, cleared, placed
        plan = replace(plan, moves=tuple(move for move in plan.moves if move is not refused))


def _allowed(
    view: ClusterView, running: Sequence[Running], filters: Mapping[str, Filter]
) -> Allowed:
    places = {pod.key: node for pod, node in running}
    found: dict[str, Bools] = {}

    def allowed(pod: Pod) -> Bools:
        if pod.key not in found:
            found[pod.key] = _where(view, pod, places.get(pod.key), filters)
        return found[pod.key]

    return allowed


def _where(view: ClusterView, pod: Pod, place: int | None, filters: Mapping[str, Filter]) -> Bools:
    """Where the pod passes, or might if others went; a pod that is going, or that could not be
    placed again, is to be left where it is."""
    if pod.terminating or obstacle(view, pod) is not None:
        return view.table.none()
    lifted = view if place is None else view.without_placement(pod, place)
    where = view.table.all()
    for test in filters.values():
        where &= test(lifted, pod).passes_with_preemption
    return where


def _moved(
    view: ClusterView, moves: Sequence[Move], filters: Mapping[str, Filter]
) -> tuple[ClusterView, Move | None]:
    """The view after the moves, or the first that the filters refuse once all have left."""
    for move in moves:
        view = view.without_placement(move.pod, move.source)
    for move in moves:
        if not all(test(view, move.pod).passes[move.target] for test in filters.values()):
            return view, move
        view = view.with_placement(move.pod, move.target)
    return view, None


def _placed(
    view: ClusterView,
    pods: Iterable[Pod],
    plan: BatchPlan,
    filters: Mapping[str, Filter],
    strategy: Strategy,
    random: Random,
) -> Iterator[tuple[Decision, ClusterView]]:
    for pod in pods:
        decision = _as_planned(view, pod, plan, filters, strategy)
        if decision is None:
            decision = decide(view, pod, filters, strategy, random)
        view = after(view, decision, strategy)
        yield decision, view


def _as_planned(
    view: ClusterView,
    pod: Pod,
    plan: BatchPlan,
    filters: Mapping[str, Filter],
    strategy: Strategy,
) -> Decision | None:
    """The plan's decision; None where it has none, or a filter is against it. Its scores are the
    pod's alone, of which the planned node need not have the best."""
    node = plan.placed.get(pod.key)
    if node is None or obstacle(view, pod) is not None:
        return None
    verdicts = {name: test(view, pod) for name, test in filters.items()}
    candidates = candidates_of(view, verdicts)
    chosen = np.flatnonzero(candidates == node)
    if not chosen.size:
        return None
    why = plan.why.get(pod.key, "as planned for the whole batch")
    said = view.table.names[node], why, strategy.name, strategy.better
    scores = replace(strategy.score(view, pod, candidates), finalists=chosen)
    return Decision(pod, *said, view, verdicts, scores, strategy.needs)


def _pointless(plan: BatchPlan, decisions: Iterable[Decision], view: ClusterView) -> Move | None:
    """A move that made room for pods of which none came."""
    came = {move.pod.key for move in plan.moves}
    for decision in decisions:
        planned = plan.placed.get(decision.pod.key)
        if planned is not None and decision.node == view.table.names[planned]:
            came.add(decision.pod.key)
    for move in plan.moves:
        if move.room_for and came.isdisjoint(move.room_for):
            return move
    return None
