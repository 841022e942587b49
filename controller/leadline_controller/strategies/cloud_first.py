"""cloud-first: the cloud while it has room, a baseline of KubeDSM.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Section 6 (CF), which gives no more than the name. The rules are those of its authors'
program (repository AUT-Cloud-Lab/sencillo).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leadline_controller.framework.cycle import Better, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.capacity import is_cloud, keeps_free

_KEEPS_TOO_LITTLE = -2.0  # below the total of any node that keeps enough free


@dataclass(frozen=True, slots=True)
class CloudFirst(Strategy):
    """A cloud node, or an edge node if no cloud node is eligible; within a tier any, by chance.

    As in the authors' program, a node is eligible if it has more than the pod asks for after
    `keep_cores` and `keep_gib` are set aside. The program leaves a pod pending if no node is
    eligible; here that rule is left out then. Every node that is not of tier "cloud" is edge.
    Needs nothing measured. A node of unknown CPU or memory is chosen only if all are.
    """

    name = "cloud-first"
    better: ClassVar[Better] = "higher"
    paper = "KubeDSM, Section 6 (baseline CF)"
    needs = ()

    keep_cores: float = option(1.0, unit="cores", maximum=1e6, help="left free on a node")
    keep_gib: float = option(1.0, unit="GiB", maximum=1e6, help="memory left free on a node")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """1 for a cloud node, 0 for an edge node; 2 less for a node that keeps too little free."""
        cloud = is_cloud(view)[candidates]
        kept = keeps_free(view, pod, candidates, self.keep_cores, self.keep_gib)
        in_cloud = np.where(cloud, 1.0, 0.0)
        missing = np.where(kept == 0, _KEEPS_TOO_LITTLE, kept - 1)
        total = in_cloud + missing

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            tier = "in the cloud" if cloud[at] else "on the edge, as no cloud node is eligible"
            return tier if kept[at] else f"{tier}; no node keeps enough free"

        parts = {"cloud": in_cloud, "keeps_too_little": missing}
        return Scores(candidates, total, best(total, self.better), why, parts)
