"""Plans pending pods together, for strategies that do so (KubeDSM), on a live cluster.

A plan may move running pods. Whoever moves them says which may be moved, and when it is done; the
pods for which they make room wait until then.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.batch import (
    BatchPlan,
    MayGo,
    Move,
    Running,
    checked_plan,
    in_steps,
)
from leadline_controller.framework.cycle import Filter, Rule
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import Bools, ClusterView

# The paper plans 20 pods in less than a second; a larger batch has to wait for its end.
MOST_IN_BATCH = 50


class Moves(Protocol):
    """Whoever moves running pods."""

    def may_go(self, view: ClusterView) -> MayGo:
        """The nodes to which a running pod may be moved now; safe to call in another thread."""
        ...

    def have_moved(self, view: ClusterView, moves: Sequence[Move]) -> Awaitable[bool] | None:
        """Have these moves of pods of `view` made, one after the other. True when all are done,
        false when one failed and those after it were cancelled; None if none of them is begun."""
        ...


class NoMoves:
    """Nobody moves running pods."""

    def may_go(self, view: ClusterView) -> MayGo:
        """No pod to any."""
        none = view.table.none()
        return lambda _: none

    def have_moved(self, view: ClusterView, moves: Sequence[Move]) -> None:  # the port's
        """Nothing is moved."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What is planned for the pods of a batch."""

    # Pod's key -> node's name and one sentence; a pod without an entry is decided on alone.
    nodes: Mapping[str, tuple[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    # Uids of the pods that wait until running pods have moved; `moved` tells, None if nobody moves.
    waiting: tuple[str, ...] = ()
    moved: Awaitable[bool] | None = None
    steps: int = 0  # the number of these moves


class BatchPlanner:
    """Plans batches by a rule whose strategy does so."""

    def __init__(self, state: ClusterState, rule: Rule, moves: Moves) -> None:
        self._state = state
        self._rule = rule
        self._moves = moves

    async def plan(self, view: ClusterView, pods: Sequence[Pod]) -> Batch:
        """Plan these pending pods on the cluster as it is, in a thread, and begin the moves."""
        unplanned = [pod for pod in pods if self._state.reservations.of(pod) is None]
        if not unplanned:
            return Batch()
        running, may_go = self._state.staying(view), self._moves.may_go(view)
        plan, steps = await asyncio.to_thread(self._plan, view, unplanned, running, may_go)
        names = view.table.names
        why = "as planned for the whole batch"
        nodes = {key: (names[at], plan.why.get(key, why)) for key, at in plan.placed.items()}
        if not steps:
            return Batch(nodes)
        filters = self._rule.filters
        waiting = (pod.uid for pod in unplanned if waits_for(view, pod, plan, steps, filters))
        return Batch(nodes, tuple(waiting), self._moves.have_moved(view, steps), len(steps))

    def _plan(
        self,
        view: ClusterView,
        pods: Sequence[Pod],
        running: Sequence[Running],
        may_go: MayGo,
    ) -> tuple[BatchPlan, tuple[Move, ...]]:
        view = view.for_another_thread()
        plan, _ = checked_plan(view, pods, running, self._rule, may_go)
        after = view
        for pod in pods:  # their places are kept while others move
            if (node := plan.placed.get(pod.key)) is not None:
                after = after.with_placement(pod, node)
        steps = in_steps(after, plan.moves, self._rule.filters)
        if plan.is_worth(steps):
            return plan, steps
        plan, _ = checked_plan(view, pods, running, self._rule, NoMoves().may_go(view))
        return plan, ()


def waits_for(
    view: ClusterView,
    pod: Pod,
    plan: BatchPlan,
    steps: Sequence[Move],
    filters: Mapping[str, Filter],
) -> bool:
    """Whether the pod's place is free only after the moves: one of them makes room for it, or
    leaves the node, which does not pass the filters before that."""
    at = plan.placed.get(pod.key)
    if at is None:
        return False
    if any(pod.key in move.room_for for move in steps):
        return True
    passes: Bools = np.logical_and.reduce([run(view, pod).passes for run in filters.values()])
    return not passes[at] and any(move.source == at for move in steps)
