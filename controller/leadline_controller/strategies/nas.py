"""nas: network-aware scheduling, the preferred node and then its nearest neighbour.

Santos et al., "Resource Provisioning in Fog Computing: From Theory to Practice", as the DACS
paper describes it: Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Sections
3.3 and 7.2.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leadline_controller.framework.cycle import Better, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.view import ClusterView, Ints


@dataclass(frozen=True, slots=True)
class Nas(Strategy):
    """The shortest round trip to the pod's preferred node (PN) wins; that of the PN itself is 0. So
    pods go to the PN while it has enough resources, then to the node nearest to it.

    Decided here: the paper designates PNs by hand; here it is the pod's `leadline.dev/user-node`.
    The filters decide what is enough. Without a PN all nodes tie.

    Unknown, never zero: a round trip that was not measured counts as the longest one measured in
    the cluster, or as `unknown_rtt` if there is none.
    """

    name: ClassVar[str] = "nas"
    better: ClassVar[Better] = "lower"
    paper: ClassVar[str] = "DACS, Sections 3.3 and 7.2 (NAS)"
    needs: ClassVar[tuple[str, ...]] = ("rtt_ms",)

    unknown_rtt_ms: float = option(
        100.0,
        unit="ms",
        maximum=1e9,
        name="unknown_rtt",
        help="round trip when none was ever measured",
    )

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Round trip to the preferred node for every candidate, ms."""
        preferred = pod.annotations.user_node
        if preferred is None:
            total = np.full(candidates.size, np.nan)
        else:
            worst_ms = view.links.worst_rtt_ms
            unknown_ms = self.unknown_rtt_ms if np.isnan(worst_ms) else worst_ms
            rtt_ms = view.links.rtt_ms_from(view.table.index[preferred])
            rtt_ms = np.where(np.isnan(rtt_ms), unknown_ms, rtt_ms)
            rtt_ms[view.table.index[preferred]] = 0.0
            total = rtt_ms[candidates]

        def why(at: int) -> str:
            if preferred is None:
                return "the pod prefers no node"
            if view.table.names[candidates[at]] == preferred:
                return f"{preferred} is the preferred node"
            return f"nearest to the preferred node {preferred}: {total[at]:g} ms"

        return Scores(candidates, total, best(total, self.better), why)
