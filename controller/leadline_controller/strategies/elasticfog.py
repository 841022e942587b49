"""elasticfog: as many replicas on each node as its share of the traffic.

Nguyen et al., "ElasticFog: Elastic Resource Provisioning in Container-Based Fog Computing", as
the DACS paper describes it: Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes",
Sections 3.2 and 7.2.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Scores, Strategy
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.services import replicas_per_node, service_of


@dataclass(frozen=True, slots=True)
class ElasticFog(Strategy):
    """The number of replicas that a node lacks: its share of the traffic times the replicas of the
    service, this pod included, less the replicas that it has. The highest wins, but every node
    gets a first replica before any gets a second.

    Decided here: traffic is the packets that a node sends and receives, and shares are among the
    candidates. Replicas that are being deleted do not count: in a rollout, the new ones are to
    take their places. A pod without labels belongs to no service; for it, all pods that this run
    has placed count.

    Unknown: a node without a metric counts as having the least known traffic; if none is known,
    or there is no traffic, all shares are equal.
    """

    name = "elasticfog"
    better = "higher"
    paper = "DACS, Sections 3.2 and 7.2 (ElasticFog)"
    needs = ("packets_received_per_s", "packets_sent_per_s")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The number of replicas that each candidate lacks."""
        share = _traffic_share(view, candidates)
        replicas = view.placed_in_run[candidates]
        if wanted := service_of(pod):
            replicas = replicas_per_node(view, wanted)[candidates]
        due = share * (replicas.sum() + 1)
        total = due - replicas

        def why(at: int) -> str:
            return (
                f"{share[at]:.0%} of the traffic, {replicas[at]} of {due[at]:.2f} pods that it is "
                "due"
            )

        def among(at: Ints) -> Ints:
            empty = at[replicas[at] == 0]
            pool: Ints = empty if empty.size else at
            most: Ints = pool[total[pool] == total[pool].max()]
            return most

        parts = {"traffic_share": share, "replicas": replicas.astype(np.float64)}
        # Pods are whole, so half of one is only the rounding of a share.
        finalists = among(np.arange(candidates.size))
        rivals = (replicas == 0) | (replicas > 0).all()
        return Scores(candidates, total, finalists, why, parts, 0.5, among, rivals=rivals)


def _traffic_share(view: ClusterView, candidates: Ints) -> Floats:
    metrics = view.metrics
    traffic = (metrics.packets_received_per_s + metrics.packets_sent_per_s)[candidates]
    if not np.isnan(traffic).all():
        traffic = np.where(np.isnan(traffic), np.nanmin(traffic), traffic)
        if traffic.sum() > 0:
            shares: Floats = traffic / traffic.sum()
            return shares
    return np.full(candidates.size, 1 / candidates.size)
