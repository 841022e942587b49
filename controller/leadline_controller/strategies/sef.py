"""sef: the smallest edge node first, a baseline of KubeDSM.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Section 6, which gives no more than the name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leadline_controller.framework.cycle import Better, Scores, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.tiers import is_cloud, relative_size


@dataclass(frozen=True, slots=True)
class SmallestEdgeFirst:
    """The smallest edge node that fits, and the smallest cloud node where none does; ties at
    random.

    Decided here: small is what a node can hold and not what is free of it, measured as Eq. 11
    measures pods; a batch is its pods one after the other, and nothing ever moves. Every node
    that is not of tier "cloud" is edge. Needs nothing measured. Unknown: a node that does not
    say how much CPU or memory it has is chosen only when none does.
    """

    name: ClassVar[str] = "sef"
    better: ClassVar[Better] = "lower"
    paper: ClassVar[str] = "KubeDSM, Section 6 (baseline SEF)"
    needs: ClassVar[tuple[str, ...]] = ()

    def score(self, view: ClusterView, _: Pod, candidates: Ints) -> Scores:
        """1 for a cloud node, and the node's size, 0 to 1."""
        cloud = is_cloud(view)[candidates]
        size = relative_size(view, candidates)
        total = np.where(cloud, 1.0, 0.0) + size

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            return f"the smallest {'cloud' if cloud[at] else 'edge'} node that fits"

        parts = {"cloud": np.where(cloud, 1.0, 0.0), "size": size}
        return Scores(candidates, total, best(total, self.better), why, parts)

    def charge(self, _: ClusterView, pod: Pod, __: int) -> Mapping[str, int]:
        """The pod's requests."""
        return pod.requests
