"""Moves of running pods in a plan: each takes part as a pod that has a place already, and waits
longer everywhere else for what its move costs within its life. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.batch import Allowed, BatchPlan, Move, Running
from leadline_controller.framework.callers import count
from leadline_controller.framework.model import Pod
from leadline_controller.framework.services import Service
from leadline_controller.framework.view import RESTART_S, Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.leadline.planning import search
from leadline_controller.strategies.leadline.terms import shown
from leadline_controller.strategies.leadline.waits import Waits

# So many running pods take part in a plan. A search takes time with the square of its pods.
MOST_MOVING = 32
# What moves gain is more than this share of what the moved pods wait: readings differ by 2 % from
# one report to the next, and what a move gained by that would be lost by the next one.
LEAST_GAIN = 0.05

WaitsOf = Callable[[ClusterView, Sequence[Pod], Ints, Bools, Sequence[int]], Waits]
CostOf = Callable[[ClusterView, Pod, Ints], "Cost"]  # of the move of a pod to nodes
# What a pod waits on each node, s each second, shape (n,); the view is without it.
Alone = Callable[[ClusterView, Pod], Floats]


def moving_ms(pull_s: Floats, start_s: Floats, life_s: float) -> Floats:
    """What each request waits because the pod moves to nodes with so long pulls and starts, shapes
    (n,): those that come while it is away wait for half of that time. A restart is the usual one,
    or the start there if that takes longer."""
    away_s = np.maximum(start_s, RESTART_S) + pull_s
    found: Floats = 1000 * away_s**2 / (2 * life_s)
    return found


class Cost(NamedTuple):
    """Of a pod's moves to nodes. Where other pods of its service serve those who come while it is
    away, nobody waits."""

    each_ms: Floats  # for each request in the pod's life, shape (n,)
    life_s: float
    replicas: int  # others of its service

    def text(self, node: int) -> str:
        """Of the move to one of the nodes, a part of a sentence."""
        if self.replicas:
            return f"{self.replicas} other pods of its service serve while it moves"
        return f"{shown(self.each_ms[node])} ms for its move in its life of {self.life_s:.0f} s"


class Mover(NamedTuple):
    """A running pod that may move."""

    pod: Pod
    node: int
    allowed: Bools  # the nodes that it may have, its own one among them, shape (n,)


@dataclass(frozen=True, slots=True, eq=False)
class Movers:
    """The running pods that take part in a plan."""

    of: Sequence[Mover]
    running: int  # how many there are

    @classmethod
    def choose(
        cls,
        view: ClusterView,
        pending: Sequence[tuple[Pod, Bools]],
        running: Sequence[Running],
        allowed: Allowed,
        alone: Alone,
    ) -> "Movers":
        """All that may move to another node, and those that stay, since they wait longer for what
        comes. Of many the half with the most to gain alone, then those on the nodes that these and
        the pending pods want most. Pods of a Job stay: they would begin again."""
        ranked = running
        if len(running) > MOST_MOVING:
            may_end = [each for each in running if not _is_of_job(each[0])]
            ranked = _ranked(view, pending, may_end, allowed, alone)
        found, staying = list[Mover](), list[Mover]()
        for pod, node in ranked:
            own = np.arange(len(view)) == node
            mask = own if _is_of_job(pod) else allowed(pod) | own
            (found if (mask & ~own).any() else staying).append(Mover(pod, node, mask))
            if len(found) == MOST_MOVING:
                break
        if found:
            found += staying[: MOST_MOVING - len(found)]
        return cls(found, len(running))

    @property
    def note(self) -> str:
        """That some were left out; "" if none was."""
        if len(self.of) < MOST_MOVING:
            return ""
        return f"; of {self.running} running pods {len(self.of)} took part"


def _is_of_job(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.kind == "Job"


def _ranked(
    view: ClusterView,
    pending: Sequence[tuple[Pod, Bools]],
    running: Sequence[Running],
    allowed: Allowed,
    alone: Alone,
) -> list[Running]:
    """Running pods in the order in which they take part. One pod of a workload stands for all."""
    workloads: dict[Service, list[Running]] = {}
    for each in running:
        workloads.setdefault(workload_of(each[0]), []).append(each)
    gains: list[tuple[float, Running]] = []
    wanted = np.zeros(len(view))
    for pods in workloads.values():
        first = next((each for each in pods if allowed(each[0]).any()), None)
        if first is None:
            continue
        waits_s = alone(view.without_placement(*first), first[0])
        reach_s = np.where(allowed(first[0]), waits_s, np.inf)
        best = int(reach_s.argmin())
        reach_s[best], best_s = np.inf, reach_s[best]
        for pod, node in pods:
            other_s = reach_s.min() if node == best else best_s
            gains.append((float(waits_s[node] - other_s), (pod, node)))
            wanted[best] += node != best
    for pod, mask in pending:
        if mask.any():
            wanted[np.where(mask, alone(view, pod), np.inf).argmin()] += 1
    gains.sort(key=lambda each: -each[0])
    ordered = [each for _, each in gains]
    in_the_way = sorted(ordered[MOST_MOVING // 2 :], key=lambda each: -wanted[each[1]])
    return [*ordered[: MOST_MOVING // 2], *in_the_way]


def plan_moves(
    waits_of: WaitsOf,
    view: ClusterView,
    movers: Movers,
    pending: Sequence[tuple[Pod, Bools]],
    at: Ints,
    cost: CostOf,
) -> BatchPlan | None:
    """The plan with moves; None where they gain too little.

    pending: with the nodes that each may have. at: their nodes in a plan without moves, -1 for
    none, shape (m,).
    """
    places = [(each.pod, each.node) for each in movers.of]
    callers = dict(view.callers)
    for pod, _ in places:
        count(callers, pod, -1)
    calm = replace(view.without_placements(places), callers=callers)
    pods = [*(pod for pod, _ in places), *(pod for pod, _ in pending)]
    allowed = np.array([*(each.allowed for each in movers.of), *(mask for _, mask in pending)])
    start = np.concatenate((np.array([node for _, node in places], np.int64), at))
    nodes = np.flatnonzero(allowed.any(axis=0))
    start = np.where(start >= 0, np.searchsorted(nodes, start), -1)
    runs = np.arange(len(pods)) < len(places)
    own = start[runs]
    costs = [cost(view, pod, nodes) for pod, _ in places]
    waits = _with_room(waits_of(calm, pods, nodes, allowed[:, nodes], own.tolist()), own)
    waits = waits.dearer(_elsewhere(len(pods), own, np.array([each.each_ms for each in costs])))
    if not np.isfinite(_total_s(waits, start)):  # where running pods hold what a pending one needs
        start = np.where(runs, start, -1)
    found = search(_reluctant(waits, own), start, runs)
    plan = _Plan(view, waits, pods, nodes, start, found.nodes, costs)
    moves = plan.moves()
    if not plan.is_worth(moves):
        return None
    placed = {
        pod.key: int(nodes[node])
        for pod, node in zip(pods, found.nodes.tolist(), strict=True)
        if node >= 0
    }
    placed = {pod.key: placed[pod.key] for pod, _ in pending if pod.key in placed}
    why = f"as planned for {len(placed)} pods that came together"
    why += f" and {len(moves)} that move, {found.method}{movers.note}"
    whys = dict.fromkeys(placed, why)
    return BatchPlan(placed, moves, whys, found.method, plan.is_worth, in_part=True)


def _with_room(waits: Waits, own: Ints) -> Waits:
    """The first pods fit where they are, also on a node on which too much is requested."""
    held = np.zeros(waits.room.free.shape)
    np.add.at(held, own, waits.room.amounts[: own.size])
    return replace(waits, room=waits.room._replace(free=np.maximum(waits.room.free, held)))


def _reluctant(waits: Waits, own: Ints) -> Waits:
    """In which each of the first pods moves only if it gains LEAST_GAIN of what it waits where it
    is best off alone. That does not depend on where the others are, so that a move that is made
    makes no other one worth it."""
    least_ms = (waits.alone_s() / waits.per_s)[: own.size].min(axis=1)
    more_ms = np.repeat(LEAST_GAIN * least_ms[:, np.newaxis], waits.shape[1], axis=1)
    return waits.dearer(_elsewhere(waits.shape[0], own, more_ms))


def _elsewhere(pods: int, own: Ints, more_ms: Floats) -> Floats:
    """What only the first pods wait, shape (k, n), and not on their own nodes, shape (pods, n)."""
    found = np.zeros((pods, more_ms.shape[1]))
    found[: own.size] = more_ms
    found[np.arange(own.size), own] = 0.0
    return found


def _total_s(waits: Waits, at: Ints) -> float:
    used = np.unique(at[at >= 0])
    return waits.among(used).total_s(np.where(at < 0, -1, np.searchsorted(used, at)))


def _each_s(waits: Waits, at: Ints) -> Floats:
    used = np.unique(at[at >= 0])
    return waits.among(used).each_s(np.where(at < 0, -1, np.searchsorted(used, at)))


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Where pods go, by indexes of `nodes`."""

    view: ClusterView
    waits: Waits
    pods: Sequence[Pod]
    nodes: Ints
    start: Ints  # as they would be without moves, shape (m,)
    final: Ints
    costs: Sequence[Cost]  # of the first pods, which run

    def moves(self) -> tuple[Move, ...]:
        """Of the pods that run."""
        now_ms, then_ms = (
            _each_s(self.waits, at) / self.waits.per_s[:, 0] for at in (self.start, self.final)
        )
        found = []
        for i in np.flatnonzero((self.final != self.start)[: len(self.costs)]).tolist():
            pod, target = self.pods[i], int(self.nodes[self.final[i]])
            needs = self._in_need_of(i)
            less_ms = float(now_ms[i] - then_ms[i])
            why = f"makes room for {_names(needs)}; " if needs else ""
            why += f"{pod.name} waits {shown(abs(less_ms))} ms a request "
            why += f"{'less' if less_ms >= 0 else 'more'} on {self.view.table.names[target]}, "
            why += f"with {self.costs[i].text(int(self.final[i]))}"
            source = int(self.nodes[self.start[i]])
            found.append(Move(pod, source, target, why, tuple(each.key for each in needs)))
        return tuple(found)

    def is_worth(self, steps: Sequence[Move]) -> bool:
        """Whether with these moves more pods have nodes than without any, or they gain more than
        LEAST_GAIN of what the moved pods wait."""
        at, again_s = self.final.copy(), 0.0
        at[: len(self.costs)] = self.start[: len(self.costs)]
        number = {pod.key: i for i, pod in enumerate(self.pods)}
        for step in steps:
            i, node = number[step.pod.key], int(np.searchsorted(self.nodes, step.target))
            if node == self.nodes.size or self.nodes[node] != step.target:
                return False
            if at[i] != self.start[i]:  # it moves twice
                again_s += float(self.costs[i].each_ms[node] * self.waits.per_s[i, 0])
            at[i] = node
        after_s = _total_s(self.waits, at) + again_s
        if not np.isfinite(after_s):
            return False
        if (at >= 0).sum() != (self.start >= 0).sum():
            return bool((at >= 0).sum() > (self.start >= 0).sum())
        moved = (at != self.start) & (np.arange(at.size) < len(self.costs))
        least_s = LEAST_GAIN * float(_each_s(self.waits, self.start)[moved].sum())
        return not moved.any() or _total_s(self.waits, self.start) - after_s > least_s

    def _in_need_of(self, i: int) -> list[Pod]:
        """The pods that come to this one's node and do not fit beside those that leave it."""
        node, room = self.start[i], self.waits.room
        was, will = self.start == node, self.final == node
        was[len(self.costs) :] = False
        if (room.amounts[was | will].sum(axis=0) <= room.free[node]).all():
            return []
        return [self.pods[k] for k in np.flatnonzero(will & ~was).tolist()]


def _names(pods: Sequence[Pod]) -> str:
    more = f" and {len(pods) - 3} more" if len(pods) > 3 else ""
    return ", ".join(each.key for each in pods[:3]) + more
