"""The least average delay of any placement: DACS' problem (Eq. 3-7), solved exactly.

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes".

Minimise (1/|U|) * sum over users of alpha * D_p + (1 - alpha) * D_n (Eq. 3), every pod on one
node (Eq. 5, 7), the requests within the node's capacity (Eq. 6). The paper's programme leaves three
things open:

- Eq. 7 says "at most one node", so that an empty placement would have no delay. Here every pod
  is placed, or the problem is infeasible.
- D_p depends on r_i, the CPU left on a node (Eq. 8-9), which falls as Algorithm 1 places pod after
  pod (Eq. 14). A programme places all pods at once and has no order, and with the r_i of the
  start for every pod, all pods on the largest node would be best. So the pods of a node share
  what was left: beside Eq. 9's limits, each of k pods gets r_i / k at most, that is
  A = max{c, min{phi * r_i, l, r_i / k}}, as a kernel shares processors. For k = 1 this is Eq. 9.
- Eq. 6 holds for the requests of all pods on a node together, which is what a cluster guarantees
  (c, "the minimum guaranteed number").

Gamma (Eq. 18) is counted as in Algorithm 2: nothing for the first pod on a node, the cost of one
pod beside it for the second, and so on. For k pods the sum is the same in any order.

So the delay of a pod depends on its node and on k alone. Binaries z[i,k], "node i holds k pods",
and integers x[c,i,k], "the number of pods of class c on node i if it holds k pods", make that
linear: sum_c x[c,i,k] = k * z[i,k], sum_k z[i,k] <= 1, and capacities in the form
sum_c request_c * x[c,i,k] <= capacity_i * z[i,k]. Identical pods form one class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan

import numpy as np
from leadline_controller.framework.cycle import Filter
from leadline_controller.framework.model import CPU, Pod
from leadline_controller.framework.node_table import Bools, Floats, Ints
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kubedsm.packing import group_equal
from leadline_controller.strategies.shared.delays import contention_s

from leadline_experiments.optimum.programme import (
    TIME_LIMIT_S,
    Optimum,
    Programme,
    Resources,
    Variable,
    allowed,
    nodes_of,
    refusal,
    resources_of,
    unschedulable_reason,
)

_MAX_CONTENTION_S = 1e12  # larger values, and an overflow of 2^k, make no difference


@dataclass(frozen=True, slots=True, eq=False)
class Delays:
    """Delays in seconds, weighted with alpha. own_s[k - 1, j, i]: of pod j on node i if the node
    holds k of the pods, without Gamma. shared_s[k, i]: the sum of Gamma over these k pods."""

    own_s: Floats
    shared_s: Floats
    pods: Mapping[str, int]  # index of each pod by key
    nodes: Mapping[str, int]  # index of each node by name

    @classmethod
    def of(cls, view: ClusterView, pods: Sequence[Pod], dacs: Dacs) -> "Delays":
        """The delays by the strategy's own score, of every pod on every node, for each number of
        pods on it."""
        counts = np.arange(len(pods))
        every = np.arange(len(view))
        own = np.zeros((len(pods), len(pods), len(view)))
        for k in counts + 1:
            shared = _view_for_shared_cpu(view, int(k), dacs.phi)
            for j, pod in enumerate(pods):
                parts = dacs.score(shared, pod, every).parts
                own[k - 1, j] = (
                    dacs.alpha * parts["processing_s"] + (1 - dacs.alpha) * parts["network_s"]
                )
        beside = view.placed_in_run + counts[:, np.newaxis]
        gamma = np.minimum(contention_s(beside, dacs.beta_cs, dacs.beta_rc), _MAX_CONTENTION_S)
        none = np.zeros((1, len(view)))
        by_key = {pod.key: j for j, pod in enumerate(pods)}
        sums = np.concatenate((none, np.cumsum(gamma, axis=0)))
        return cls(own, sums, by_key, view.table.index)

    def total_s(self, nodes: Ints) -> float:
        """The sum over the placed pods. nodes: of each pod, -1 for a pod without a node."""
        pods = np.flatnonzero(nodes >= 0)
        held = np.bincount(nodes[pods], minlength=self.shared_s.shape[1])
        own = self.own_s[held[nodes[pods]] - 1, pods, nodes[pods]].sum()
        return float(own + self.shared_s[held, np.arange(held.size)].sum())

    def average_s(self, placement: Mapping[str, str]) -> float | None:
        """Eq. 3's objective, with Gamma. placement: pod's key -> node's name; None if pods are
        missing."""
        if len(placement) < len(self.pods):
            return None
        nodes = np.array([self.nodes[placement[key]] for key in self.pods], dtype=np.int64)
        return self.total_s(nodes) / nodes.size


def _view_for_shared_cpu(view: ClusterView, pods: int, phi: float) -> ClusterView:
    """A view in which phi times the free CPU is min{phi * r, r / k}, in whole thousandths of a
    core, so that the strategy's own Eq. 9 gives the share of one of k pods."""
    free = view.free(CPU)
    part = np.floor(free / max(1.0, pods * phi)).astype(np.int64)
    return replace(view, requested={**view.requested, CPU: view.table.allocatable(CPU) - part})


def best(
    view: ClusterView,
    pods: Sequence[Pod],
    dacs: Dacs,
    filters: Mapping[str, Filter],
    time_limit_s: float = TIME_LIMIT_S,
) -> Optimum:
    """The placement of all pods with the least average delay, in seconds."""
    if not pods:
        return Optimum(0.0, {}, "optimal", 0.0)
    reason = unschedulable_reason(pods)
    if reason:
        return Optimum.infeasible(reason)
    may = allowed(view, pods, filters)
    for pod, row in zip(pods, may, strict=True):
        if not row.any():
            return Optimum.infeasible(f"pod {pod.key} fits no node")
    cost, resources = Delays.of(view, pods, dacs), resources_of(view, pods)
    model = _Model(Programme(time_limit_s), may, cost, resources)
    found = model.programme.minimise()
    if not found.values.size:
        infeasible = found.status == "infeasible"
        why = "the nodes can't hold all pods at once" if infeasible else "no time left"
        return Optimum(nan, {}, found.status, found.gap, why=why)
    held = ((c, node, x) for (c, node, _), x in model.places.items())
    nodes = nodes_of(model.classes, held, found.values)
    names = view.table.names
    placement = {pod.key: names[node] for pod, node in zip(pods, nodes.tolist(), strict=True)}
    why = refusal(view, pods, placement, filters)
    status = "bound" if why and found.status == "optimal" else found.status
    return Optimum(cost.total_s(nodes) / len(pods), placement, status, found.gap, why=why)


class _Model:
    """The programme and its variables. classes: the indexes of the pods of each class. counts:
    z[i,k]. places: x[c,i,k]."""

    def __init__(
        self,
        programme: Programme,
        may: Bools,
        cost: Delays,
        resources: Resources,
    ) -> None:
        self.programme = programme
        self.counts: dict[tuple[int, int], Variable] = {}
        self.places: dict[tuple[int, int, int], Variable] = {}
        self.classes = group_equal(
            (may[j].tobytes(), cost.own_s[:, j].tobytes(), resources.requests[:, j].tobytes())
            for j in range(len(may))
        )
        for node, most in enumerate(resources.most(may)):
            counts = range(1, most + 1)
            for k in counts:
                self._add_count(node, k, may, cost, resources)
            if counts:
                programme.add(programme.total(self.counts[node, k] for k in counts) <= 1)
        for c, members in enumerate(self.classes):
            placed = [x for (of, _, _), x in self.places.items() if of == c]
            programme.add(programme.total(placed) == len(members))

    def _add_count(self, node: int, k: int, may: Bools, cost: Delays, resources: Resources) -> None:
        """Add the variables and the capacity of a node that holds k pods."""
        add, total = self.programme.add, self.programme.total
        holds_k = self.programme.integer(1, float(cost.shared_s[k, node]))
        self.counts[node, k] = holds_k
        held: dict[int, Variable] = {}
        for c, (pod, *others) in enumerate(self.classes):
            if may[pod, node]:
                most = min(k, 1 + len(others))
                held[pod] = self.programme.integer(most, float(cost.own_s[k - 1, pod, node]))
                self.places[c, node, k] = held[pod]
        add(total(held.values()) == k * holds_k)
        for requests, size in zip(resources.requests, resources.capacity[:, node], strict=True):
            used = total(float(requests[pod]) * x for pod, x in held.items())
            add(used <= float(size) * holds_k)
