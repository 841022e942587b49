"""All runs of the figures; each is simulated once."""

from collections.abc import Iterable, Sequence

import numpy as np
from leadline_controller.framework.view import Floats

from leadline_experiments.kubedsm.methods import METHODS, SETTINGS, VARIANTS, kubedsm
from leadline_experiments.kubedsm.optimality_gap import best_ratio_percent
from leadline_experiments.kubedsm.scenario_run import Outcome, simulate
from leadline_experiments.kubedsm.setting import (
    BY_LOAD,
    BY_SPREAD,
    ROUNDED_UP,
    Scenario,
)
from leadline_experiments.result import Progress

REPLICATES = 4
ALL = (*BY_LOAD, *BY_SPREAD)  # the eleven workloads; 1.5_0.4 is in both figures
COMPARED = tuple(METHODS)
AS_REPLICA_SET = " as a ReplicaSet"


class Runs:
    """Results by scenario and method: a name of METHODS, VARIANTS or SETTINGS, or a name of METHODS
    followed by AS_REPLICA_SET. Values are means over the runs unless the method says otherwise."""

    def __init__(self, seed: int, progress: Progress) -> None:
        methods = {
            **METHODS,
            **{name: kubedsm(*limits) for name, limits in VARIANTS.items()},
            **{name: kubedsm(targets=targets) for name, targets in SETTINGS.items()},
        }
        aliases = {"Original": "kubedsm", "default": "kubedsm"}
        pairs = [(s, name) for s in dict.fromkeys(ALL) for name in (*METHODS, *VARIANTS)]
        pairs += [(s, name) for s in BY_LOAD for name in SETTINGS]
        pairs += [(s, name + AS_REPLICA_SET) for s in BY_LOAD for name in METHODS]
        pairs += [(s, name) for s in ROUNDED_UP for name in METHODS]
        self._seeds = [seed * REPLICATES + replicate for replicate in range(REPLICATES)]
        self._outcomes: dict[tuple[Scenario, str], Sequence[Outcome]] = {}
        for done, (scenario, name) in enumerate(pairs):
            progress(done / len(pairs))
            if name in aliases:
                self._outcomes[scenario, name] = self._outcomes[scenario, aliases[name]]
                continue
            method = name.removesuffix(AS_REPLICA_SET)
            self._outcomes[scenario, name] = [
                simulate(scenario, methods[method], each, as_replica_set=method != name)
                for each in self._seeds
            ]
        progress(1.0)

    def shares_percent(self, scenario: Scenario, name: str) -> Floats:
        """The edge ratio of each service, %, shape (services,)."""
        shares = [run.shares for run in self._outcomes[scenario, name]]
        percent: Floats = np.mean(shares, axis=0) * 100
        return percent

    def ratio_percent(self, scenarios: Iterable[Scenario], name: str) -> float:
        """The edge ratio over services and scenarios, %."""
        return float(np.mean([self.shares_percent(each, name) for each in scenarios]))

    def ratios_percent(self, scenarios: Iterable[Scenario], name: str) -> Floats:
        """The edge ratio over services and scenarios in each run, %, shape (REPLICATES,)."""
        percent: Floats = self.each_percent(scenarios, name).mean(axis=1)
        return percent

    def each_percent(self, scenarios: Iterable[Scenario], name: str) -> Floats:
        """The edge ratio of each service over scenarios in each run, %, shape (REPLICATES,
        services)."""
        shares = [[run.shares for run in self._outcomes[each, name]] for each in scenarios]
        percent: Floats = np.mean(shares, axis=0) * 100
        return percent

    def best_ratio_percent(self, scenarios: Iterable[Scenario]) -> float:
        """The highest ratio_percent of any placement."""
        return float(
            np.mean([best_ratio_percent(each, seed) for each in scenarios for seed in self._seeds])
        )

    def deviation_percent(self, scenario: Scenario, name: str) -> float:
        """The population standard deviation of the services' edge ratios, percentage points."""
        return float(np.mean([np.std(run.shares) for run in self._outcomes[scenario, name]]) * 100)

    def migrations(self, scenario: Scenario, name: str) -> float:
        """The moved pods of a run."""
        return float(np.mean([run.migrations for run in self._outcomes[scenario, name]]))
