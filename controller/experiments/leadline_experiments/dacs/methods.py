"""The methods that the DACS paper compares, each run many times to average over random ties: on the
paper's two clusters, and beside the optimum of DACS' own objective (Eq. 3-7)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import NamedTuple

from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy
from leadline_controller.strategies.chance import Chance
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.elasticfog import ElasticFog
from leadline_controller.strategies.kcss import Kcss
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.nas import Nas
from leadline_controller.strategies.tsra import Tsra

from leadline_experiments.dacs.trials import (
    LAMBDA_S,
    PHI,
    WORKERS,
    Outcome,
    Scenario,
    cluster,
    run_trial,
)
from leadline_experiments.optimum import dacs
from leadline_experiments.optimum.study import DELAY, Gap, gap_rows, place
from leadline_experiments.result import Row

RUNS = 100
_OPTIMUM_RUNS = 10
ALPHAS = (0.25, 0.5, 0.75)
Key = tuple[str, str]  # a method and its option: alpha or the preferred node


class _Method(NamedTuple):
    strategy: Strategy
    option: str = ""
    preferred: str | None = None

    @property
    def key(self) -> Key:
        return self.strategy.name, self.option


_METHODS: Sequence[_Method] = (
    _Method(KubeDefault()),
    _Method(ElasticFog()),
    _Method(Tsra()),
    *(_Method(Nas(), f"{worker} preferred", worker) for worker in WORKERS),
    _Method(Kcss()),
    *(_Method(Dacs(alpha, phi=PHI, lambda_s=LAMBDA_S), f"alpha={alpha:g}") for alpha in ALPHAS),
    _Method(Chance()),
)
# The lines of the paper's tables: NAS is the average over the preferred nodes.
TABLE_KEYS: Sequence[Key] = tuple(
    dict.fromkeys(("nas", "") if m.preferred else m.key for m in _METHODS)
)


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The runs of each method on a scenario. Without an option, a key covers all options of its
    method."""

    scenario: Scenario
    runs: Mapping[Key, Sequence[Outcome]]

    def of(self, key: Key) -> Sequence[Outcome]:
        """All runs that the key covers."""
        name, option = key
        return [
            run
            for each, runs in self.runs.items()
            if each == key or (each[0] == name and not option)
            for run in runs
        ]

    def mean(self, key: Key, value: Callable[..., float], *of: str | None) -> float:
        """The average over these runs. value: a method of Outcome; of: its arguments."""
        return fmean(value(run, *of) for run in self.of(key))


def run_methods(scenario: Scenario, seed: int) -> ScenarioResult:
    """Run every method RUNS times."""
    runs: dict[Key, Sequence[Outcome]] = {}
    for method in _METHODS:
        ties = (Random(f"{seed}/{method.key}/{run}") for run in range(RUNS))
        strategy, _, preferred = method
        runs[method.key] = [run_trial(scenario, strategy, each, preferred) for each in ties]
    return ScenarioResult(scenario, runs)


def optimality_gaps(scenario: Scenario, seed: int) -> Iterator[Row]:
    """The average delay of each method for each alpha, beside the optimum."""
    view, pods = cluster(scenario)
    others = [method for method in _METHODS if not method.option]
    others += [method for method in _METHODS if method.preferred]
    for alpha in ALPHAS:
        objective = Dacs(alpha, phi=PHI, lambda_s=LAMBDA_S)
        best = dacs.best(view, pods, objective, FILTERS)
        delays = dacs.Delays.of(view, pods, objective)
        for strategy, option, preferred in (_Method(objective), *others):
            _, preferring = cluster(scenario, preferred)
            gaps = []
            for run in range(_OPTIMUM_RUNS):
                ties = Random(f"{scenario.title} {seed} {run}")
                placement = place(view, preferring, (), strategy, ties)
                pending = len(pods) - len(placement)
                gaps.append(Gap(delays.average_s(placement), best, pending))
            case = f"{scenario.title}, alpha={alpha:g}"
            yield from gap_rows("Optimum, Eq. 3-7", case, strategy.name, option, DELAY, gaps)
