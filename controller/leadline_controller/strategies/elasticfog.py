"""elasticfog: as many replicas on each node as its share of the traffic.

Nguyen et al., "ElasticFog: Elastic Resource Provisioning in Container-Based Fog Computing", as
the DACS paper describes it: Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes",
Sections 3.2 and 7.2.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Leeway, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.services import service_of
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.unknowns import Filled, fill, unknown_option

_HALF_A_POD = 0.5  # pods are whole, so this is only the rounding of a share


@dataclass(frozen=True, slots=True)
class ElasticFog(Strategy):
    """The node that lacks the most replicas for its share of the users' traffic.

    The number of replicas that a node lacks: its share of the traffic times the replicas of the
    service, this pod included, less the replicas that it has. The highest wins, but every node
    gets a first replica before any gets a second.

    Decided here: traffic is the packets that a node sends and receives, and shares are among the
    candidates. Replicas that are being deleted do not count: in a rollout, the new ones are to
    take their places. A pod without labels belongs to no service; for it, all pods that this run
    has placed count. Nodes that lack as many within the error of their traffic, but at most half a
    pod, are as good.

    Unknown: a node without a metric counts as having the traffic of boards like it
    (strategies/shared/unknowns.py), or with `unknown=worst` the least known; if none is known, or
    there is no traffic, all shares are equal.
    """

    name = "elasticfog"
    better = "higher"
    paper = "DACS, Sections 3.2 and 7.2 (ElasticFog)"
    needs = ("packets_received_per_s", "packets_sent_per_s")

    unknown: str = unknown_option()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The number of replicas that each candidate lacks."""
        traffic = _traffic(view, candidates, self.unknown)
        share, margin = _shares(view, candidates, traffic.values)
        replicas = view.placed_in_run[candidates]
        if wanted := service_of(pod):
            replicas = view.assigned_pods.replicas(wanted, len(view))[candidates]
        due = share * (replicas.sum() + 1)
        total = due - replicas
        margin = np.minimum(margin * (replicas.sum() + 1), _HALF_A_POD)

        def why(at: int) -> str:
            return (
                f"{share[at]:.0%} of the traffic, {replicas[at]} of {due[at]:.2f} pods that it is "
                f"due{traffic.note(at)}"
            )

        def among(at: Ints) -> Ints:
            empty = at[replicas[at] == 0]
            pool: Ints = empty if empty.size else at
            return pool[best(total[pool], self.better, margin[pool])]

        parts = {"traffic_share": share, "replicas": replicas.astype(np.float64)}
        finalists = among(np.arange(candidates.size))
        rivals = (replicas == 0) | (replicas > 0).all()
        leeway = Leeway(_HALF_A_POD, among, rivals=rivals)
        return Scores(candidates, total, finalists, why, parts, leeway)


def _traffic(view: ClusterView, candidates: Ints, unknown: str) -> Filled:
    metrics = view.metrics
    packets = metrics.packets_received_per_s + metrics.packets_sent_per_s

    def least(known: Floats) -> float:
        return float(known.min()) if known.size else 0.0

    return fill(view, packets, candidates, unknown, least, "traffic", "packets/s")


def _shares(view: ClusterView, candidates: Ints, traffic: Floats) -> tuple[Floats, Floats]:
    """The share of each, and how far it may be off (NodeMetrics.margins_of)."""
    total = traffic.sum()
    if not total > 0:
        return np.full(traffic.size, 1 / traffic.size), np.zeros(traffic.size)
    margins = view.metrics.margins_of(ElasticFog.needs, candidates)
    margin = np.zeros(traffic.size) if margins is None else margins.sum(axis=0)
    return traffic / total, margin / total
