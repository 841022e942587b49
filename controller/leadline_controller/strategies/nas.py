"""nas: network-aware scheduling, the preferred nodes and then those nearest to them.

Santos et al., "Resource Provisioning in Fog Computing: From Theory to Practice", as the DACS
paper describes it: Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Sections
3.3 and 7.2.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Leeway, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.delays import (
    SCATTER_MS,
    round_trips_ms,
    unknown_rtt_option,
)
from leadline_controller.strategies.shared.unknowns import unknown_option

PREFERRED_LABEL = "leadline.dev/preferred-node"


@dataclass(frozen=True, slots=True)
class Nas(Strategy):
    """A preferred node, else the one with the shortest round trip to one.

    A preferred node (PN) wins, and among other nodes the shortest round trip to one. The paper
    looks at round trips only when no PN has enough resources left, so no other node is as good as a
    PN, however near it is; a PN's total is 0.

    Designated as PNs are the nodes with the label `leadline.dev/preferred-node: "true"`. Decided
    here: if there is none, the PN is the pod's `leadline.dev/user-node`. The filters decide what is
    enough. Without a PN all nodes tie.

    Unknown, never zero: a round trip that was not measured counts as those to boards like it
    (strategies/shared/unknowns.py); with `unknown=worst`, and where none to the PN is known, as the
    longest one measured in the cluster, or as `unknown_rtt` if there is none.
    """

    name = "nas"
    better = "lower"
    paper = "DACS, Sections 3.3 and 7.2 (NAS)"
    needs = ("rtt_ms",)

    unknown_rtt_ms: float = unknown_rtt_option()
    unknown: str = unknown_option()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Round trip to the nearest preferred node for every candidate, ms."""
        preferred = _preferred(view, pod)
        is_preferred = np.isin(candidates, preferred)
        rivals = is_preferred | ~is_preferred.any()
        round_trips = [
            round_trips_ms(
                *(view, view.links.rtt_ms_from(int(node)), candidates, self.unknown),
                *(self.unknown_rtt_ms, np.arange(len(view)) == node),
            )
            for node in preferred
        ]
        total = np.full(candidates.size, np.nan)
        for each in round_trips:
            total = np.fmin(total, each.values)

        def why(at: int) -> str:
            if not preferred.size:
                return "no node is preferred"
            if is_preferred[at]:
                return f"{view.table.names[candidates[at]]} is a preferred node"
            nearest = min(round_trips, key=lambda each: float(each.values[at]))
            return f"{total[at]:g} ms from the nearest preferred node{nearest.note(at)}"

        open_to = np.flatnonzero(rivals)
        finalists = open_to[best(total[open_to], self.better)]
        leeway = Leeway(SCATTER_MS, rivals=rivals)
        return Scores(candidates, total, finalists, why, leeway=leeway)


def _preferred(view: ClusterView, pod: Pod) -> Ints:
    """Indexes of the designated nodes, else of the user's node."""
    designated = view.table.mask(
        PREFERRED_LABEL, lambda node: node.labels.get(PREFERRED_LABEL) == "true"
    )
    user_node = view.user_node(pod)
    if designated.any() or user_node is None:
        return np.flatnonzero(designated)
    return np.array([user_node])
