"""How far from the optimum the strategies are, on clusters drawn at random.

A strategy meets each cluster as the scheduler does, pod after pod or in one batch, with all
filters, and what comes of it is measured by the objective of the paper.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    """What a strategy reached and what the optimum is there, over several clusters.

    ours, optimum: the objective, where the strategy placed all pods: without one of them there
    is nothing to compare. optimum holds None where the search for it ran out of time. pending:
    pods that the strategy left over, of each cluster.
    """

    ours: list[float] = field(default_factory=list)
    optimum: list[float | None] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)

    def add(self, ours: float | None, best: Optimum, pending: int) -> None:
        """One cluster more; ours: None where pods are pending."""
        self.pending.append(pending)
        if ours is not None:
            self.ours.append(ours)
            proved = best.status in ("optimal", "bound")
            self.optimum.append(best.value if proved else None)

    def rows(self, table: str, case: str, strategy: str, option: str, metric: str) -> Iterator[Row]:
        """The means, and how many pods are left over where there are any."""
        if self.ours:
            known = [value for value in self.optimum if value is not None]
            optimum = fmean(known) if len(known) == len(self.optimum) else None
            yield Row(table, case, strategy, option, metric, None, fmean(self.ours), optimum)
        if any(self.pending):
            yield Row(table, case, strategy, option, PENDING, None, fmean(self.pending), 0.0)


def placed(
    view: ClusterView,
    pods: Sequence[Pod],
    running: Sequence[Running],
    strategy: Strategy,
    random: Random,
) -> dict[str, str]:
    """Where the strategy has the pods, new and running, in the end: pod's key -> node's name; a
    pod that is left over is missing."""
    names = view.table.names
    at = {pod.key: names[node] for pod, node in running}
    if isinstance(strategy, BatchStrategy):
        decisions, plan, _ = decide_batch(view, pods, running, FILTERS, strategy, random)
        at.update((move.pod.key, names[move.target]) for move in plan.moves)
    else:
        decisions = [made for made, _ in decide_in_turn(view, pods, FILTERS, strategy, random)]
    at.update((made.pod.key, made.node) for made in decisions if made.node is not None)
    return at


def dacs_rows(seed: int, progress: Progress) -> Sequence[Row]:
    """Every strategy's average delay (DACS Eq. 3) beside the least that there is."""
    objective, found = Dacs(), _none_yet(list(STRATEGIES))
    for step, (size, number) in enumerate(_cases()):
        view, pods = edge_cluster(*size, _seed(seed, number))
        best, cost = dacs.best(view, pods, objective, FILTERS), dacs.delays(view, pods, objective)
        for name, strategy in STRATEGIES.items():
            at = placed(view, pods, (), strategy(), _random(seed, number))
            left = len(pods) - len(at)
            ours = None if left else cost.of(dacs.nodes_of(view, pods, at))
            found[size, name].add(ours, best, left)
        progress((step + 1) / (len(SIZES) * CLUSTERS))
    return _rows(found, DELAY)


def kubedsm_rows(seed: int, progress: Progress) -> Sequence[Row]:
    """The quality of service (KubeDSM Eq. 1) of that paper's strategies, and of kube-default, which
    doesn't tell edge from cloud, beside the most that there is."""
    names = [name for name, each in STRATEGIES.items() if "KubeDSM" in each.paper]
    objective, found = KubeDsm(), _none_yet([*names, "kube-default"])
    for step, (size, number) in enumerate(_cases()):
        view, pending, running = cloud_assisted(*size, _seed(seed, number))
        everyone = [*pending, *(pod for pod, _ in running)]
        best = kubedsm.best(view, pending, running, objective, FILTERS)
        for name in (*names, "kube-default"):
            at = placed(view, pending, running, STRATEGIES[name](), _random(seed, number))
            left = len(everyone) - len(at)
            ours = None if left else kubedsm.quality(view, everyone, objective, at)
            found[size, name].add(ours, best, left)
        progress((step + 1) / (len(SIZES) * CLUSTERS))
    return _rows(found, QOS)


Found = Mapping[tuple[tuple[int, int], str], OptimalityGap]


def _none_yet(names: Sequence[str]) -> Found:
    return {(size, name): OptimalityGap() for size in SIZES for name in names}


def _cases() -> Iterator[tuple[tuple[int, int], int]]:
    return ((size, number) for size in SIZES for number in range(CLUSTERS))


def _seed(seed: int, number: int) -> int:
    return seed * CLUSTERS + number


def _random(seed: int, number: int) -> Random:
    return Random(f"ties {seed} {number}")


def _rows(found: Found, metric: str) -> Sequence[Row]:
    return [
        row
        for ((nodes, pods), name), distance in found.items()
        for row in distance.rows(TABLE, f"{nodes} nodes, {pods} pods", name, "", metric)
    ]
