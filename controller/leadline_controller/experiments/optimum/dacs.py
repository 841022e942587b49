"""The least average delay that any placement has: DACS' problem (Eq. 3-7), solved exactly.

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes".

Minimise (1/|U|) * sum over users of alpha * D_p + (1 - alpha) * D_n (Eq. 3), every pod on one
node (Eq. 5, 7), what pods ask for within what each node has (Eq. 6). Three things the paper's
programme leaves open:

- Eq. 7 says "at most one node", and then placing nothing would have no delay at all. Every pod
  is placed here; where that can't be, the answer is "infeasible".
- D_p depends on r_i, what is left of a node's CPU (Eq. 8-9), which falls as Algorithm 1 places
  pod after pod (Eq. 14). A programme chooses all places at once and knows no order, and with
  r_i taken as it was at the start, everything would best be heaped on the largest node. So
  pods that share a node share what was left of it: each of k pods gets A(c, l, r_i / k), which
  for k = 1 is Eq. 9 to the letter, as kernels share processors among programs at work.
- Eq. 6 holds for the pods on a node together, with their requests, which is what a cluster
  promises (c, "the minimum guaranteed number").

Gamma (Eq. 18) is counted as Algorithm 2 counts it: the first pod on a node pays nothing, the
next what one pod beside it costs, and so on; for k pods the sum is the same in any order.

So the delay of a pod depends on its node and on k alone. Binaries z[i,k], "node i holds k
pods", and x[c,i,k], "so many of the pods of class c are on node i while it holds k", make that
linear: sum_c x[c,i,k] = k * z[i,k], sum_k z[i,k] <= 1, capacities in the form
sum_c want_c * x[c,i,k] <= capacity_i * z[i,k]. Pods that nothing tells apart are one class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan

import numpy as np

from leadline_controller.core.contention import contention_s
from leadline_controller.core.cycle import Filter
from leadline_controller.core.model import CPU, Pod
from leadline_controller.core.nodes import Bools, Floats, Ints
from leadline_controller.core.view import ClusterView
from leadline_controller.experiments.optimum import start
from leadline_controller.experiments.optimum.feasible import Room, allowed, refusal, room, stuck
from leadline_controller.experiments.optimum.programme import (
    TIME_LIMIT_S,
    Optimum,
    Programme,
    Status,
)
from leadline_controller.strategies.dacs import Dacs

_SLACK = 1e-6
_LONGEST_S = 1e12  # of contention: beyond, and where 2^k ends, all are equally hopeless


@dataclass(frozen=True, slots=True, eq=False)
class Delays:
    """own_s[k - 1, j, i]: of pod j on node i while that holds k of the pods, without Gamma.
    shared_s[k, i]: Gamma of all k together. Seconds, weighted with alpha."""

    own_s: Floats
    shared_s: Floats

    def of(self, nodes: Ints) -> float:
        """The average over the pods, each on the node with this index; -1 is on none."""
        pods = np.flatnonzero(nodes >= 0)
        held = np.bincount(nodes[pods], minlength=self.shared_s.shape[1])
        own = self.own_s[held[nodes[pods]] - 1, pods, nodes[pods]].sum()
        shared = self.shared_s[held, np.arange(held.size)].sum()
        return float(own + shared) / max(pods.size, 1)


def delays(view: ClusterView, pods: Sequence[Pod], dacs: Dacs) -> Delays:
    """What the strategy itself makes of every pod on every node, for each number of pods that
    might share it."""
    counts = np.arange(len(pods))
    every = np.arange(len(view))
    own = np.zeros((len(pods), len(pods), len(view)))
    for k in counts + 1:
        crowded = _with_free_cpu(view, view.free(CPU) // k)
        for j, pod in enumerate(pods):
            parts = dacs.score(crowded, pod, every).parts
            own[k - 1, j] = (
                dacs.alpha * parts["processing_s"] + (1 - dacs.alpha) * parts["network_s"]
            )
    beside = view.placed_in_run + counts[:, np.newaxis]
    gamma = np.minimum(contention_s(beside, dacs.beta_cs, dacs.beta_rc), _LONGEST_S)
    none = np.zeros((1, len(view)))
    return Delays(own, np.concatenate((none, np.cumsum(gamma, axis=0))))


def _with_free_cpu(view: ClusterView, free: Ints) -> ClusterView:
    return replace(view, requested={**view.requested, CPU: view.table.allocatable(CPU) - free})


def average_delay_s(
    view: ClusterView, pods: Sequence[Pod], dacs: Dacs, placement: Mapping[str, str]
) -> float:
    """Eq. 3's objective, with Gamma, of a placement of all the pods, in seconds. placement:
    pod's key -> node's name. Raises KeyError for a pod or node that is missing."""
    nodes = [view.table.index[placement[pod.key]] for pod in pods]
    return delays(view, pods, dacs).of(np.array(nodes, dtype=np.int64))


def best(
    view: ClusterView,
    pods: Sequence[Pod],
    dacs: Dacs,
    filters: Mapping[str, Filter],
    time_limit_s: float = TIME_LIMIT_S,
) -> Optimum:
    """The placement of all the pods with the least average delay, in seconds."""
    if not pods:
        return Optimum(0.0, {}, "optimal", 0.0)
    problem = stuck(view, pods)
    if problem:
        return Optimum.infeasible(problem)
    may, cost, space = allowed(view, pods, filters), delays(view, pods, dacs), room(view, pods)
    for pod, row in zip(pods, may, strict=True):
        if not row.any():
            return Optimum.infeasible(f"pod {pod.key} fits no node")
    status, gap, nodes = _solve(may, cost, space, time_limit_s)
    if nodes is None:
        why = "the nodes can't hold all pods at once" if status == "infeasible" else "no time left"
        return Optimum(nan, {}, status, gap, why=why)
    names = view.table.names
    placement = {pod.key: names[node] for pod, node in zip(pods, nodes.tolist(), strict=True)}
    why = refusal(view, pods, placement, filters)
    if why and status == "optimal":
        status = "bound"
    return Optimum(cost.of(nodes), placement, status, gap, why=why)


def _solve(
    may: Bools, cost: Delays, space: Room, time_limit_s: float
) -> tuple[Status, float, Ints | None]:
    """The node of each pod, with status and gap."""
    classes = _classes(may, cost, space)
    first = [members[0] for members in classes]
    programme = Programme(time_limit_s)
    places: list[list[tuple[int, object]]] = [[] for _ in classes]
    for node, most in enumerate(_levels(may, cost, space)):
        chosen = []
        for k in most:
            level = programme.integer(1, float(cost.shared_s[k, node]))
            chosen.append(level)
            held = []
            for c, members in enumerate(classes):
                if may[members[0], node]:
                    at = float(cost.own_s[k - 1, members[0], node])
                    here = programme.integer(min(k, len(members)), at)
                    held.append((c, here))
                    places[c].append((node, here))
            programme.add(programme.total(here for _, here in held) == k * level)
            for wants, size in zip(space.wants[:, first], space.capacity[:, node], strict=True):
                taken = programme.total(float(wants[c]) * here for c, here in held)
                programme.add(taken <= float(size) * level)
        if chosen:
            programme.add(programme.total(chosen) <= 1)
    for members, counts in zip(classes, places, strict=True):
        programme.add(programme.total(here for _, here in counts) == len(members))
    found = programme.minimise()
    if not found.values.size:
        return found.status, found.gap, None
    nodes = np.zeros(may.shape[0], dtype=np.int64)
    for members, counts in zip(classes, places, strict=True):
        nodes[members] = [
            node for node, here in counts for _ in range(int(found.values[here.index]))
        ]
    return found.status, found.gap, nodes


def _classes(may: Bools, cost: Delays, space: Room) -> list[list[int]]:
    """Positions of pods that nothing tells apart."""
    found: dict[tuple[bytes, bytes, bytes], list[int]] = {}
    for j in range(may.shape[0]):
        key = may[j].tobytes(), cost.own_s[:, j].tobytes(), space.wants[:, j].tobytes()
        found.setdefault(key, []).append(j)
    return list(found.values())


def _levels(may: Bools, cost: Delays, space: Room) -> list[list[int]]:
    """The numbers of pods that each node can hold in a placement that is no worse than one
    already known."""
    nodes = start.placement(lambda some: cost.of(some) * np.count_nonzero(some >= 0), may, space)
    known = np.inf if nodes is None else cost.of(nodes) * nodes.size
    own = np.where(may, cost.own_s, np.inf)
    least = own.min(axis=(0, 2))
    levels = []
    for node, most in enumerate(space.most(may)):
        extra = np.cumsum(np.sort(own[:, :, node] - least, axis=1), axis=1)
        bound = [cost.shared_s[k, node] + extra[k - 1, k - 1] for k in range(1, most + 1)]
        worth = np.array(bound) + least.sum() <= known + _SLACK
        levels.append((np.flatnonzero(worth) + 1).tolist())
    return levels
