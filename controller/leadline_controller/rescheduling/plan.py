"""Plans of moves: which running pods would be better elsewhere, by how much, and why the others
stay. Pure.

A pod moves only where the strategy would place it now: to one of its finalists, which need not have
the best score. The gain is the strategy's own: the score of the pod's present node against that
one, both in the cluster without the pod.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from heapq import heapify, heappop, heappush

import numpy as np

from leadline_controller.framework.batch import Move
from leadline_controller.framework.cycle import (
    Better,
    Rule,
    Strategy,
    best,
    feasible_nodes,
    filtered,
    pre_filter_failure,
)
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView

PodOnNode = tuple[Pod, str]  # a pod and its node's name


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One move."""

    pod: Pod
    source: str
    target: str
    why: str
    # Of the present node and of the target, in the strategy's unit.
    score: float | None = None
    better_score: float | None = None
    # Their difference as a share of the larger one, 0 to 1; None if another rule asks for the move.
    gain: float | None = None
    disruption: str = ""  # what the pod's users notice
    # For another move or a pending pod, so that it ends when the old pod has.
    makes_room: bool = False


@dataclass(frozen=True, slots=True)
class Stay:
    """A pod that is not moved, and the reason."""

    pod: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves in the order in which they are carried out, and the pods that stay."""

    strategy: str
    better: Better
    moves: tuple[PlannedMove, ...] = ()
    stays: tuple[Stay, ...] = ()

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits: the same moves of the same pods have the same."""
        moves = "\n".join(f"{m.pod.uid} {m.source} {m.target}" for m in self.moves)
        return sha256(f"{self.strategy}\n{moves}".encode()).hexdigest()[:12]


def of_moves(strategy: Strategy, view: ClusterView, moves: Iterable[Move]) -> Plan:
    """The plan of a batch strategy's moves, in their order."""
    names = view.table.names
    planned = (
        PlannedMove(m.pod, names[m.source], names[m.target], m.why, makes_room=True) for m in moves
    )
    return Plan(strategy.name, strategy.better, tuple(planned))


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """What a plan must keep."""

    min_gain: float = 0.2  # the least gain of a move, as a share
    most: int = 20  # how many moves
    # Of a pod and its node: why the pod must stay, "" if it may move.
    may_move: Callable[[Pod, str], str] = lambda _pod, _node: ""
    # Of a pod, its node and the target: why the measurements do not suffice, "" if they do.
    reliable: Callable[[Pod, str, str], str] = lambda _pod, _source, _target: ""


def plan_moves(
    view: ClusterView,
    running: Sequence[PodOnNode],
    rule: Rule,
    limits: PlanLimits,
) -> Plan:
    """Plan the moves that gain most, each on the view that those before it leave."""
    view = replace(view, placed_in_run=np.zeros(len(view), dtype=np.int64))
    stays: dict[str, Stay] = {}
    heap: list[tuple[float, int]] = []
    found: dict[int, PlannedMove] = {}
    for number, (pod, node) in enumerate(running):
        if reason := limits.may_move(pod, node):
            stays[pod.key] = Stay(pod.key, node, reason)
            continue
        move = propose(view, pod, node, rule, limits)
        if isinstance(move, Stay):
            stays[pod.key] = move
        else:
            found[number] = move
            heap.append((-(move.gain or 0.0), number))
    heapify(heap)
    moves: list[PlannedMove] = []
    while heap:
        gain, number = heappop(heap)
        pod, node = running[number]
        if len(moves) == limits.most:
            why = f"a plan has {limits.most} moves at most, and others gain more"
            stays[pod.key] = Stay(pod.key, node, why)
            continue
        # The moves before this one may have changed what it gains.
        move = propose(view, pod, node, rule, limits)
        if isinstance(move, Stay):
            stays[pod.key] = replace(move, why=f"after the moves before it: {move.why}")
        elif heap and -(move.gain or 0.0) > heap[0][0] and -(move.gain or 0.0) > gain:
            heappush(heap, (-(move.gain or 0.0), number))
        else:
            moves.append(move)
            source, target = view.table.index[node], view.table.index[move.target]
            view = view.without_placement(pod, source).with_placement(pod, target)
            view = replace(view, placed_in_run=np.zeros(len(view), dtype=np.int64))
    return Plan(rule.strategy.name, rule.strategy.better, tuple(moves), tuple(stays.values()))


def propose(
    view: ClusterView,
    pod: Pod,
    node: str,
    rule: Rule,
    limits: PlanLimits,
) -> PlannedMove | Stay:
    """The best move of one pod, or why it stays where it is."""
    strategy, source = rule.strategy, view.table.index.get(node)
    if source is None:
        return Stay(pod.key, node, "its node is not known")
    view = view.without_placement(pod, source)
    failure = pre_filter_failure(pod)
    if failure is not None:
        return Stay(pod.key, node, f"it could not be placed again: {failure}")
    results = filtered(view, pod, rule.filters)
    others = feasible_nodes(view, results)
    others = others[others != source]
    if not others.size:
        return Stay(pod.key, node, "no other node passes the filters")
    # Some strategies compare the candidates with each other, so all are scored together.
    candidates = np.union1d(others, [source])
    scores = rule.score(view, pod, candidates)
    at = int(np.searchsorted(candidates, source))
    now = float(scores.total[at])
    if np.isnan(now):
        return Stay(pod.key, node, f"{strategy.name} cannot score its node {node}")
    if at in scores.finalists:
        return Stay(pod.key, node, f"no other node is better: {scores.why(at)}")
    # Always the same of those that tie, or no plan would have the same id twice.
    chosen = int(scores.finalists[best(scores.total[scores.finalists], strategy.better)[0]])
    then = float(scores.total[chosen])
    target = view.table.names[candidates[chosen]]
    gain = gain_of(now, then, strategy.better)
    if np.isnan(then) or gain <= 0:
        return Stay(pod.key, node, f"no other node is better: {now:.4g}, {target} {then:.4g}")
    if gain < limits.min_gain:
        why = f"{target} gains {gain:.0%}, less than {limits.min_gain:.0%}"
        return Stay(pod.key, node, f"{why}: {now:.4g} -> {then:.4g}")
    if reason := limits.reliable(pod, node, target):
        return Stay(pod.key, node, f"{target} seems to gain {gain:.0%}, but {reason}")
    why = f"{now:.4g} -> {then:.4g}, {strategy.better} is better: {scores.why(chosen)}"
    return PlannedMove(pod, node, target, why, now, then, gain)


def gain_of(now: float, then: float, better: Better) -> float:
    """How much better `then` is, as a share of the larger score; negative if it is worse."""
    difference = now - then if better == "lower" else then - now
    largest = max(abs(now), abs(then))
    return difference / largest if largest else 0.0
