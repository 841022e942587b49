"""The least average delay that any placement has: DACS' problem (Eq. 3-7), solved exactly.

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes".

Minimise (1/|U|) * sum over users of alpha * D_p + (1 - alpha) * D_n (Eq. 3), every pod on one
node (Eq. 5, 7), what pods ask for within what each node has (Eq. 6). Three things the paper's
programme leaves open:

- Eq. 7 says "at most one node", and then placing nothing would have no delay at all. Every pod
  is placed here; where that can't be, the answer is "infeasible".
- D_p depends on r_i, what is left of a node's CPU (Eq. 8-9), which falls as Algorithm 1 places
  pod after pod (Eq. 14). A programme chooses all places at once and knows no order, and with
  r_i as it was at the start for everyone, all pods would best be heaped on the largest node. So
  the pods that share a node share what was left of it: beside Eq. 9's limits, each of k pods can
  have no more than r_i / k, that is A = max{c, min{phi * r_i, l, r_i / k}}, as a kernel shares
  processors among programs at work. For k = 1 this is Eq. 9 to the letter.
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
from dataclasses import dataclass, field, replace
from math import nan

import numpy as np
from leadline_controller.framework.cycle import Filter
from leadline_controller.framework.model import CPU, Pod
from leadline_controller.framework.node_table import Bools, Floats, Ints
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.shared.contention import contention_s

from leadline_experiments.optimum import start
from leadline_experiments.optimum.feasible import Room, allowed, refusal, room, stuck
from leadline_experiments.optimum.programme import (
    TIME_LIMIT_S,
    Optimum,
    Programme,
    Status,
    Variable,
)

_SLACK_S = 1e-6
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
        crowded = _shared(view, int(k), dacs.phi)
        for j, pod in enumerate(pods):
            parts = dacs.score(crowded, pod, every).parts
            own[k - 1, j] = (
                dacs.alpha * parts["processing_s"] + (1 - dacs.alpha) * parts["network_s"]
            )
    beside = view.placed_in_run + counts[:, np.newaxis]
    gamma = np.minimum(contention_s(beside, dacs.beta_cs, dacs.beta_rc), _LONGEST_S)
    none = np.zeros((1, len(view)))
    return Delays(own, np.concatenate((none, np.cumsum(gamma, axis=0))))


def _shared(view: ClusterView, pods: int, phi: float) -> ClusterView:
    """A view in which phi times the CPU that is left is min{phi * r, r / k}, in whole thousandths
    of a core, so that the strategy's own Eq. 9 comes to each pod's part."""
    free = view.free(CPU)
    part = np.floor(free / max(1.0, pods * phi)).astype(np.int64)
    return replace(view, requested={**view.requested, CPU: view.table.allocatable(CPU) - part})


def average_delay_s(
    view: ClusterView, pods: Sequence[Pod], dacs: Dacs, placement: Mapping[str, str]
) -> float:
    """Eq. 3's objective, with Gamma, of a placement of all the pods, in seconds. placement:
    pod's key -> node's name. Raises KeyError for a pod or node that is missing."""
    return delays(view, pods, dacs).of(nodes_of(view, pods, placement))


def nodes_of(view: ClusterView, pods: Sequence[Pod], placement: Mapping[str, str]) -> Ints:
    """The index of each pod's node, shape (pods,). Raises KeyError."""
    return np.array([view.table.index[placement[pod.key]] for pod in pods], dtype=np.int64)


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
    known = start.placement(lambda some: cost.of(some) * np.count_nonzero(some >= 0), may, space)
    model = _Model(Programme(time_limit_s), _classes(may, cost, space))
    for node, levels in enumerate(_levels(may, cost, space, known)):
        model.add_node(node, levels, may, cost, space)
    model.place_all()
    found = model.programme.minimise(known=None if known is None else model.values(known))
    return found.status, found.gap, model.nodes(found.values) if found.values.size else None


@dataclass(frozen=True, slots=True)
class _Model:
    """The programme as it grows. classes: positions of the pods of each. levels: z[i,k].
    places: x[c,i,k]."""

    programme: Programme
    classes: list[list[int]]
    levels: dict[tuple[int, int], Variable] = field(default_factory=dict)
    places: dict[tuple[int, int, int], Variable] = field(default_factory=dict)

    def add_node(self, node: int, levels: list[int], may: Bools, cost: Delays, space: Room) -> None:
        """The variables of a node that may hold so many pods, and what it has room for."""
        add, total = self.programme.add, self.programme.total
        first = [(c, members[0], len(members)) for c, members in enumerate(self.classes)]
        allowed = [each for each in first if may[each[1], node]]
        for k in levels:
            level = self.programme.integer(1, float(cost.shared_s[k, node]))
            held = [
                (pod, self.programme.integer(min(k, size), float(cost.own_s[k - 1, pod, node])))
                for _, pod, size in allowed
            ]
            self.levels[node, k] = level
            for (c, _, _), (_, x) in zip(allowed, held, strict=True):
                self.places[c, node, k] = x
            add(total(x for _, x in held) == k * level)
            for wants, size in zip(space.wants, space.capacity[:, node], strict=True):
                add(total(float(wants[pod]) * x for pod, x in held) <= float(size) * level)
        if levels:
            add(total(self.levels[node, k] for k in levels) <= 1)

    def place_all(self) -> None:
        """Every pod is on a node."""
        for c, members in enumerate(self.classes):
            somewhere = [x for (of, _, _), x in self.places.items() if of == c]
            self.programme.add(self.programme.total(somewhere) == len(members))

    def values(self, nodes: Ints) -> dict[int, float]:
        """The variables' values for a placement, those that are not 0."""
        held = np.bincount(nodes)
        values: dict[int, float] = {}
        for node in np.flatnonzero(held).tolist():
            values[self.levels[node, int(held[node])].index] = 1.0
        for c, members in enumerate(self.classes):
            for node in nodes[members].tolist():
                x = self.places[c, node, int(held[node])].index
                values[x] = values.get(x, 0.0) + 1.0
        return values

    def nodes(self, values: Floats) -> Ints:
        """The node of each pod, from the variables' values."""
        nodes = np.zeros(sum(map(len, self.classes)), dtype=np.int64)
        left = [iter(members) for members in self.classes]
        for (c, node, _), x in self.places.items():
            for _ in range(int(values[x.index])):
                nodes[next(left[c])] = node
        return nodes


def _classes(may: Bools, cost: Delays, space: Room) -> list[list[int]]:
    """Positions of pods that nothing tells apart."""
    found: dict[tuple[bytes, bytes, bytes], list[int]] = {}
    for j in range(may.shape[0]):
        key = may[j].tobytes(), cost.own_s[:, j].tobytes(), space.wants[:, j].tobytes()
        found.setdefault(key, []).append(j)
    return list(found.values())


def _levels(may: Bools, cost: Delays, space: Room, known: Ints | None) -> list[list[int]]:
    """The numbers of pods that each node can hold in a placement no worse than a known one: a
    level is left out where even the pods that it costs least, and all others where they cost
    least, come to more."""
    limit = np.inf if known is None else cost.of(known) * known.size + _SLACK_S
    own = np.where(may, cost.own_s, np.inf)
    least = own.min(axis=(0, 2))
    levels = []
    for node, most in enumerate(space.most(may)):
        extra = np.cumsum(np.sort(own[:most, :, node] - least, axis=1), axis=1)
        total = extra.diagonal() + cost.shared_s[1 : most + 1, node] + least.sum()
        levels.append((np.flatnonzero(total <= limit) + 1).tolist())
    return levels
