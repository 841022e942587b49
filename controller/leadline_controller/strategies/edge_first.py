"""bef and sef: the biggest or the smallest edge node first, baselines of KubeDSM.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Section 6, which gives no more than the names. The rules are those of its authors'
program (repository AUT-Cloud-Lab/sencillo).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leadline_controller.framework.cycle import Better, Leeway, Scores, Strategy, best
from leadline_controller.framework.model import MEMORY, Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.capacity import free_share, is_cloud, keeps_free

_KEEPS_TOO_LITTLE = -3.0  # below the total of any node that keeps enough free
_NEARLY_FULL = 0.05  # of the largest memory; the tiers are further apart


@dataclass(frozen=True, slots=True)
class BiggestEdgeFirst(Strategy):
    """The edge node with the most memory left, or any cloud node if no edge node is eligible; ties
    at random.

    As in the authors' program, the size of a node is what is left of it and not its capacity, and
    only memory counts (the program adds cores to bytes). A node is eligible if it has more than
    the pod asks for after `keep_cores` and `keep_gib` are set aside. The program leaves a pod
    pending if no node is eligible; here that rule is left out then. Every node that is not of tier
    "cloud" is edge. Needs nothing measured. A node of unknown CPU or memory is chosen only if all
    are.
    """

    name = "bef"
    better: ClassVar[Better] = "higher"
    paper = "KubeDSM, Section 6 (baseline BEF)"
    needs = ()
    _extreme: ClassVar[str] = "most"

    keep_cores: float = option(1.0, unit="cores", maximum=1e6, help="left free on a node")
    keep_gib: float = option(1.0, unit="GiB", maximum=1e6, help="memory left free on a node")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """For an edge node 1 and its memory left in shares of the largest memory, 0 to 1 (sef: what
        is missing to 1); for a cloud node 0; 3 less for a node that keeps too little free."""
        edge = ~is_cloud(view)[candidates]
        kept = keeps_free(view, pod, candidates, self.keep_cores, self.keep_gib)
        memory = view.table.allocatable(MEMORY).astype(np.float64)
        left = free_share(view, MEMORY, candidates) * memory[candidates]
        share = np.clip(left / max(float(memory.max(initial=0)), 1.0), 0, 1)
        rank = np.where(edge, share if self._extreme == "most" else 1 - share, 0.0)
        in_tier = np.where(edge, 1.0, 0.0)
        missing = np.where(kept == 0, _KEEPS_TOO_LITTLE, kept - 1)
        total = in_tier + rank + missing

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            which = (
                f"the edge node with the {self._extreme} memory left"
                if edge[at]
                else "a cloud node"
            )
            return which if kept[at] else f"{which}; no node keeps enough free"

        parts = {"edge": in_tier, "memory_left": rank, "keeps_too_little": missing}
        return Scores(candidates, total, best(total, self.better), why, parts, Leeway(_NEARLY_FULL))


@dataclass(frozen=True, slots=True)
class SmallestEdgeFirst(BiggestEdgeFirst):
    """The edge node with the least memory left, or any cloud node if no edge node is eligible.

    For the rest, unknown capacities included, see BiggestEdgeFirst.
    """

    name = "sef"
    paper = "KubeDSM, Section 6 (baseline SEF)"
    _extreme: ClassVar[str] = "least"
