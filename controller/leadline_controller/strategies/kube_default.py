"""kube-default: kube-scheduler's spreading score as the DACS paper gives it.

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Section 2.2, Eq. 1-2.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Leeway, Scores, Strategy, best
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.capacity import free_share
from leadline_controller.strategies.shared.spreading import (
    WHOLE_POINT,
    rounding_option,
    spread_option,
    spread_points,
)


@dataclass(frozen=True, slots=True)
class KubeDefault(Strategy):
    """The node with the largest share of CPU and memory not requested.

    score = (S_CPU + S_MEM) / 2 * 10 with S = (capacity - requested) / capacity; the
    highest wins, ties at random (Eq. 1-2).

    Requests are those of the assigned pods, as in the paper; today's kube-scheduler adds the
    incoming pod's. Needs nothing measured. The score of a node without CPU or memory is unknown,
    and it is chosen only if all scores are.

    rounding=whole rounds down to whole points, as kube-scheduler does, so that nodes that are
    almost equally empty tie; Eq. 1 does not round. spread=selector-spread adds kube-scheduler's
    SelectorSpread, 0 to 10 whole points: the fewer of the service's replicas a node has, the more.
    """

    name = "kube-default"
    better = "higher"
    paper = "DACS, Eq. 1-2 (kube-scheduler)"
    needs = ()

    rounding: str = rounding_option()
    spread: str = spread_option()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Eq. 1 with Eq. 2 for every candidate."""
        cpu_share = free_share(view, CPU, candidates)
        memory_share = free_share(view, MEMORY, candidates)
        total = spread_points(view, pod, candidates, self.rounding, self.spread)

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            return f"{cpu_share[at]:.0%} of its CPU and {memory_share[at]:.0%} of its memory free"

        parts = {"cpu_free_share": cpu_share, "memory_free_share": memory_share}
        return Scores(candidates, total, best(total, self.better), why, parts, Leeway(WHOLE_POINT))
