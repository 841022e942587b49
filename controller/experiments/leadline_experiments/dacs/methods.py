"""The methods that the DACS paper compares, each run many times to average over random ties; their
distance from the optimum; and the other orders of the users.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import permutations
from random import Random
from statistics import fmean
from typing import NamedTuple

from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.dacs import Dacs

from leadline_experiments.dacs.simulation import (
    ITERATIONS,
    LAMBDA_S,
    PHI,
    USERS,
    WORKERS,
    Outcome,
    Scenario,
    cluster,
    place,
    simulate,
)
from leadline_experiments.optimum import dacs as programme
from leadline_experiments.optimum import study
from leadline_experiments.result import Row

RUNS = 100
_OPTIMUM_RUNS = 10
_ORDER_RUNS = 8
ALPHAS = (0.25, 0.5, 0.75)
Key = tuple[str, str]  # a method and its option: alpha or the preferred node


class Method(NamedTuple):
    """A strategy."""

    strategy: Strategy
    option: str = ""  # its alpha, or the preferred node
    preferred: str | None = None  # see `cluster`

    @property
    def key(self) -> Key:
        """Its name and option."""
        return self.strategy.name, self.option

    @property
    def table_key(self) -> Key:
        """Its line in the paper's tables, where NAS is the average over the preferred nodes."""
        return self.strategy.name, "" if self.preferred else self.option


METHODS: Sequence[Method] = (
    *(Method(STRATEGIES[name]()) for name in ("kube-default", "elasticfog", "tsra")),
    *(Method(STRATEGIES["nas"](), f"{worker} preferred", worker) for worker in WORKERS),
    Method(STRATEGIES["kcss"]()),
    *(Method(Dacs(alpha, phi=PHI, lambda_s=LAMBDA_S), f"alpha={alpha:g}") for alpha in ALPHAS),
    Method(STRATEGIES["random"]()),
)


def methods_with(joining: Strategy | None) -> Sequence[Method]:
    """The paper's methods, and one that joins them."""
    return METHODS if joining is None else (*METHODS, Method(joining, "joins the paper's"))


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The runs of each method on a scenario. Without an option, a key covers all preferred nodes
    of NAS."""

    scenario: Scenario
    runs: Mapping[Key, Sequence[Outcome]]
    table_keys: Sequence[Key]

    def of(self, key: Key) -> Sequence[Outcome]:
        """All runs that the key covers."""
        name, option = key
        return [
            run
            for each, runs in self.runs.items()
            if each == key or (not option and each[0] == name and each[1].endswith(" preferred"))
            for run in runs
        ]

    def mean(self, key: Key, value: Callable[..., float], *of: str | None) -> float:
        """The average over these runs. value: a method of Outcome; of: its arguments."""
        return fmean(value(run, *of) for run in self.of(key))

    def is_whole(self, key: Key) -> bool:
        """Whether no pod is pending in any run."""
        return not any(run.pods(None) for run in self.of(key))


def run_methods(
    scenario: Scenario, methods: Sequence[Method], seed: int, times: int
) -> ScenarioResult:
    """Run every method this many times."""
    # Most runs place the pods as another one did.
    simulated = lru_cache(maxsize=None)(partial(simulate, scenario))
    runs: dict[Key, Sequence[Outcome]] = {}
    for method in methods:
        outcomes = []
        for run in range(times):
            ties = Random(f"{seed}/{method.key}/{run}")
            nodes = tuple(place(scenario, method.strategy, ties, method.preferred))
            requests = {load: simulated(nodes, length) for load, length in ITERATIONS.items()}
            outcomes.append(Outcome(nodes, scenario.users, requests))
        runs[method.key] = outcomes
    table_keys = tuple(dict.fromkeys(method.table_key for method in methods))
    return ScenarioResult(scenario, runs, table_keys)


def optimality_gaps(scenario: Scenario, methods: Sequence[Method], seed: int) -> Iterator[Row]:
    """The average delay of each method for each alpha, beside the optimum."""
    view, pods = cluster(scenario)
    others = [method for method in methods if not method.option.startswith("alpha")]
    for alpha in ALPHAS:
        objective = Dacs(alpha, phi=PHI, lambda_s=LAMBDA_S)
        best = programme.best(view, pods, objective, FILTERS)
        delays = programme.Delays.of(view, pods, objective)
        for strategy, option, preferred in (Method(objective), *others):
            gaps = []
            for run in range(_OPTIMUM_RUNS):
                ties = Random(f"{scenario.title} {seed} {run}")
                there, _ = cluster(scenario, preferred)
                placement = study.place(there, pods, (), strategy, ties)
                pending = len(pods) - len(placement)
                gaps.append(study.Gap(delays.average_s(placement), best, pending))
            case = f"{scenario.title}, alpha={alpha:g}"
            labels = ("Optimum, Eq. 3-7", case, strategy.name, option, study.DELAY)
            yield from study.gap_rows(*labels, gaps)


def orders_of_users(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario with the users' nodes in each of their 24 orders."""
    for users_at in permutations(USERS):
        yield replace(scenario, users_at=users_at)


def runs_in_order(scenario: Scenario, seed: int) -> Mapping[Key, Sequence[Outcome]]:
    """A few runs, without requests, of the methods that look at users: TSRA and DACS' alphas."""
    runs: dict[Key, Sequence[Outcome]] = {}
    for method in METHODS:
        if method.strategy.name in ("tsra", "dacs"):
            outcomes = []
            for run in range(_ORDER_RUNS):
                ties = Random(f"{seed}/{method.key}/{scenario.users_at}/{run}")
                nodes = place(scenario, method.strategy, ties)
                outcomes.append(Outcome(nodes, scenario.users, {}))
            runs[method.key] = outcomes
    return runs
