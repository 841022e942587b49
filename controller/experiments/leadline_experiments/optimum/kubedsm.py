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

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from leadline_controller.framework.batch import Running
from leadline_controller.framework.cycle import Filter
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import Bools, Ints
from leadline_controller.framework.services import service_of
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.kubedsm.decision import Quality
from leadline_controller.strategies.kubedsm.packing import group_equal
from leadline_controller.strategies.shared.capacity import is_cloud

from leadline_experiments.optimum.programme import (
    Optimum,
    Programme,
    Resources,
    Solution,
    Sum,
    Variable,
    allowed,
    nodes_of,
    refusal,
    resources_of,
    unschedulable_reason,
)

_SLACK = 1e-7  # of the quality, when migrations are minimised
_CLOUD, _NEW = -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The pods to place; the arrays have one entry per pod, or per service where that is said."""

    pods: Sequence[Pod]
    source: Ints  # index of the pod's edge node, or _CLOUD or _NEW
    may: Bools  # allowed edge nodes, shape (pods, nodes)
    may_leave: Bools  # whether the cloud accepts the pod
    resources: Resources
    service: Ints  # index of its service
    quality: Quality  # of all services
    fixed: Sequence[int]  # each service's pods on the edge that cannot be moved

    def moved(self, nodes: Ints) -> Bools:
        """The running pods that move. nodes: the edge node of each pod, or _CLOUD."""
        moved: Bools = (self.source != _NEW) & (self.source != nodes)
        return moved

    def refusal(self, view: ClusterView, nodes: Ints, filters: Mapping[str, Filter]) -> str:
        """The first reason of a filter against the pods that come to an edge node, after all moving
        pods have left theirs."""
        moved = self.moved(nodes)
        for j in np.flatnonzero(moved & (self.source >= 0)).tolist():
            view = view.without_placement(self.pods[j], int(self.source[j]))
        arriving = np.flatnonzero((nodes >= 0) & (moved | (self.source == _NEW))).tolist()
        placement = {self.pods[j].key: view.table.names[nodes[j]] for j in arriving}
        return refusal(view, [self.pods[j] for j in arriving], placement, filters)


def quality(
    view: ClusterView, pods: Sequence[Pod], kubedsm: KubeDsm, placement: Mapping[str, str]
) -> float:
    """QoS (Eq. 1) of a placement of these pods. placement: pod's key -> node's name; a missing pod
    is not on the edge. A service's target is the highest of its pods."""
    cloud = is_cloud(view)
    on_edge = {key for key, name in placement.items() if not cloud[view.table.index[name]]}
    return float(_quality(pods, kubedsm).of(_held(pods, on_edge)))


def _services(pods: Sequence[Pod]) -> Ints:
    """The index of each pod's service; a pod without a service is a service of its own."""
    numbers: dict[Hashable, int] = {}
    keys: list[Hashable] = [service_of(pod) or pod.key for pod in pods]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _held(pods: Sequence[Pod], on_edge: Collection[str]) -> Ints:
    """The pods of each service whose keys are in `on_edge`."""
    weights = np.array([pod.key in on_edge for pod in pods], dtype=np.float64)
    return np.bincount(_services(pods), weights=weights).astype(np.int64)


def _quality(pods: Sequence[Pod], kubedsm: KubeDsm) -> Quality:
    """The strategy's own QoS measure, over the services of these pods."""
    services = _services(pods)
    total = np.bincount(services)
    target = np.full(total.size, np.nan)
    for pod, service in zip(pods, services.tolist(), strict=True):
        if pod.annotations.qos_edge_ratio is not None:
            target[service] = np.fmax(target[service], pod.annotations.qos_edge_ratio)
    target = np.where(np.isnan(target), kubedsm.qos_target, target)
    is_programs = kubedsm.qos == "program"
    return Quality(total, target, kubedsm.a, kubedsm.b, kubedsm.gamma, is_programs=is_programs)


def best(
    view: ClusterView,
    pending: Sequence[Pod],
    running: Sequence[Running],
    kubedsm: KubeDsm,
    filters: Mapping[str, Filter],
) -> Optimum:
    """The placement with the highest QoS and, among those, the fewest migrations. It names only
    pods on the edge; the others are in the cloud. Running pods that are terminating, or that no
    node would accept again, stay where they are."""
    if not pending and not running:
        return Optimum(0.0, {}, "optimal", 0.0)
    reason = unschedulable_reason(pending)
    if reason:
        return Optimum.infeasible(reason)
    edge, names = ~is_cloud(view), view.table.names
    fixed = [(pod, node) for pod, node in running if pod.terminating or unschedulable_reason([pod])]
    movable = [each for each in running if each not in fixed]
    places = {pod.key: node for pod, node in movable}
    pods = [*pending, *(pod for pod, _ in movable)]
    everyone = [*pods, *(pod for pod, _ in fixed)]
    reach = allowed(view, pods, filters, places)
    nodes = [places.get(pod.key, _NEW) for pod in pods]
    source = np.array([_CLOUD if n >= 0 and not edge[n] else n for n in nodes], dtype=np.int64)
    fixed_on_edge = {pod.key: names[node] for pod, node in fixed if edge[node]}
    problem = _Problem(
        pods,
        source,
        may=reach & edge,
        may_leave=(reach & ~edge).any(axis=1) | (source == _CLOUD),
        resources=resources_of(view, pods, movable),
        service=_services(everyone)[: len(pods)],
        quality=_quality(everyone, kubedsm),
        fixed=_held(everyone, fixed_on_edge).tolist(),
    )
    for pod, may, may_leave in zip(pods, problem.may, problem.may_leave, strict=True):
        if not may.any() and not may_leave:
            return Optimum.infeasible(f"pod {pod.key} fits no node of edge or cloud")
    solution, found = _solve(problem)
    if found is None:
        infeasible = solution.status == "infeasible"
        why = "the edge can't hold all that must be there" if infeasible else "no time left"
        return Optimum(nan, {}, solution.status, solution.gap, why=why)
    pairs = zip(pods, found.tolist(), strict=True)
    placement = {**fixed_on_edge, **{pod.key: names[node] for pod, node in pairs if node >= 0}}
    why = problem.refusal(view, found, filters)
    status = "bound" if why and solution.status == "optimal" else solution.status
    value = quality(view, everyone, kubedsm, placement)
    return Optimum(value, placement, status, solution.gap, int(problem.moved(found).sum()), why)


def _solve(problem: _Problem) -> tuple[Solution, Ints | None]:
    """The solution, and the edge node of each pod, or _CLOUD; None without a solution."""
    model = _Model(Programme(), problem)
    minimise, total = model.programme.minimise, model.programme.total
    qos = total(model.values[key] * y for key, y in model.counts.items())
    first = minimise(total([-1.0 * qos]))
    if not first.values.size:
        return first, None
    highest = sum(
        model.values[key] for key, y in model.counts.items() if first.values[y.index] == 1
    )
    model.programme.add(qos >= highest - _SLACK)
    second = minimise(model.migrations(), dict(enumerate(first.values.tolist())))
    values = second.values if second.values.size else first.values
    proved = first.status == second.status == "optimal"
    gap = max(first.gap, second.gap) if second.values.size else first.gap
    held = ((g, node, x) for (g, node), x in model.held.items())
    nodes = nodes_of(model.groups, held, values)
    return Solution("optimal" if proved else "time limit", gap, values), nodes


class _Model:
    """The programme and its variables. groups: the indexes of pods. held: n[g,k]. counts:
    y[s,e]. values: F of service s with e of its pods on the edge."""

    def __init__(self, programme: Programme, problem: _Problem) -> None:
        self.programme = programme
        self.problem = problem
        self.held: dict[tuple[int, int], Variable] = {}
        self.counts: dict[tuple[int, int], Variable] = {}
        self.values: dict[tuple[int, int], float] = {}
        requests, may = problem.resources.requests, problem.may
        labels = np.column_stack((problem.service, problem.source, problem.may_leave))
        self.groups = group_equal(
            (labels[j].tobytes(), requests[:, j].tobytes(), may[j].tobytes())
            for j in range(len(problem.pods))
        )
        self._add_placement()
        self._add_qos()

    def _add_placement(self) -> None:
        """Eq. 7 and 8."""
        problem, add, total = self.problem, self.programme.add, self.programme.total
        first = [members[0] for members in self.groups]
        for g, members in enumerate(self.groups):
            for node in np.flatnonzero(problem.may[first[g]]).tolist():
                self.held[g, node] = self.programme.integer(len(members))
            on_edge = total(x for (of, _), x in self.held.items() if of == g)
            may_leave = problem.may_leave[first[g]]
            add(on_edge <= len(members) if may_leave else on_edge == len(members))
        requests, capacity = problem.resources.requests, problem.resources.capacity
        for node in sorted({node for _, node in self.held}):
            here = [(first[g], x) for (g, at), x in self.held.items() if at == node]
            for amounts, size in zip(requests, capacity[:, node], strict=True):
                add(total(float(amounts[j]) * x for j, x in here) <= float(size))

    def _add_qos(self) -> None:
        """Eq. 1-5."""
        problem, add, total = self.problem, self.programme.add, self.programme.total
        service = [int(problem.service[members[0]]) for members in self.groups]
        sizes = problem.quality.total
        on_edge = np.arange(int(sizes.max()) + 1)[:, np.newaxis]
        values = problem.quality.each(np.minimum(on_edge, sizes))
        for s, (size, fixed) in enumerate(zip(sizes.tolist(), problem.fixed, strict=True)):
            chosen = [self.programme.integer(1) for _ in range(size + 1)]
            for e, y in enumerate(chosen):
                self.counts[s, e], self.values[s, e] = y, float(values[e, s])
            add(total(chosen) == 1)
            placed = total(x for (g, _), x in self.held.items() if service[g] == s)
            add(total(e * y for e, y in enumerate(chosen)) - placed == fixed)

    def migrations(self) -> Sum:
        """Eq. 6, up to a constant: pods that leave the cloud, less pods that stay on their node."""
        source = [int(self.problem.source[members[0]]) for members in self.groups]
        arrived = [x for (g, _), x in self.held.items() if source[g] == _CLOUD]
        stayed = [-1.0 * x for (g, node), x in self.held.items() if source[g] == node]
        return self.programme.total([*arrived, *stayed])
