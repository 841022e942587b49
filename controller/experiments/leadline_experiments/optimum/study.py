"""The strategies' optimality gaps on random clusters.

A strategy places the pods as the scheduler does, one after the other or in one batch, with all
filters. The paper's objective measures the placement.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from random import Random
from statistics import fmean
from typing import NamedTuple

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
_Size = tuple[int, int]  # nodes, pods
SIZES: Sequence[_Size] = ((5, 10), (10, 20), (20, 40))
CLUSTERS = 6  # of each size
DELAY, QOS, PENDING = "average_delay_s", "qos", "pods_pending"


class Gap(NamedTuple):
    """A strategy's objective beside the best, on one cluster. ours: None if pods are pending, so
    that the two cannot be compared. pending: the number of these pods."""

    ours: float | None
    best: Optimum
    pending: int = 0


def gap_rows(
    table: str, case: str, strategy: str, option: str, metric: str, gaps: Iterable[Gap]
) -> Iterator[Row]:
    """The means over the clusters, and the pending pods if there are any. The optimum is None
    unless all of them were proved in time."""
    gaps = list(gaps)
    pairs = [(gap.ours, gap.best) for gap in gaps if gap.ours is not None]
    if pairs:
        proved = all(best.proved for _, best in pairs)
        optimum = fmean(best.value for _, best in pairs) if proved else None
        mean = fmean(ours for ours, _ in pairs)
        yield Row(table, case, strategy, option, metric, None, mean, optimum)
    if any(gap.pending for gap in gaps):
        pending = fmean(gap.pending for gap in gaps)
        yield Row(table, case, strategy, option, PENDING, None, pending, 0.0)


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
    objective = Dacs()

    def gaps(size: _Size, number: int) -> Iterator[tuple[str, Gap]]:
        view, pods = edge_cluster(*size, seed * CLUSTERS + number)
        best = dacs.best(view, pods, objective, FILTERS)
        delays = dacs.Delays.of(view, pods, objective)
        for name, strategy in STRATEGIES.items():
            placement = place(view, pods, (), strategy(), _random(seed, number))
            yield name, Gap(delays.average_s(placement), best, len(pods) - len(placement))

    return _rows(STRATEGIES, gaps, DELAY, progress)


def kubedsm_rows(seed: int, progress: Progress) -> Sequence[Row]:
    """The quality of service (KubeDSM Eq. 1) of that paper's strategies, and of kube-default, which
    does not distinguish edge and cloud, beside the optimum."""
    names = [name for name, each in STRATEGIES.items() if "KubeDSM" in each.paper]
    names.append("kube-default")
    objective = KubeDsm()

    def gaps(size: _Size, number: int) -> Iterator[tuple[str, Gap]]:
        view, new, running = cloud_assisted(*size, seed * CLUSTERS + number)
        pods = [*new, *(pod for pod, _ in running)]
        best = kubedsm.best(view, new, running, objective, FILTERS)
        for name in names:
            placement = place(view, new, running, STRATEGIES[name](), _random(seed, number))
            pending = len(pods) - len(placement)
            ours = None if pending else kubedsm.quality(view, pods, objective, placement)
            yield name, Gap(ours, best, pending)

    return _rows(names, gaps, QOS, progress)


def _rows(
    names: Collection[str],
    gaps: Callable[[_Size, int], Iterable[tuple[str, Gap]]],
    metric: str,
    progress: Progress,
) -> Sequence[Row]:
    """gaps: that of each strategy on the cluster with this size and number."""
    found: dict[tuple[_Size, str], list[Gap]] = {(size, n): [] for size in SIZES for n in names}
    cases = [(size, number) for size in SIZES for number in range(CLUSTERS)]
    for done, (size, number) in enumerate(cases, start=1):
        for name, gap in gaps(size, number):
            found[size, name].append(gap)
        progress(done / len(cases))
    return [
        row
        for ((nodes, pods), name), each in found.items()
        for row in gap_rows(TABLE, f"{nodes} nodes, {pods} pods", name, "", metric, each)
    ]


def _random(seed: int, number: int) -> Random:
    return Random(f"ties {seed} {number}")
