"""kcss: the Kubernetes container scheduling strategy, one node filled before the next.

Menouer, "KCSS: Kubernetes container scheduling strategy", as the DACS paper describes it: Lai,
Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Sections 3.2 and 7.2.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Scores, Strategy, best
from leadline_controller.framework.model import CPU, MEMORY, PODS, Pod
from leadline_controller.framework.view import ClusterView, Floats, Ints


@dataclass(frozen=True, slots=True)
class Kcss(Strategy):
    """Nearness to the ideal node (TOPSIS), 0 to 1; the highest wins. The ideal node has the highest
    value of every criterion, so that nodes are filled: the requested shares of CPU and memory
    with the pod, and the number of pods.

    Decided here: the criteria have equal weights. Of the paper's six, disk use and power are left
    out because nothing measures them, and the time to send the image because it is equal on equal
    links. Shares include the pod's own requests, which makes a small node fuller than a large one
    from the first pod on.

    Needs nothing measured. The score of a node without CPU or memory is unknown, and it is chosen
    only if all scores are.
    """

    name = "kcss"
    better = "higher"
    paper = "DACS, Sections 3.2 and 7.2 (KCSS)"
    needs = ()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """TOPSIS over the three criteria for every candidate."""
        parts = {
            "cpu_used_share": _used_share(view, pod, CPU, candidates),
            "memory_used_share": _used_share(view, pod, MEMORY, candidates),
            "pods": view.requested_of(PODS)[candidates].astype(np.float64),
        }
        total = nearness_to_ideal(np.array(list(parts.values())))

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            return (
                f"with the pod {parts['cpu_used_share'][at]:.0%} of its CPU and "
                f"{parts['memory_used_share'][at]:.0%} of its memory in use"
            )

        return Scores(candidates, total, best(total, self.better), why, parts)


def nearness_to_ideal(criteria: Floats) -> Floats:
    """TOPSIS with equal weights: distance to the worst over the sum of the distances to worst and
    best, each criterion divided by its Euclidean norm.

    criteria: shape (m, n), higher is better, NaN if unknown. Returns shape (n,), 0 to 1; 1 for all
    nodes if all are equal, NaN for a node with an unknown criterion.
    """
    known = ~np.isnan(criteria).any(axis=0)
    nearness = np.full(criteria.shape[1], np.nan)
    if not known.any():
        return nearness
    norms = np.sqrt((criteria[:, known] ** 2).sum(axis=1, keepdims=True))
    unit = criteria[:, known] / np.where(norms > 0, norms, 1.0)
    to_best = np.sqrt(((unit.max(axis=1, keepdims=True) - unit) ** 2).sum(axis=0))
    to_worst = np.sqrt(((unit - unit.min(axis=1, keepdims=True)) ** 2).sum(axis=0))
    distance = to_best + to_worst
    nearness[known] = np.where(distance > 0, to_worst / np.where(distance > 0, distance, 1.0), 1.0)
    return nearness


def _used_share(view: ClusterView, pod: Pod, resource: str, candidates: Ints) -> Floats:
    capacity = view.table.allocatable(resource)[candidates].astype(np.float64)
    capacity[capacity == 0] = np.nan
    wanted = view.requested_of(resource)[candidates] + pod.requests.get(resource, 0)
    return np.minimum(wanted / capacity, 1.0)
