"""The methods that the KubeDSM paper compares, its variants of KubeDSM and its QoS settings; all
runs of the figures, each simulated once; the optimality gaps by KubeDSM's own objective (Eq. 9).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import ClassVar

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Better, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.cloud_first import CloudFirst
from leadline_controller.strategies.edge_first import BiggestEdgeFirst, SmallestEdgeFirst
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.shared.tiers import is_cloud

from leadline_experiments.kubedsm.scenario_run import (
    BY_LOAD,
    BY_SPREAD,
    ROUNDED_UP,
    SERVICES,
    Method,
    Outcome,
    Scenario,
    ScenarioRun,
    empty_cluster,
    make_pod,
    replicas,
    simulate,
)
from leadline_experiments.optimum import kubedsm as programme
from leadline_experiments.optimum.programme import Optimum
from leadline_experiments.optimum.study import QOS, Gap, gap_rows
from leadline_experiments.result import Progress, Row

SUGGESTIONS = 5  # between the six intervals of a cycle of 90 s
K8S, KUBEDSM = "kube-default", "kubedsm"
_PREFERENCE = 100.0  # more than any score of kube-default, which is 10 at most


@dataclass(frozen=True, slots=True)
class EdgePreferred(Strategy):
    """kube-scheduler with the configuration of Section 6.2: a PreferNoSchedule taint on the cloud
    and a preferred affinity to the edge, so that any edge node that fits is preferred. Within a
    tier kube-default decides. Unknown where kube-default is."""

    name: ClassVar[str] = K8S
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "KubeDSM, Section 6.2 (K8S)"
    needs: ClassVar[tuple[str, ...]] = ()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """kube-default's score plus the preference for the edge."""
        scores = KubeDefault().score(view, pod, candidates)
        total = scores.total + np.where(is_cloud(view)[candidates], 0.0, _PREFERENCE)
        return Scores(candidates, total, best(total, self.better), scores.why, scores.parts)


def kubedsm(m_c2e: int = 5, m_er: int = 3, targets: Mapping[str, float] | None = None) -> Method:
    """KubeDSM with these limits of migrations and QoS targets."""
    return Method(KubeDsm(suggest=0), KubeDsm(m_c2e=m_c2e, m_er=m_er), SUGGESTIONS, targets or {})


METHODS: Mapping[str, Method] = {
    KUBEDSM: kubedsm(),
    K8S: Method(EdgePreferred()),
    "bef": Method(BiggestEdgeFirst()),
    "sef": Method(SmallestEdgeFirst()),
    "cloud-first": Method(CloudFirst()),
}
# Fig. 10: M_C2E and M_ER. The paper's values of MidMig are lost; these lie between the others.
VARIANTS: Mapping[str, tuple[int, int]] = {
    "Original": (5, 3),
    "MidMig": (3, 1),
    "NoCloudOffload": (0, 3),
    "NoMig": (0, 0),
}
# Fig. 11.
SETTINGS: Mapping[str, Mapping[str, float]] = {
    "default": {},
    "AllEqual": dict.fromkeys("ABCD", 0.5),
    "CA": {"A": 0.5, "B": 0.1, "C": 1.0, "D": 0.1},
    "RespectD": {"A": 0.1, "B": 0.1, "C": 0.1, "D": 0.5},
}

REPLICATES = 4
ALL = (*BY_LOAD, *BY_SPREAD)  # the eleven workloads; 1.5_0.4 is in both figures
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

    def _shares_percent(self, scenario: Scenario, name: str) -> Floats:
        """The edge ratio of each service, %, shape (services,)."""
        shares = [run.shares for run in self._outcomes[scenario, name]]
        percent: Floats = np.mean(shares, axis=0) * 100
        return percent

    def by_service_percent(self, scenarios: Sequence[Scenario], name: str) -> dict[str, float]:
        """The edge ratio of each service over scenarios, %."""
        columns = [self._shares_percent(each, name) for each in scenarios]
        return {s: float(sum(c[i] for c in columns)) / len(columns) for i, s in enumerate(SERVICES)}

    def ratio_percent(self, scenarios: Iterable[Scenario], name: str) -> float:
        """The edge ratio over services and scenarios, %."""
        return float(np.mean([self._shares_percent(each, name) for each in scenarios]))

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


# With a target of 0, F is linear up to a constant, so the highest QoS is the highest edge ratio.
_EDGE_RATIO = KubeDsm(a=2.0, b=1.0, gamma=3.0, qos_target=0.0)


def optimality_gaps(seed: int) -> Iterator[Row]:
    """The quality of service after each cycle, averaged over the cycles, of each method in each
    workload, beside the optimum for the same pods. Eq. 9 has no pending pods: they are not on the
    edge, like pods in the cloud."""
    objective = KubeDsm()
    for scenario in dict.fromkeys(ALL):
        for name, method in METHODS.items():
            run = ScenarioRun(scenario, method, seed)
            gaps = [
                Gap(_quality_after(run, wanted, objective), _optimum((*wanted.items(),), objective))
                for wanted in replicas(scenario, seed)
            ]
            yield from gap_rows("Optimum, Eq. 9", scenario.name, name, "", QOS, gaps)


@cache
def _optimum(wanted: tuple[tuple[str, int], ...], objective: KubeDsm) -> Optimum:
    """The optimum for so many pods of each service. Earlier placements do not change it, as pods
    can be moved."""
    pods = [make_pod(name, number) for name, count in wanted for number in range(count)]
    return programme.best(empty_cluster(), pods, [], objective, FILTERS)


def _quality_after(run: ScenarioRun, wanted: Mapping[str, int], objective: KubeDsm) -> float:
    """The quality of service at the end of a cycle."""
    pending = run.scale(wanted)
    run.place(pending)
    for _ in range(run.method.rounds):
        if not run.suggest():
            break
    pods = {pod.key: pod for pod in (*pending, *(pod for pod, _ in run.running))}
    names = run.view.table.names
    placement = {pod.key: names[node] for pod, node in run.running}
    return programme.quality(run.view, list(pods.values()), objective, placement)


def best_ratio_percent(scenario: Scenario, seed: int) -> float:
    """The highest edge ratio of any placement in a run with this seed, %: the mean over services
    and over the cycles after the first, as in the figures."""
    ratios = []
    for wanted in replicas(scenario, seed)[1:]:
        optimum = _optimum((*wanted.items(),), _EDGE_RATIO)
        if not optimum.proved:
            raise RuntimeError(f"the best edge ratio of {wanted} was not found: {optimum.status}")
        ratios.append(optimum.value / len(wanted) - _EDGE_RATIO.gamma)
    return fmean(ratios) * 100
