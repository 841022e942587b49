"""The methods that the DACS paper compares, run often enough on a scenario that chance, where a
tie leaves something to it, averages out."""

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
Key = tuple[str, str]  # a method, and its alpha or preferred node


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
# As the tables list them: NAS is the average over the nodes that it may prefer.
LISTED: Sequence[Key] = tuple(
    dict.fromkeys(("nas", "") if m.preferred else m.key for m in _METHODS)
)


@dataclass(frozen=True, slots=True)
class Found:
    """What came out on a scenario: the runs of each method."""

    scenario: Scenario
    runs: Mapping[Key, Sequence[Outcome]]

    def of(self, key: Key) -> Sequence[Outcome]:
        """All runs of a method; without an option, whatever node was preferred."""
        return [run for each, runs in self.runs.items() if _covers(key, each) for run in runs]

    def pods(self, key: Key, at: int) -> float:
        """Average number of pods on the worker at this place in WORKERS."""
        return fmean(run.counts[at] for run in self.of(key))

    def processing_s(self, key: Key, load: str, worker: str | None = None) -> float:
        """Average processing delay of a method; see Outcome."""
        return fmean(run.processing_s(load, worker) for run in self.of(key))

    def network_s(self, key: Key) -> float:
        """Average network delay of a method."""
        return fmean(run.network_s() for run in self.of(key))

    def completion_s(self, key: Key, load: str) -> float:
        """Average time until a task is complete."""
        return fmean(run.completion_s(load) for run in self.of(key))

    def last_completion_s(self, key: Key, load: str) -> float:
        """Time until all tasks are complete, averaged over the runs."""
        return fmean(run.last_completion_s(load) for run in self.of(key))


def _covers(key: Key, each: Key) -> bool:
    return key == each or (key[0] == each[0] and not key[1])


def run_methods(scenario: Scenario, seed: int) -> Found:
    """Run every method RUNS times."""
    return Found(
        scenario,
        {
            method.key: [
                run_trial(scenario, method.strategy, _random(seed, method, n), method.preferred)
                for n in range(RUNS)
            ]
            for method in _METHODS
        },
    )


def _random(seed: int, method: _Method, run: int) -> Random:
    return Random(f"{seed}/{method.key}/{run}")
