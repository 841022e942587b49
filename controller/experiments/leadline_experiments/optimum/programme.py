"""A mixed-integer programme, solved exactly by HiGHS.

HiGHS is free, needs no licence key, and its authors maintain it and its Python interface, highspy,
whose modelling functions are used here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from typing import Literal

import highspy
import numpy as np
from leadline_controller.framework.node_table import Floats, Ints

Variable = highspy.highs.highs_var
Sum = highspy.highs.highs_linear_expression
Status = Literal["optimal", "bound", "time limit", "infeasible"]
TIME_LIMIT_S = 60.0
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best placement found.

    value: of the objective, in its unit; NaN without a placement. placement: pod's key -> node's
    name. gap: the largest possible distance of `value` from the optimum, as a share of it; 0 is a
    proof of optimality, infinity means that no bound is known. migrations: running pods that
    move. why: the reason if the status is not "optimal".

    status: "optimal" is proved, and the filters accept every step. "bound" is proved too, but a
    filter that depends on other pods, which the programme does not model, rejects the placement:
    no strategy can beat the value, and perhaps none can reach it. "time limit": the best
    placement found in time. "infeasible": the pods cannot all be placed.
    """

    value: float
    placement: Mapping[str, str]
    status: Status
    gap: float
    migrations: int = 0
    why: str = ""

    @property
    def proved(self) -> bool:
        """Whether no placement is better."""
        return self.status in ("optimal", "bound")

    @classmethod
    def infeasible(cls, why: str) -> "Optimum":
        """A proof that the pods cannot all be placed."""
        return cls(nan, {}, "infeasible", inf, why=why)


@dataclass(frozen=True, slots=True)
class Solution:
    """The solver's answer. values: of the variables in the order of their creation, rounded to
    whole numbers; empty without a solution."""

    status: Status
    gap: float
    values: Floats = field(default_factory=lambda: np.zeros(0))


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
