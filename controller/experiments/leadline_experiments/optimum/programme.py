"""A mixed-integer programme, solved exactly by HiGHS, and what comes of it.

HiGHS is free, needs no licence key and is kept up by the people who write it, and so is its
Python interface, highspy, with the modelling functions used here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from types import MappingProxyType
from typing import Literal

import highspy
import numpy as np
from leadline_controller.framework.node_table import Floats

Variable = highspy.highs.highs_var
Sum = highspy.highs.highs_linear_expression
Status = Literal["optimal", "bound", "time limit", "infeasible"]
TIME_LIMIT_S = 60.0
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best placement, or how far the search for it got.

    value: of the objective, in its unit; NaN where no placement was found. placement: pod's key
    -> node's name. gap: how far from the best possible `value` may be, as a share of it; 0 is
    proof that nothing is better, infinity that nothing is known. migrations: running pods that
    are elsewhere, where there were any. why: what stands in the way of a better status.

    status: "optimal" is proved best, and the filters agree to every step of it. "bound" is
    proved best too, but some filter that looks at the other pods of the run, which a programme
    does not know of, is against it; no strategy can beat it, and perhaps none can reach it.
    "time limit" is the best found until then. "infeasible": not all pods can be placed.
    """

    value: float
    placement: Mapping[str, str]
    status: Status
    gap: float
    migrations: int = 0
    why: str = ""

    @classmethod
    def infeasible(cls, why: str) -> "Optimum":
        """Proved: there is no placement of all the pods."""
        return cls(nan, MappingProxyType({}), "infeasible", inf, why=why)


@dataclass(frozen=True, slots=True)
class Solution:
    """What the solver says. values: of the variables in the order in which they were added,
    whole numbers where those are; empty where none were found."""

    status: Status
    gap: float
    values: Floats = field(default_factory=lambda: np.zeros(0))


class Programme:
    """A programme in the making. The solver runs on one thread with a fixed seed, and stops
    early for nothing but its time limit: the default gap of 0.01 % is set to none."""

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
        """A whole number from 0 to `most`; `cost` times it is part of the objective."""
        kind = highspy.HighsVarType.kInteger
        variable: Variable = self.solver.addVariable(lb=0, ub=most, obj=cost, type=kind)
        return variable

    def add(self, constraint: Sum) -> None:
        """One more thing that must hold, as a comparison of sums."""
        self.solver.addConstr(constraint)

    def total(self, terms: Iterable[Variable | Sum]) -> Sum:
        """The sum of variables, or of numbers times variables."""
        total: Sum = self.solver.qsum(terms)
        return total

    def minimise(
        self, objective: Sum | None = None, known: Mapping[int, float] | None = None
    ) -> Solution:
        """Solve it. objective: what to minimise instead of the variables' costs. known: some
        solution to start from, by the variables' indexes, where they are not 0."""
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
