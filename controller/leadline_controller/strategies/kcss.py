"""kcss: the Kubernetes container scheduling strategy, one node filled before the next.

Menouer, "KCSS: Kubernetes container scheduling strategy", as the DACS paper describes it: Lai,
Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Sections 3.2 and 7.2.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Leeway, Scores, Strategy, best
from leadline_controller.framework.image_layers import MIN_MBPS
from leadline_controller.framework.model import CPU, MEMORY, PODS, Pod
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.delays import registry_mbps, slowest
from leadline_controller.strategies.shared.unknowns import WORST, fill, left_unknown, unknown_option

DISK = "ephemeral-storage"
# Of its full power; the rest grows with the use of its CPU (Fan, Weber, Barroso, "Power
# Provisioning for a Warehouse-sized Computer", Section 3).
_IDLE_POWER_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Kcss(Strategy):
    """The fullest node that still fits, weighed against its power and the transfer of images.

    Nearness to the ideal node (TOPSIS), 0 to 1; the highest wins. The criteria are KCSS' six, of
    equal weight. The ideal node has the most in use, so that nodes are filled (DACS, Section 7.2):
    the requested shares of CPU, memory and disk with the pod, and the number of pods. And it has
    the least of what costs: its power, and the time to send the pod's images to it.

    Decided here: disk is the ephemeral storage. Shares include the pod's own requests, which makes
    a small node fuller than a large one from the first pod on. Nothing measures power, so it is
    estimated in units of a core's full power: half of that for each core, and half for each core
    in use. Images take the MB of the layers that the node neither has nor has queued, over the
    bandwidth from the registry.

    Unknown: the score of a node without CPU or memory is unknown, and it is chosen only if all
    scores are. An unknown size of the disk and an unknown bandwidth from the registry count as
    those of boards like it (strategies/shared/unknowns.py), or with `unknown=worst` as the emptiest
    disk and the slowest bandwidth. If no disk, or none of the pod's images is known, that criterion
    is equal for all.
    """

    name = "kcss"
    better = "higher"
    paper = "DACS, Sections 3.2 and 7.2 (KCSS)"
    needs = ("bandwidth_mbps",)

    unknown: str = unknown_option()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """TOPSIS over the six criteria for every candidate."""
        cpu, memory = (_used_share(view, pod, each, candidates) for each in (CPU, MEMORY))
        disk = _used_share(view, pod, DISK, candidates, self.unknown)
        cores = view.table.allocatable(CPU)[candidates] / 1000
        missing_mb = np.nan_to_num(view.images.missing_mb(view.table, pod)[candidates])
        bandwidth = registry_mbps(view, candidates, self.unknown, slowest)
        parts = {
            "cpu_used_share": cpu,
            "memory_used_share": memory,
            "disk_used_share": np.nan_to_num(disk, nan=np.nanmin(np.append(disk, 1.0))),
            "pods": view.requested_of(PODS)[candidates].astype(np.float64),
            "power_cores": cores * (_IDLE_POWER_SHARE + (1 - _IDLE_POWER_SHARE) * cpu),
            "image_s": missing_mb * 8 / np.maximum(bandwidth.values, MIN_MBPS),
        }
        costs = ("power_cores", "image_s")
        total = nearness_to_ideal(
            np.array([-part if name in costs else part for name, part in parts.items()])
        )

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            images = bandwidth.note(at) if parts["image_s"][at] > 0 else ""
            return (
                f"with the pod {cpu[at]:.0%} of its CPU and {memory[at]:.0%} of its memory in use, "
                f"{parts['image_s'][at]:.3g} s for its images{images}"
            )

        # A twentieth of the way from the worst node to the ideal one.
        return Scores(candidates, total, best(total, self.better), why, parts, Leeway(0.05))


def nearness_to_ideal(criteria: Floats) -> Floats:
    """TOPSIS with equal weights: distance to the worst over the sum of the distances to worst and
    best, each criterion divided by its Euclidean norm.

    criteria: shape (m, n), higher is better (a cost is negative), NaN if unknown. Returns shape
    (n,), 0 to 1; 1 for all nodes if all are equal, NaN for a node with an unknown criterion.
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


def _used_share(
    view: ClusterView, pod: Pod, resource: str, candidates: Ints, unknown: str = WORST
) -> Floats:
    """Of the requests with the pod, at most 1, shape (len(candidates),); NaN where a node has none
    of the resource, if no board like it tells."""
    capacity = view.table.allocatable(resource).astype(np.float64)
    capacity[capacity == 0] = np.nan
    filled = fill(view, capacity, candidates, unknown, left_unknown, resource, "base units")
    wanted = view.requested_of(resource)[candidates] + pod.requests.get(resource, 0)
    return np.minimum(wanted / filled.values, 1.0)
