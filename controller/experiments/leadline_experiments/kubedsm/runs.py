"""Every run that the figures need, each made once."""

from collections.abc import Iterable, Sequence

import numpy as np
from leadline_controller.framework.view import Floats

from leadline_experiments.kubedsm.methods import METHODS, SETTINGS, VARIANTS, kubedsm
from leadline_experiments.kubedsm.optimality_gap import best_ratio_percent
from leadline_experiments.kubedsm.scenario_run import Seen, run_through
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
    """Shares and counts by scenario and method: a name of METHODS, VARIANTS or SETTINGS, or one of
    METHODS with AS_REPLICA_SET."""

    def __init__(self, seed: int, progress: Progress) -> None:
        methods = {
            **METHODS,
            **{name: kubedsm(*limits) for name, limits in VARIANTS.items()},
            **{name: kubedsm(targets=targets) for name, targets in SETTINGS.items()},
        }
        same = {"Original": "kubedsm", "default": "kubedsm"}
        wanted = [(s, name) for s in dict.fromkeys(ALL) for name in (*METHODS, *VARIANTS)]
        wanted += [(s, name) for s in BY_LOAD for name in SETTINGS]
        wanted += [(s, name + AS_REPLICA_SET) for s in BY_LOAD for name in METHODS]
        wanted += [(s, name) for s in ROUNDED_UP for name in METHODS]
        self._seeds = [seed * REPLICATES + replicate for replicate in range(REPLICATES)]
        self._seen: dict[tuple[Scenario, str], Sequence[Seen]] = {}
        for done, (scenario, name) in enumerate(wanted):
            progress(done / len(wanted))
            if name in same:
                self._seen[scenario, name] = self._seen[scenario, same[name]]
                continue
            plain = name.removesuffix(AS_REPLICA_SET)
            self._seen[scenario, name] = [
                run_through(scenario, methods[plain], each, as_replica_set=plain != name)
                for each in self._seeds
            ]
        progress(1.0)

    def shares_percent(self, scenario: Scenario, name: str) -> Floats:
        """Edge ratio of each service, %, the mean of the runs, shape (services,)."""
        shares = [seen.shares for seen in self._seen[scenario, name]]
        percent: Floats = np.mean(shares, axis=0) * 100
        return percent

    def ratio_percent(self, scenarios: Iterable[Scenario], name: str) -> float:
        """Edge ratio over services and scenarios, %."""
        return float(np.mean([self.shares_percent(each, name) for each in scenarios]))

    def ratios_percent(self, scenarios: Iterable[Scenario], name: str) -> Floats:
        """The same of each run, shape (REPLICATES,)."""
        percent: Floats = self.each_percent(scenarios, name).mean(axis=1)
        return percent

    def each_percent(self, scenarios: Iterable[Scenario], name: str) -> Floats:
        """Edge ratio of each service in each run over the scenarios, %, shape (REPLICATES,
        services)."""
        shares = [[seen.shares for seen in self._seen[each, name]] for each in scenarios]
        percent: Floats = np.mean(shares, axis=0) * 100
        return percent

    def best_ratio_percent(self, scenarios: Iterable[Scenario]) -> float:
        """The most that ratio_percent could be with any method."""
        return float(
            np.mean([best_ratio_percent(each, seed) for each in scenarios for seed in self._seeds])
        )

    def deviation_percent(self, scenario: Scenario, name: str) -> float:
        """Standard deviation of the services' edge ratios, percentage points: the mean over the
        runs of the population's deviation in each."""
        return float(np.mean([np.std(seen.shares) for seen in self._seen[scenario, name]]) * 100)

    def migrations(self, scenario: Scenario, name: str) -> float:
        """Pods moved in a run, the mean of the runs."""
        return float(np.mean([seen.migrations for seen in self._seen[scenario, name]]))
