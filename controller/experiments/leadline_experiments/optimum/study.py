"""The strategies' optimality gaps on random clusters.

A strategy places the pods as the scheduler does, one after the other or in one batch, with all
filters. The paper's objective measures the placement.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchStrategy, Running, decide_batch
from leadline_controller.framework.cycle import Strategy, decide_in_turn
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kubedsm import KubeDsm

from leadline_experiments.optimum import dacs, kubedsm
from leadline_experiments.optimum.clusters import cloud_assisted, edge_cluster
from leadline_experiments.optimum.programme import Optimum
from leadline_experiments.result import Progress, Row

TABLE = "Optimum, random clusters"
SIZES = ((5, 10), (10, 20), (20, 40))  # nodes, pods
CLUSTERS = 6  # of each size
DELAY, QOS, PENDING = "average_delay_s", "qos", "pods_pending"


@dataclass(slots=True)
class OptimalityGap:
    """The objective of a strategy and of the optimum, over several clusters.

    ours, optimum: the objective where the strategy placed all pods; otherwise they cannot be
    compared. optimum is None where it was not proved in time. pending: the strategy's pending
    pods, on each cluster.
    """

    ours: list[float] = field(default_factory=list)
    optimum: list[float | None] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)

    def add(self, ours: float | None, best: Optimum, pending: int) -> None:
        """Add a cluster. ours: None if pods are pending."""
        self.pending.append(pending)
        if ours is not None:
            self.ours.append(ours)
            proved = best.status in ("optimal", "bound")
            self.optimum.append(best.value if proved else None)

    def rows(self, table: str, case: str, strategy: str, option: str, metric: str) -> Iterator[Row]:
        """The means, and the pending pods if there are any."""
        if self.ours:
            known = [value for value in self.optimum if value is not None]
            optimum = fmean(known) if len(known) == len(self.optimum) else None
            yield Row(table, case, strategy, option, metric, None, fmean(self.ours), optimum)
        if any(self.pending):
            yield Row(table, case, strategy, option, PENDING, None, fmean(self.pending), 0.0)


def place(
    view: ClusterView,
    pods: Sequence[Pod],
    running: Sequence[Running],
    strategy: Strategy,
    random: Random,
) -> dict[str, str]:
    """The strategy's placement of new and running pods: pod's key -> node's name; pending pods are
    missing."""
    names = view.table.names
    placement = {pod.key: names[node] for pod, node in running}
    if isinstance(strategy, BatchStrategy):
        decisions, plan, _ = decide_batch(view, pods, running, FILTERS, strategy, random)
        placement.update((move.pod.key, names[move.target]) for move in plan.moves)
    else:
        decisions = [each for each, _ in decide_in_turn(view, pods, FILTERS, strategy, random)]
    placement.update((each.pod.key, each.node) for each in decisions if each.node is not None)
    return placement


def dacs_rows(seed: int, progress: Progress) -> Sequence[Row]:
    """Every strategy's average delay (DACS Eq. 3) beside the optimum."""
    objective, gaps = Dacs(), _Gaps(STRATEGIES)
    for size, number in gaps.clusters(progress):
        view, pods = edge_cluster(*size, _cluster_seed(seed, number))
        best, delays = dacs.best(view, pods, objective, FILTERS), dacs.delays(view, pods, objective)
        for name, strategy in STRATEGIES.items():
            placement = place(view, pods, (), strategy(), _random(seed, number))
            pending = len(pods) - len(placement)
            ours = None if pending else delays.average_s(dacs.nodes_of(view, pods, placement))
            gaps.by_case[size, name].add(ours, best, pending)
    return gaps.rows(DELAY)


def kubedsm_rows(seed: int, progress: Progress) -> Sequence[Row]:
    """The quality of service (KubeDSM Eq. 1) of that paper's strategies, and of kube-default, which
    does not distinguish edge and cloud, beside the optimum."""
    names = [name for name, each in STRATEGIES.items() if "KubeDSM" in each.paper]
    names.append("kube-default")
    objective, gaps = KubeDsm(), _Gaps(names)
    for size, number in gaps.clusters(progress):
        view, new, running = cloud_assisted(*size, _cluster_seed(seed, number))
        pods = [*new, *(pod for pod, _ in running)]
        best = kubedsm.best(view, new, running, objective, FILTERS)
        for name in names:
            placement = place(view, new, running, STRATEGIES[name](), _random(seed, number))
            pending = len(pods) - len(placement)
            ours = None if pending else kubedsm.quality(view, pods, objective, placement)
            gaps.by_case[size, name].add(ours, best, pending)
    return gaps.rows(QOS)


class _Gaps:
    """The optimality gap of each strategy on the clusters of each size."""

    def __init__(self, strategies: Collection[str]) -> None:
        self.by_case = {(size, name): OptimalityGap() for size in SIZES for name in strategies}

    def clusters(self, progress: Progress) -> Iterator[tuple[tuple[int, int], int]]:
        """Size and number of each cluster; reports progress after each."""
        cases = [(size, number) for size in SIZES for number in range(CLUSTERS)]
        for done, case in enumerate(cases, start=1):
            yield case
            progress(done / len(cases))

    def rows(self, metric: str) -> Sequence[Row]:
        return [
            row
            for ((nodes, pods), name), gap in self.by_case.items()
            for row in gap.rows(TABLE, f"{nodes} nodes, {pods} pods", name, "", metric)
        ]


def _cluster_seed(seed: int, number: int) -> int:
    return seed * CLUSTERS + number


def _random(seed: int, number: int) -> Random:
    return Random(f"ties {seed} {number}")
