"""nas: network-aware scheduling, the preferred node and then its nearest neighbour.

Santos et al., "Resource Provisioning in Fog Computing: From Theory to Practice", as the DACS
paper describes it: Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Sections
3.3 and 7.2.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.delays import (
    longest_where_unknown_ms,
    unknown_rtt_option,
)


@dataclass(frozen=True, slots=True)
class Nas(Strategy):
    """The shortest round trip to the pod's preferred node (PN) wins; that of the PN itself is 0. So
    pods go to the PN while it has enough resources, then to the node nearest to it.

    Decided here: the paper designates PNs by hand; here it is the pod's `leadline.dev/user-node`.
    The filters decide what is enough. Without a PN all nodes tie.

    Unknown, never zero: a round trip that was not measured counts as the longest one measured in
    the cluster, or as `unknown_rtt` if there is none.
    """

    name = "nas"
    better = "lower"
    paper = "DACS, Sections 3.3 and 7.2 (NAS)"
    needs = ("rtt_ms",)

    unknown_rtt_ms: float = unknown_rtt_option()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Round trip to the preferred node for every candidate, ms."""
        preferred = pod.annotations.user_node
        if preferred is None:
            total = np.full(candidates.size, np.nan)
        else:
            rtt_ms = view.links.rtt_ms_from(view.table.index[preferred])
            rtt_ms[view.table.index[preferred]] = 0.0
            total = longest_where_unknown_ms(rtt_ms, view.links, self.unknown_rtt_ms)[candidates]

        def why(at: int) -> str:
            if preferred is None:
                return "the pod prefers no node"
            if view.table.names[candidates[at]] == preferred:
                return f"{preferred} is the preferred node"
            return f"nearest to the preferred node {preferred}: {total[at]:g} ms"

        return Scores(candidates, total, best(total, self.better), why)
