"""The methods that the DACS paper compares, each run many times to average over random ties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import NamedTuple

from leadline_controller.framework.cycle import Strategy
from leadline_controller.strategies.chance import Chance
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.elasticfog import ElasticFog
from leadline_controller.strategies.kcss import Kcss
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.nas import Nas
from leadline_controller.strategies.tsra import Tsra

from leadline_experiments.dacs.paper_values import ALPHAS
from leadline_experiments.dacs.scenarios import WORKERS, Scenario
from leadline_experiments.dacs.trials import LAMBDA_S, PHI, Outcome, run_trial

RUNS = 100
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
    *(
        _Method(Dacs(alpha=alpha, phi=PHI, lambda_s=LAMBDA_S), f"alpha={alpha:g}")
        for alpha in ALPHAS
    ),
    _Method(Chance()),
)
# The lines of the paper's tables: NAS is the average over the preferred nodes.
TABLE_KEYS: Sequence[Key] = tuple(
    dict.fromkeys(("nas", "") if m.preferred else m.key for m in _METHODS)
)


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The runs of each method on a scenario. Without an option, a key covers all options of its
    method. All values are averages over the runs."""

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

    def pods(self, key: Key, at: int) -> float:
        """The pods on the worker with this index in WORKERS."""
        return fmean(run.counts[at] for run in self.of(key))

    def processing_s(self, key: Key, load: str, worker: str | None = None) -> float:
        """See Outcome."""
        return fmean(run.processing_s(load, worker) for run in self.of(key))

    def network_s(self, key: Key) -> float:
        """See Outcome."""
        return fmean(run.network_s() for run in self.of(key))

    def completion_s(self, key: Key, load: str) -> float:
        """See Outcome."""
        return fmean(run.completion_s(load) for run in self.of(key))

    def last_completion_s(self, key: Key, load: str) -> float:
        """See Outcome."""
        return fmean(run.last_completion_s(load) for run in self.of(key))


def run_methods(scenario: Scenario, seed: int) -> ScenarioResult:
    """Run every method RUNS times."""

    def run_once(method: _Method, run: int) -> Outcome:
        random = Random(f"{seed}/{method.key}/{run}")
        return run_trial(scenario, method.strategy, random, method.preferred)

    return ScenarioResult(
        scenario,
        {method.key: [run_once(method, n) for n in range(RUNS)] for method in _METHODS},
    )
