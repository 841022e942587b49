"""cloud-first: the cloud while it has room, a baseline of KubeDSM.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Section 6 (CF), which gives no more than the name.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leadline_controller.framework.cycle import Better, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.capacity import is_cloud, scarcer_free_share


@dataclass(frozen=True, slots=True)
class CloudFirst(Strategy):
    """A cloud node, or an edge node if no cloud node fits; within a tier the one with the largest
    free share of the scarcer of CPU and memory, ties at random.

    Decided here: the choice within a tier, and that a batch is its pods one after the other
    and nothing ever moves. Every node that is not of tier "cloud" is edge. Needs nothing
    measured. A node of unknown capacity is chosen only if no capacity is known.
    """

    name = "cloud-first"
    better: ClassVar[Better] = "higher"
    paper = "KubeDSM, Section 6 (baseline CF)"
    needs = ()

    def score(self, view: ClusterView, _: Pod, candidates: Ints) -> Scores:
        """1 for a cloud node, and the node's free share, 0 to 1."""
        cloud = is_cloud(view)[candidates]
        share = scarcer_free_share(view, candidates)
        in_cloud = np.where(cloud, 1.0, 0.0)
        total = in_cloud + share

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            tier = "in the cloud" if cloud[at] else "on the edge, as no cloud node fits"
            return f"{tier}, {share[at]:.0%} of it free"

        parts = {"cloud": in_cloud, "free_share": share}
        return Scores(candidates, total, best(total, self.better), why, parts)
