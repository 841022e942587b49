"""The highest quality of service of any placement, with the fewest migrations: KubeDSM's problem
(Eq. 9), solved exactly.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 1-9.

First maximise the sum over services of F(share of its pods on the edge - Q) (Eq. 1-5). Then
minimise the running pods that move (Eq. 6: each counts once). Each pod is on at most one edge node,
and in the cloud otherwise (Eq. 7), within the capacity of the edge nodes (Eq. 8); the capacity of
the cloud is unlimited. Beyond the paper, the filters choose the edge nodes of a pod, and a pod that
no cloud node accepts stays on the edge.

Identical pods form one group, and n[g,k] is the number of pods of group g on edge node k. F has a
jump and two slopes, but the share has only as many values as the service has pods. So binaries
y[s,e], "e pods of service s are on the edge", with sum_e y[s,e] = 1 and sum_e e * y[s,e] = the pods
of s on the edge, make F linear without a big constant. The second goal is a second programme: the
same one, with the first one's quality as a constraint.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np
from leadline_controller.framework.batch import Running
from leadline_controller.framework.cycle import Filter
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import Bools, Floats, Ints
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.kubedsm.decision import Quality
from leadline_controller.strategies.shared.capacity import is_cloud
from leadline_controller.strategies.shared.services import service_of

from leadline_experiments.optimum.feasible import (
    Resources,
    reachable,
    refusal,
    resources_of,
    unschedulable_reason,
)
from leadline_experiments.optimum.programme import (
    TIME_LIMIT_S,
    Optimum,
    Programme,
    Solution,
    Sum,
    Variable,
)

_SLACK = 1e-7  # of the quality, when migrations are minimised
_CLOUD, _NEW = -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The pods to place; the arrays have one entry per pod.

    source: index of the pod's edge node, or _CLOUD or _NEW. may: allowed edge nodes, shape (pods,
    nodes). may_leave: whether the cloud accepts the pod. service: index of its service.
    """

    pods: tuple[Pod, ...]
    source: Ints
    may: Bools
    may_leave: Bools
    resources: Resources
    service: Ints

    def moved(self, nodes: Ints) -> Bools:
        """The running pods that move. nodes: the edge node of each pod, or _CLOUD."""
        moved: Bools = (self.source != _NEW) & (self.source != nodes)
        return moved

    @property
    def groups(self) -> list[list[int]]:
        """The indexes of identical pods."""
        found: dict[Hashable, list[int]] = {}
        for j in range(len(self.pods)):
            requests, may = self.resources.requests[:, j].tobytes(), self.may[j].tobytes()
            key = int(self.service[j]), int(self.source[j]), bool(self.may_leave[j]), requests, may
            found.setdefault(key, []).append(j)
        return list(found.values())


def quality(
    view: ClusterView, pods: Sequence[Pod], kubedsm: KubeDsm, placement: Mapping[str, str]
) -> float:
    """QoS (Eq. 1) of a placement of these pods. placement: pod's key -> node's name; a missing pod
    is not on the edge. A service's target is the highest of its pods."""
    cloud = is_cloud(view)
    nodes = [placement.get(pod.key) for pod in pods]
    on_edge = [name is not None and not cloud[view.table.index[name]] for name in nodes]
    held = np.bincount(_services(pods), weights=np.array(on_edge, dtype=np.float64))
    return float(_quality(pods, kubedsm).of(held.astype(np.int64)))


def _services(pods: Sequence[Pod]) -> Ints:
    """The index of each pod's service; a pod without a service is a service of its own."""
    numbers: dict[Hashable, int] = {}
    keys: list[Hashable] = [service_of(pod) or pod.key for pod in pods]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _quality(pods: Sequence[Pod], kubedsm: KubeDsm) -> Quality:
    """The strategy's own QoS measure, over the services of these pods."""
    services = _services(pods)
    total = np.bincount(services)
    target = np.full(total.size, np.nan)
    for pod, service in zip(pods, services.tolist(), strict=True):
        if pod.annotations.qos_edge_ratio is not None:
            target[service] = np.fmax(target[service], pod.annotations.qos_edge_ratio)
    target = np.where(np.isnan(target), kubedsm.qos_target, target)
    return Quality(total, target, kubedsm.a, kubedsm.b, kubedsm.gamma)


def best(
    view: ClusterView,
    pending: Sequence[Pod],
    running: Sequence[Running],
    kubedsm: KubeDsm,
    filters: Mapping[str, Filter],
    time_limit_s: float = TIME_LIMIT_S,
) -> Optimum:
    """The placement with the highest QoS and, among those, the fewest migrations. It names only
    pods on the edge; the others are in the cloud. Running pods that are terminating, or that no
    node would accept again, stay where they are."""
    if not pending and not running:
        return Optimum(0.0, {}, "optimal", 0.0)
    reason = unschedulable_reason(view, pending)
    if reason:
        return Optimum.infeasible(reason)
    movable = [
        each
        for each in running
        if not each[0].terminating and not unschedulable_reason(view, [each[0]])
    ]
    fixed = [each for each in running if each not in movable]
    problem = _problem(view, pending, movable, fixed, filters)
    for pod, may, may_leave in zip(problem.pods, problem.may, problem.may_leave, strict=True):
        if not may.any() and not may_leave:
            return Optimum.infeasible(f"pod {pod.key} fits no node of edge or cloud")
    everyone = (*problem.pods, *(pod for pod, _ in fixed))
    cloud = is_cloud(view)
    fixed_on_edge = {pod.key: view.table.names[node] for pod, node in fixed if not cloud[node]}
    qos = _ServiceQos.of(everyone, fixed_on_edge, _quality(everyone, kubedsm))
    solution, nodes = _solve(problem, qos, time_limit_s)
    if nodes is None:
        why = "the edge can't hold all that must be there"
        why = why if solution.status == "infeasible" else "no time left"
        return Optimum(nan, {}, solution.status, solution.gap, why=why)
    names = view.table.names
    pairs = zip(problem.pods, nodes.tolist(), strict=True)
    on_edge = {pod.key: names[node] for pod, node in pairs if node >= 0}
    placement = {**fixed_on_edge, **on_edge}
    why = _refusal(view, problem, nodes, on_edge, filters)
    status = "bound" if why and solution.status == "optimal" else solution.status
    value = quality(view, everyone, kubedsm, placement)
    return Optimum(value, placement, status, solution.gap, int(problem.moved(nodes).sum()), why)


def _problem(
    view: ClusterView,
    pending: Sequence[Pod],
    movable: Sequence[Running],
    fixed: Sequence[Running],
    filters: Mapping[str, Filter],
) -> _Problem:
    pods = (*pending, *(pod for pod, _ in movable))
    edge = ~is_cloud(view)
    places = {pod.key: node for pod, node in movable}
    reach = reachable(view, pods, places, filters)
    nodes = [places.get(pod.key, _NEW) for pod in pods]
    source = np.array([_CLOUD if n >= 0 and not edge[n] else n for n in nodes], dtype=np.int64)
    may_leave = (reach & ~edge).any(axis=1) | (source == _CLOUD)
    services = _services((*pods, *(pod for pod, _ in fixed)))[: len(pods)]
    return _Problem(
        pods, source, reach & edge, may_leave, resources_of(view, pods, movable), services
    )


@dataclass(frozen=True, slots=True)
class _ServiceQos:
    """Per service: the pods fixed on the edge, and F for each number of its pods on the edge, from
    0 to all."""

    fixed: list[int]
    values: list[list[float]]

    @classmethod
    def of(cls, pods: Sequence[Pod], fixed: Mapping[str, str], quality: Quality) -> "_ServiceQos":
        is_fixed = np.array([pod.key in fixed for pod in pods], dtype=np.float64)
        counts = np.bincount(_services(pods), weights=is_fixed)
        on_edge = np.arange(int(quality.total.max(initial=0)) + 1)[:, np.newaxis]
        values = quality.each(np.minimum(on_edge, quality.total))
        sizes = enumerate(quality.total.tolist())
        return cls([int(n) for n in counts], [values[: size + 1, s].tolist() for s, size in sizes])


def _solve(
    problem: _Problem, qos: _ServiceQos, time_limit_s: float
) -> tuple[Solution, Ints | None]:
    """The solution, and the edge node of each pod, or _CLOUD; None without a solution."""
    model = _Model(Programme(time_limit_s), problem)
    model.add_placement()
    objective = model.add_qos(qos)
    first = model.programme.minimise(model.programme.total([-1.0 * objective]))
    if not first.values.size:
        return first, None
    highest = sum(
        qos.values[s][e] for (s, e), y in model.counts.items() if first.values[y.index] == 1
    )
    model.programme.add(objective >= highest - _SLACK)
    second = model.programme.minimise(model.migrations(), dict(enumerate(first.values.tolist())))
    values = second.values if second.values.size else first.values
    proved = first.status == second.status == "optimal"
    gap = max(first.gap, second.gap) if second.values.size else first.gap
    return Solution("optimal" if proved else "time limit", gap, values), model.nodes(values)


@dataclass(frozen=True, slots=True)
class _Model:
    """The programme and its variables. held: n[g,k]. counts: y[s,e]."""

    programme: Programme
    problem: _Problem
    held: dict[tuple[int, int], Variable] = field(default_factory=dict)
    counts: dict[tuple[int, int], Variable] = field(default_factory=dict)

    def add_placement(self) -> None:
        """Add Eq. 7 and 8."""
        problem, total = self.problem, self.programme.total
        first = [members[0] for members in problem.groups]
        for g, members in enumerate(problem.groups):
            for node in np.flatnonzero(problem.may[first[g]]).tolist():
                self.held[g, node] = self.programme.integer(len(members))
            on_edge = total(x for (of, _), x in self.held.items() if of == g)
            if problem.may_leave[first[g]]:
                self.programme.add(on_edge <= len(members))
            else:
                self.programme.add(on_edge == len(members))
        requests, capacity = problem.resources.requests, problem.resources.capacity
        for node in sorted({node for _, node in self.held}):
            here = [(first[g], x) for (g, at), x in self.held.items() if at == node]
            for amounts, size in zip(requests, capacity[:, node], strict=True):
                self.programme.add(total(float(amounts[j]) * x for j, x in here) <= float(size))

    def add_qos(self, qos: _ServiceQos) -> Sum:
        """Add Eq. 1-5 and return the quality of service."""
        total = self.programme.total
        service = [int(self.problem.service[members[0]]) for members in self.problem.groups]
        for s, (fixed, values) in enumerate(zip(qos.fixed, qos.values, strict=True)):
            for e in range(len(values)):
                self.counts[s, e] = self.programme.integer(1)
            chosen = [self.counts[s, e] for e in range(len(values))]
            self.programme.add(total(chosen) == 1)
            placed = total(x for (g, _), x in self.held.items() if service[g] == s)
            self.programme.add(total(e * y for e, y in enumerate(chosen)) - placed == fixed)
        return total(qos.values[s][e] * y for (s, e), y in self.counts.items())

    def migrations(self) -> Sum:
        """Eq. 6, up to a constant: pods that leave the cloud, less pods that stay on their node."""
        source = [int(self.problem.source[members[0]]) for members in self.problem.groups]
        arrived = [x for (g, _), x in self.held.items() if source[g] == _CLOUD]
        stayed = [-1.0 * x for (g, node), x in self.held.items() if source[g] == node]
        return self.programme.total([*arrived, *stayed])

    def nodes(self, values: Floats) -> Ints:
        """The edge node of each pod, or _CLOUD."""
        nodes = np.full(len(self.problem.pods), _CLOUD, dtype=np.int64)
        left = [iter(members) for members in self.problem.groups]
        for (g, node), x in self.held.items():
            for _ in range(int(values[x.index])):
                nodes[next(left[g])] = node
        return nodes


def _refusal(
    view: ClusterView,
    problem: _Problem,
    nodes: Ints,
    on_edge: Mapping[str, str],
    filters: Mapping[str, Filter],
) -> str:
    """The first reason of a filter against the pods that come to an edge node, after all moving
    pods have left theirs."""
    moved = problem.moved(nodes)
    for j in np.flatnonzero(moved & (problem.source >= 0)).tolist():
        view = view.without_placement(problem.pods[j], int(problem.source[j]))
    arriving = np.flatnonzero((nodes >= 0) & (moved | (problem.source == _NEW)))
    return refusal(view, [problem.pods[j] for j in arriving], on_edge, filters)
