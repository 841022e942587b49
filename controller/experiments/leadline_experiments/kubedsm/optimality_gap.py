"""The optimality gap of each method on the paper's cluster and workloads, by KubeDSM's own
objective (Eq. 9)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from statistics import fmean

from leadline_controller.filters import FILTERS
from leadline_controller.strategies.kubedsm import KubeDsm

from leadline_experiments.kubedsm.methods import METHODS
from leadline_experiments.kubedsm.scenario_run import ScenarioRun
from leadline_experiments.kubedsm.setting import (
    BY_LOAD,
    BY_SPREAD,
    Scenario,
    empty_cluster,
    make_pod,
    replicas,
)
from leadline_experiments.optimum import kubedsm
from leadline_experiments.optimum.programme import Optimum
from leadline_experiments.optimum.study import QOS, OptimalityGap
from leadline_experiments.result import Row

TABLE = "Optimum, Eq. 9"
# With a target of 0, F is linear up to a constant, so the highest QoS is the highest edge ratio.
_EDGE_RATIO = KubeDsm(a=2.0, b=1.0, gamma=3.0, qos_target=0.0)


def rows(seed: int) -> Sequence[Row]:
    """The quality of service after each cycle, averaged over the cycles, of each method in each
    workload, beside the optimum for the same pods. Eq. 9 has no pending pods: they are not on the
    edge, like pods in the cloud."""
    return [
        row for scenario in dict.fromkeys((*BY_LOAD, *BY_SPREAD)) for row in _rows(scenario, seed)
    ]


def _rows(scenario: Scenario, seed: int) -> Iterator[Row]:
    objective = KubeDsm()
    cycles = replicas(scenario, seed)
    optima = [_optimum(wanted, objective) for wanted in cycles]
    for name, method in METHODS.items():
        gap, run = OptimalityGap(), ScenarioRun.of(scenario, method, seed)
        for wanted, optimum in zip(cycles, optima, strict=True):
            gap.add(_quality_after(run, wanted, objective), optimum, 0)
        yield from gap.rows(TABLE, scenario.name, name, "", QOS)


def _optimum(wanted: Mapping[str, int], objective: KubeDsm) -> Optimum:
    return _optimum_for(tuple(wanted.items()), objective)


@cache
def _optimum_for(wanted: tuple[tuple[str, int], ...], objective: KubeDsm) -> Optimum:
    """The optimum for so many pods of each service. Earlier placements do not change it, as pods
    can be moved."""
    pods = [make_pod(name, number) for name, count in wanted for number in range(count)]
    return kubedsm.best(empty_cluster(), pods, [], objective, FILTERS)


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
    return kubedsm.quality(run.view, list(pods.values()), objective, placement)


def best_ratio_percent(scenario: Scenario, seed: int) -> float:
    """The highest edge ratio of any placement in a run with this seed, %: the mean over services
    and over the cycles after the first, as in the figures."""
    ratios = []
    for wanted in list(replicas(scenario, seed))[1:]:
        optimum = _optimum(wanted, _EDGE_RATIO)
        if optimum.status not in ("optimal", "bound"):
            raise RuntimeError(f"the best edge ratio of {wanted} was not found: {optimum.status}")
        ratios.append(optimum.value / len(wanted) - _EDGE_RATIO.gamma)
    return fmean(ratios) * 100
