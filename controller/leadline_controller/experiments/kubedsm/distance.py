"""How far from the optimum of KubeDSM's own problem (Eq. 9) each method is, on the paper's
cluster and workloads."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from leadline_controller.core.model import Pod
from leadline_controller.core.view import ClusterView
from leadline_controller.experiments.kubedsm.course import start
from leadline_controller.experiments.kubedsm.methods import METHODS
from leadline_controller.experiments.kubedsm.setting import (
    BY_LOAD,
    BY_SPREAD,
    Scenario,
    empty_cluster,
    make_pod,
    replicas,
)
from leadline_controller.experiments.optimum import kubedsm
from leadline_controller.experiments.optimum.study import QOS, Distance
from leadline_controller.experiments.result import Row
from leadline_controller.filters import FILTERS
from leadline_controller.strategies.kubedsm import KubeDsm

TABLE = "Optimum, Eq. 9"
# With a target of nothing, F is as good as linear, and most QoS is most of the edge ratio.
_RATIO = KubeDsm(a=2.0, b=1.0, gamma=3.0, qos_target=0.0)


def rows(seed: int) -> Sequence[Row]:
    """The quality of service after each cycle, the mean of all cycles, of each method in each
    workload, beside the most that any placement of the same pods gives."""
    return [
        row
        for scenario in dict.fromkeys((*BY_LOAD, *BY_SPREAD))
        for name in METHODS
        for row in _rows(scenario, name, seed)
    ]


def _rows(scenario: Scenario, name: str, seed: int) -> Iterator[Row]:
    method, objective, distance = METHODS[name], KubeDsm(), Distance()
    course = start(scenario, method, seed)
    for wanted in replicas(scenario, seed):
        moment = course.scale(wanted)
        best = kubedsm.best(*moment, objective, FILTERS)
        course.place(moment.pending)
        for _ in range(method.rounds):
            if not course.suggest():
                break
        here = [pod for pod, _ in course.running]
        names = course.view.table.names
        at = {pod.key: names[node] for pod, node in course.running}
        left = sum(wanted.values()) - len(here)
        ours = None if left else kubedsm.quality(course.view, here, objective, at)
        distance.add(ours, best, left)
    yield from distance.rows(TABLE, scenario.name, name, "", QOS)


def best_ratio_percent(scenario: Scenario, seed: int) -> float:
    """The highest edge ratio that placements can have in a run with this seed, %: the mean over
    services and over the cycles after the first, as the figures take it.

    What ran where before makes no difference to it, as pods may be moved.
    """
    later = list(replicas(scenario, seed))[1:]
    empty = empty_cluster()
    pods = [
        [make_pod(name, number) for name, count in wanted.items() for number in range(count)]
        for wanted in later
    ]
    return fmean(_best_ratio(empty, each) for each in pods) * 100


def _best_ratio(empty: ClusterView, pods: Sequence[Pod]) -> float:
    best = kubedsm.best(empty, pods, [], _RATIO, FILTERS)
    if best.status not in ("optimal", "bound"):
        raise RuntimeError(f"the best edge ratio of {len(pods)} pods was not found: {best.status}")
    services = len({pod.labels["app"] for pod in pods})
    return best.value / services - _RATIO.gamma
