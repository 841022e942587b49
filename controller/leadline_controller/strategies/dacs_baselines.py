"""elasticfog, kcss, nas and tsra: the strategies that the DACS paper compares itself with.

As it describes them: Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Sections
3.2, 3.3 and 7.2.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Scores, Strategy, best
from leadline_controller.framework.model import CPU, MEMORY, PODS, Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.delays import (
    longest_where_unknown_ms,
    transfer_s,
    unknown_rtt_option,
)
from leadline_controller.strategies.shared.services import replicas_per_node, service_of

_MIN_CORES = 0.001  # on a full node, so that times are finite


@dataclass(frozen=True, slots=True)
class ElasticFog(Strategy):
    """The number of replicas that a node lacks: its share of the traffic times the replicas of the
    service, this pod included, less the replicas that it has. The highest wins, but every node
    gets a first replica before any gets a second.

    Nguyen et al., "ElasticFog: Elastic Resource Provisioning in Container-Based Fog Computing".

    Decided here: traffic is the packets that a node sends and receives, and shares are among the
    candidates. A pod without labels belongs to no service; for it, all pods that this run has
    placed count.

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
            replicas = replicas_per_node(view, wanted, terminating=True)[candidates]
        due = share * (replicas.sum() + 1)
        total = due - replicas

        def why(at: int) -> str:
            return (
                f"{share[at]:.0%} of the traffic, {replicas[at]} of {due[at]:.2f} pods that it is "
                "due"
            )

        empty = np.flatnonzero(replicas == 0)
        pool = empty if empty.size else np.arange(candidates.size)
        finalists = pool[total[pool] == total[pool].max()]
        parts = {"traffic_share": share, "replicas": replicas.astype(np.float64)}
        return Scores(candidates, total, finalists, why, parts)


def _traffic_share(view: ClusterView, candidates: Ints) -> Floats:
    metrics = view.metrics
    traffic = (metrics.packets_received_per_s + metrics.packets_sent_per_s)[candidates]
    if not np.isnan(traffic).all():
        traffic = np.where(np.isnan(traffic), np.nanmin(traffic), traffic)
        if traffic.sum() > 0:
            shares: Floats = traffic / traffic.sum()
            return shares
    return np.full(candidates.size, 1 / candidates.size)


@dataclass(frozen=True, slots=True)
class Kcss(Strategy):
    """Nearness to the ideal node (TOPSIS), 0 to 1; the highest wins. The ideal node has the highest
    value of every criterion, so that nodes are filled: the requested shares of CPU and memory
    with the pod, and the number of pods.

    Menouer, "KCSS: Kubernetes container scheduling strategy": one node is filled before the next.

    Decided here: the criteria have equal weights. Of the paper's six, disk use and power are left
    out because nothing measures them, and the time to send the image because it is equal on equal
    links. Shares include the pod's own requests, which makes a small node fuller than a large one
    from the first pod on.

    Needs nothing measured. The score of a node without CPU or memory is unknown, and it is chosen
    only if all scores are.
    """

    name = "kcss"
    better = "higher"
    paper = "DACS, Sections 3.2 and 7.2 (KCSS)"
    needs = ()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """TOPSIS over the three criteria for every candidate."""
        parts = {
            "cpu_used_share": _used_share(view, pod, CPU, candidates),
            "memory_used_share": _used_share(view, pod, MEMORY, candidates),
            "pods": view.requested_of(PODS)[candidates].astype(np.float64),
        }
        total = nearness_to_ideal(np.array(list(parts.values())))

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            return (
                f"with the pod {parts['cpu_used_share'][at]:.0%} of its CPU and "
                f"{parts['memory_used_share'][at]:.0%} of its memory in use"
            )

        return Scores(candidates, total, best(total, self.better), why, parts)


def nearness_to_ideal(criteria: Floats) -> Floats:
    """TOPSIS with equal weights: distance to the worst over the sum of the distances to worst and
    best, each criterion divided by its Euclidean norm.

    criteria: shape (m, n), higher is better, NaN if unknown. Returns shape (n,), 0 to 1; 1 for all
    nodes if all are equal, NaN for a node with an unknown criterion.
    """
    known = ~np.isnan(criteria).any(axis=0)
    nearness = np.full(criteria.shape[1], np.nan)
    if not known.any():
        return nearness
    norms = np.sqrt((criteria[:, known] ** 2).sum(axis=1, keepdims=True))
    unit = criteria[:, known] / np.where(norms > 0, norms, 1.0)
    to_best = np.sqrt(((unit.max(axis=1, keepdims=True) - unit) ** 2).sum(axis=0))
    to_worst = np.sqrt(((unit - unit.min(axis=1, keepdims=True)) ** 2).sum(axis=0))
    distance = to_best + to_worst
    nearness[known] = np.where(distance > 0, to_worst / np.where(distance > 0, distance, 1.0), 1.0)
    return nearness


def _used_share(view: ClusterView, pod: Pod, resource: str, candidates: Ints) -> Floats:
    capacity = view.table.allocatable(resource)[candidates].astype(np.float64)
    capacity[capacity == 0] = np.nan
    wanted = view.requested_of(resource)[candidates] + pod.requests.get(resource, 0)
    return np.minimum(wanted / capacity, 1.0)


@dataclass(frozen=True, slots=True)
class Nas(Strategy):
    """The shortest round trip to the pod's preferred node (PN) wins; that of the PN itself is 0. So
    pods go to the PN while it has enough resources, then to the node nearest to it.

    Santos et al., "Resource Provisioning in Fog Computing: From Theory to Practice".

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


@dataclass(frozen=True, slots=True)
class Tsra(Strategy):
    """Execution time plus the time to send image and data, in seconds; the shortest wins, because
    it meets the most deadlines.

    Yin, Luo, Luo, "Tasks Scheduling and Resource Allocation in Fog Computing Based on Containers
    for Smart Manufacturing".

    Decided here, because the description does not say it: a task runs on all free cores of the
    node (with a share or a limit, equal pods would see no difference between nodes, and in the
    paper TSRA prefers the node with more left). Data comes from the user's node, so a pod there
    does not wait for it. A scheduler cannot refuse a task, so a task that meets its deadline
    nowhere goes to the node that finishes first.

    Unknown: a pod without `data-mb` counts as having `data_mb`. A link of unknown bandwidth counts
    as the slowest known one; if none is known, sending is left out for all nodes. Without a user
    node every node waits for the data; without a deadline every node is in time.
    """

    name = "tsra"
    better = "lower"
    paper = "DACS, Sections 3.3 and 7.2 (TSRA)"
    needs = ("bandwidth_mbps",)

    rate: float = option(
        1.0, unit="MB/s", minimum=1e-9, maximum=1e9, help="data one core handles a second"
    )
    image_s: float = option(0.0, unit="s", maximum=1e6, help="time to send the image")
    data_mb: float = option(1.0, unit="MB", maximum=1e12, help="data of a pod without data-mb")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Time until each candidate finishes, seconds."""
        volume_mb = self.data_mb if pod.annotations.data_mb is None else pod.annotations.data_mb
        cores = np.maximum(view.free(CPU)[candidates] / 1000, _MIN_CORES)
        execution_s = volume_mb / (cores * self.rate)
        data_s = transfer_s(view, pod, volume_mb, candidates)
        if pod.annotations.user_node is not None:
            data_s[candidates == view.table.index[pod.annotations.user_node]] = 0.0
        sending_s = self.image_s + data_s
        total = execution_s + sending_s
        deadline_s = pod.annotations.deadline_s

        def why(at: int) -> str:
            text = (
                f"done in {total[at]:.3f} s (execution {execution_s[at]:.3f}, "
                f"sending {sending_s[at]:.3f})"
            )
            if deadline_s is None:
                return text
            met = "in time for" if total[at] <= deadline_s else "too late for"
            return f"{text}, {met} its deadline of {deadline_s:g} s"

        parts = {"execution_s": execution_s, "sending_s": sending_s}
        return Scores(candidates, total, best(total, self.better), why, parts)
