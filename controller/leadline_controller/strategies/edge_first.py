"""bef and sef: the biggest or the smallest edge node first, baselines of KubeDSM.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Section 6, which gives no more than the names.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leadline_controller.framework.cycle import Better, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.capacity import is_cloud, relative_size


@dataclass(frozen=True, slots=True)
class BiggestEdgeFirst(Strategy):
    """The biggest edge node that fits, or the biggest cloud node if no edge node fits; ties at
    random.

    Decided here: the size of a node is its capacity and not what is free, measured as Eq. 11
    measures pods; a batch is its pods one after the other, and nothing ever moves. Every node
    that is not of tier "cloud" is edge. Needs nothing measured. A node of unknown capacity is
    chosen only if no capacity is known.
    """

    name = "bef"
    better: ClassVar[Better] = "higher"
    paper = "KubeDSM, Section 6 (baseline BEF)"
    needs = ()

    def score(self, view: ClusterView, _: Pod, candidates: Ints) -> Scores:
        """The node's size, 0 to 1, plus 1 for an edge node if higher totals win, or plus 1 for a
        cloud node if lower totals win."""
        cloud = is_cloud(view)[candidates]
        size = relative_size(view, candidates)
        tier, extreme = ("edge", "biggest") if self.better == "higher" else ("cloud", "smallest")
        in_tier = np.where(cloud == (tier == "cloud"), 1.0, 0.0)
        total = in_tier + size

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            return f"the {extreme} {'cloud' if cloud[at] else 'edge'} node that fits"

        parts = {tier: in_tier, "size": size}
        return Scores(candidates, total, best(total, self.better), why, parts)


@dataclass(frozen=True, slots=True)
class SmallestEdgeFirst(BiggestEdgeFirst):
    """The smallest edge node that fits, or the smallest cloud node if no edge node fits. For the
    rest, unknown capacities included, see BiggestEdgeFirst."""

    name = "sef"
    better: ClassVar[Better] = "lower"
    paper = "KubeDSM, Section 6 (baseline SEF)"
