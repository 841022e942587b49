"""A placement as a mixed-integer programme: the nodes that the filters allow each pod, the capacity
of the nodes, and the solver, HiGHS.

HiGHS is free, needs no licence key, and its authors maintain it and its Python interface, highspy,
whose modelling functions are used here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, inf, isfinite, nan
from typing import Literal, NamedTuple

import highspy
import numpy as np
from leadline_controller.framework.cycle import Filter, pre_filter_failure
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import Bools, Floats, Ints
from leadline_controller.framework.view import ClusterView

Variable = highspy.highs.highs_var
Sum = highspy.highs.highs_linear_expression
Status = Literal["optimal", "bound", "time limit", "infeasible"]
TIME_LIMIT_S = 60.0
_TOLERANCE = 1e-9
# These filters may pass once another pod is placed, so their result for the current cluster rules
# out no placement.
_DEPEND_ON_OTHER_PODS = frozenset({"InterPodAffinity", "PodTopologySpread"})


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """What pods request and nodes have. The unit of a resource is the largest in which its requests
    are whole numbers."""

    requests: Floats  # shape (resources, pods)
    capacity: Floats  # shape (resources, nodes)

    def most(self, allowed: Bools) -> list[int]:
        """An upper bound of the pods on each node: the smallest pods that fit, by the scarcest
        resource. allowed: shape (pods, nodes)."""
        most = []
        for node in range(allowed.shape[1]):
            pods = allowed[:, node]
            fit = [
                int(np.searchsorted(np.cumsum(np.sort(requests[pods])), size[node], side="right"))
                for requests, size in zip(self.requests, self.capacity, strict=True)
            ]
            most.append(min([int(pods.sum()), *fit]))
        return most


def resources_of(
    view: ClusterView, pods: Sequence[Pod], leaving: Sequence[tuple[Pod, int]] = ()
) -> Resources:
    """The free capacity (DACS Eq. 6, KubeDSM Eq. 8) without the `leaving` pods: every resource
    that a pod requests, and the link (DACS Eq. 16)."""
    requests: list[Floats] = []
    capacity: list[Floats] = []
    for resource in sorted({name for pod in pods for name, n in pod.requests.items() if n}):
        amounts = [pod.requests.get(resource, 0) for pod in pods]
        free = view.free(resource).copy()
        for pod, node in leaving:
            free[node] += pod.requests.get(resource, 0)
        unit = gcd(*amounts)
        requests.append(np.array(amounts, dtype=np.float64) / unit)
        capacity.append(np.maximum(free // unit, 0).astype(np.float64))
    links = [pod.annotations.bandwidth_mbps or 0.0 for pod in pods]
    if any(links):
        free_mbps = view.bandwidth_free_mbps().copy()
        for pod, node in leaving:
            free_mbps[node] += pod.annotations.bandwidth_mbps or 0.0
        requests.append(np.array(links))
        capacity.append(np.maximum(np.nan_to_num(free_mbps), 0.0))
    kinds = len(requests)
    return Resources(
        np.array(requests).reshape(kinds, len(pods)), np.array(capacity).reshape(kinds, len(view))
    )


def allowed(
    view: ClusterView,
    pods: Sequence[Pod],
    filters: Mapping[str, Filter],
    places: Mapping[str, int] | None = None,
) -> Bools:
    """The nodes that the filters allow each pod without the other pods, shape (pods, nodes).

    places: the node index of each running pod, by key. With it, other pods make room, and a running
    pod may stay. If a pod has constraints on other pods, filters that depend on other pods are left
    out; `refusal` checks them.
    """
    dependent = any(pod.affinity or pod.spread for pod in pods)
    skipped = _DEPEND_ON_OTHER_PODS if dependent else frozenset()
    tests = [test for name, test in filters.items() if name not in skipped]
    mask = np.ones((len(pods), len(view)), dtype=np.bool_)
    for pod, row in zip(pods, mask, strict=True):
        place = None if places is None else places.get(pod.key)
        without = view if place is None else view.without_placement(pod, place)
        for test in tests:
            result = test(without, pod)
            row &= result.passes if places is None else result.passes_with_preemption
        if place is not None:
            row[place] = True
    return mask


def unschedulable_reason(pods: Iterable[Pod]) -> str:
    """Why one of the pods can't be placed on any node; empty if all can."""
    problems = ((pod, pre_filter_failure(pod)) for pod in pods)
    return next((f"pod {pod.key}: {problem}" for pod, problem in problems if problem), "")


def refusal(
    view: ClusterView,
    pods: Iterable[Pod],
    placement: Mapping[str, str],
    filters: Mapping[str, Filter],
) -> str:
    """The first reason of a filter against placing the pods in this order; empty if there is
    none."""
    for pod in pods:
        node = view.table.index[placement[pod.key]]
        for name, test in filters.items():
            result = test(view, pod)
            if not result.passes[node]:
                where = f"pod {pod.key} on {placement[pod.key]}"
                return f"{where}: {name}: {result.reason(node)}"
        view = view.with_placement(pod, node)
    return ""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best placement found."""

    value: float  # of the objective, in its unit; NaN without a placement
    placement: Mapping[str, str]  # pod's key -> node's name
    # "optimal" is proved, and the filters accept every step. "bound" is proved too, but a filter
    # that depends on other pods, which the programme does not model, rejects the placement: no
    # strategy can beat the value, and perhaps none can reach it. "time limit": the best placement
    # found in time. "infeasible": the pods cannot all be placed.
    status: Status
    # The largest possible distance of `value` from the optimum, as a share of it; 0 is a proof of
    # optimality, infinity means that no bound is known.
    gap: float
    migrations: int = 0  # running pods that move
    why: str = ""  # the reason if the status is not "optimal"

    @property
    def proved(self) -> bool:
        """Whether no placement is better."""
        return self.status in ("optimal", "bound")

    @classmethod
    def infeasible(cls, why: str) -> "Optimum":
        """A proof that the pods cannot all be placed."""
        return cls(nan, {}, "infeasible", inf, why=why)


class Solution(NamedTuple):
    """The solver's answer."""

    status: Status
    gap: float
    # Of the variables in the order of their creation, rounded to whole numbers; empty without a
    # solution.
    values: Floats = np.zeros(0)


class Programme:
    """A programme to build and solve. The solver runs on one thread with a fixed seed. It stops
    early only at its time limit, as the default gap of 0.01 % is set to 0."""

    def __init__(self, time_limit_s: float = TIME_LIMIT_S) -> None:
        self.solver: highspy.Highs = highspy.Highs()  # type: ignore[no-untyped-call]  # HiGHS' own
        self.solver.silent()
        options: Mapping[str, float] = {
            "threads": 1,
            "random_seed": 0,
            "time_limit": time_limit_s,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": _TOLERANCE,
            "mip_feasibility_tolerance": _TOLERANCE,
            "primal_feasibility_tolerance": _TOLERANCE,
        }
        for name, value in options.items():
            self.solver.setOptionValue(name, value)

    def integer(self, most: float, cost: float = 0.0) -> Variable:
        """Add an integer variable from 0 to `most`; `cost` is its objective coefficient."""
        kind = highspy.HighsVarType.kInteger
        variable: Variable = self.solver.addVariable(lb=0, ub=most, obj=cost, type=kind)
        return variable

    def add(self, constraint: Sum) -> None:
        """Add a constraint: a comparison of sums."""
        self.solver.addConstr(constraint)

    def total(self, terms: Iterable[Variable | Sum]) -> Sum:
        """The sum of variables, or of numbers times variables."""
        total: Sum = self.solver.qsum(terms)
        return total

    def minimise(
        self, objective: Sum | None = None, known: Mapping[int, float] | None = None
    ) -> Solution:
        """Solve the programme. objective: replaces the variables' costs. known: a solution to
        start from, its non-zero values by the variable's index."""
        if known is not None:
            values = np.zeros(self.solver.numVariables)
            values[list(known)] = list(known.values())
            start = highspy.HighsSolution()
            start.col_value = values.tolist()
            self.solver.setSolution(start)
        self.solver.minimize(objective)
        status = self.solver.getModelStatus()
        info = self.solver.getInfo()
        model = highspy.HighsModelStatus
        if status in (model.kInfeasible, model.kUnboundedOrInfeasible):
            return Solution("infeasible", inf)
        if status not in (model.kOptimal, model.kModelEmpty, model.kTimeLimit):
            raise RuntimeError(f"HiGHS: {self.solver.modelStatusToString(status)}")
        ended: Status = "time limit" if status == model.kTimeLimit else "optimal"
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if ended == "time limit" and not found:
            return Solution(ended, inf)
        values = np.round(np.array(self.solver.getSolution().col_value))
        gap = max(float(info.mip_gap), 0.0) if isfinite(info.mip_gap) else inf
        return Solution(ended, gap if gap > _TOLERANCE else 0.0, values)


def nodes_of(
    groups: Sequence[Sequence[int]], held: Iterable[tuple[int, int, Variable]], values: Floats
) -> Ints:
    """The node of each pod, -1 without one. groups: indexes of identical pods. held: a group, a
    node, and the variable with the number of the group's pods there."""
    nodes = np.full(sum(map(len, groups)), -1, dtype=np.int64)
    left = [iter(members) for members in groups]
    for group, node, variable in held:
        for _ in range(int(values[variable.index])):
            nodes[next(left[group])] = node
    return nodes
