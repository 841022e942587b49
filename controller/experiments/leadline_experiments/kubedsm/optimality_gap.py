"""How far from the optimum of KubeDSM's own problem (Eq. 9) each method is, on the paper's
cluster and workloads."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from statistics import fmean

from leadline_controller.filters import FILTERS
from leadline_controller.strategies.kubedsm import KubeDsm

from leadline_experiments.kubedsm.methods import METHODS
from leadline_experiments.kubedsm.scenario_run import ScenarioRun, start
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
# With a target of nothing, F is as good as linear, and most QoS is most of the edge ratio.
_RATIO = KubeDsm(a=2.0, b=1.0, gamma=3.0, qos_target=0.0)


def rows(seed: int) -> Sequence[Row]:
    """The quality of service after each cycle, the mean of all cycles, of each method in each
    workload, beside the most that any placement of the same pods gives. Eq. 9 knows no pods that
    are left over: they are not on the edge, as those in the cloud."""
    return [
        row for scenario in dict.fromkeys((*BY_LOAD, *BY_SPREAD)) for row in _rows(scenario, seed)
    ]


def _rows(scenario: Scenario, seed: int) -> Iterator[Row]:
    objective = KubeDsm()
    bests = [_best(wanted, objective) for wanted in replicas(scenario, seed)]
    for name, method in METHODS.items():
        distance, course = OptimalityGap(), start(scenario, method, seed)
        for wanted, best in zip(replicas(scenario, seed), bests, strict=True):
            distance.add(_quality_after(course, wanted, objective), best, 0)
        yield from distance.rows(TABLE, scenario.name, name, "", QOS)


def _best(wanted: Mapping[str, int], objective: KubeDsm) -> Optimum:
    return _best_of(tuple(wanted.items()), objective)


@cache
def _best_of(wanted: tuple[tuple[str, int], ...], objective: KubeDsm) -> Optimum:
    """Of so many pods of each service. What ran where before makes no difference to the quality
    that can be reached, as pods may be moved."""
    pods = [make_pod(name, number) for name, count in wanted for number in range(count)]
    return kubedsm.best(empty_cluster(), pods, [], objective, FILTERS)


def _quality_after(course: ScenarioRun, wanted: Mapping[str, int], objective: KubeDsm) -> float:
    """The quality at the end of a cycle."""
    pending = course.scale(wanted).pending
    course.place(pending)
    for _ in range(course.method.rounds):
        if not course.suggest():
            break
    pods = {pod.key: pod for pod in (*pending, *(pod for pod, _ in course.running))}
    names = course.view.table.names
    at = {pod.key: names[node] for pod, node in course.running}
    return kubedsm.quality(course.view, list(pods.values()), objective, at)


def best_ratio_percent(scenario: Scenario, seed: int) -> float:
    """The highest edge ratio that placements can have in a run with this seed, %: the mean over
    services and over the cycles after the first, as the figures take it."""
    later = list(replicas(scenario, seed))[1:]
    return fmean(_best_ratio(wanted) for wanted in later) * 100


def _best_ratio(wanted: Mapping[str, int]) -> float:
    best = _best(wanted, _RATIO)
    if best.status not in ("optimal", "bound"):
        raise RuntimeError(f"the best edge ratio of {wanted} was not found: {best.status}")
    return best.value / len(wanted) - _RATIO.gamma
