"""response-time: the node with the shortest predicted response time.

Alqahtani, Toosi, "Container Orchestration in Heterogeneous Edge Computing Environments",
Algorithm 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Filter, FilterResult, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.delays import (
    SCATTER_MS,
    longest_where_unknown_ms,
    profiled_ms,
    slowest_where_unknown_ms,
    unknown_rtt_option,
)
from leadline_controller.strategies.shared.services import replicas_per_node, service_of

THRESHOLD = "ResponseTime"


def replica_to_remove(replicas: Sequence[Pod]) -> Pod:
    """The replica that a scale-down removes: the newest one (Algorithm 1, lines 20-24). replicas:
    oldest first, at least one. Raises ValueError."""
    if not replicas:
        raise ValueError("replicas: expected one at least, got none")
    return replicas[-1]


def least_without_replica(prediction_ms: Floats, replicas: Ints) -> Ints:
    """Positions of the shortest prediction among the nodes without a replica, or among all nodes if
    each has one (Algorithm 1, lines 8-19). Both columns have shape (n,)."""
    without = replicas == 0
    return best(np.where(without | ~without.any(), prediction_ms, np.nan), "lower")


def replicas_needed(
    ping_ms: Sequence[float],
    profiling_ms: Sequence[float],
    requests_per_s: float,
    threshold_ms: float,
) -> int | None:
    """The least number of replicas with which each is predicted to answer within the threshold;
    None if even all are not enough. Both columns are of the replicas in the order in which the
    algorithm places them.

    The paper's prediction, ping + profiling, is that of one request at a time. Of k replicas, each
    gets a k-th of the requests, and one that works on them at rate 1/profiling takes, on average,
    profiling / (1 - load) for each, where load = requests_per_s / k * profiling (the queue M/M/1,
    for which processor sharing gives the same).
    """
    profiling_s = np.array(profiling_ms) / 1000
    for count in range(1, len(ping_ms) + 1):
        load = requests_per_s / count * profiling_s[:count]
        if (load < 1).all():
            answered_ms = np.array(ping_ms[:count]) + 1000 * profiling_s[:count] / (1 - load)
            if (answered_ms <= threshold_ms).all():
                return count
    return None


@dataclass(frozen=True, slots=True)
class ResponseTime(Strategy):
    """prediction = ping + profiling, in ms; the shortest one wins (Algorithm 1).

    Further replicas go to the shortest prediction among the candidates without a replica of the
    same service (same namespace and labels, strategies/shared/services.py), or among all
    candidates if each has one, as in the algorithm; the text's "second round" could also mean node
    after node. Pods without labels stand alone and are not spread.

    This strategy's filter rejects nodes whose prediction exceeds `leadline.dev/response-time-ms`
    (lines 1-7). A pod without the annotation has no threshold.

    The ping starts where requests enter the cluster. In the paper that is the master, its gateway;
    here it is `leadline.dev/user-node`, else the mean over the control plane nodes, else, if there
    are none, the mean over all other nodes. Profiling is `leadline.dev/profile-ms`, by node or
    node class.

    Unknown, never zero: a round trip that was not measured counts as the longest one measured in
    the cluster, or as `unknown_rtt` if there is none; a node that is not in the profile counts as
    the slowest that is; without a profile only the ping counts. With a threshold, a node with an
    unknown value does not pass.
    """

    name = "response-time"
    better = "lower"
    paper = "Response time, Algorithm 1"
    needs = ("rtt_ms",)

    unknown_rtt_ms: float = unknown_rtt_option()

    def filters(self) -> Mapping[str, Filter]:
        """The threshold (lines 4-6)."""
        return {THRESHOLD: within_threshold}

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The prediction for every candidate, in ms, and its parts."""
        ping_ms = _ping_ms(view, pod)[candidates]
        parts = {"ping_ms": longest_where_unknown_ms(ping_ms, view.links, self.unknown_rtt_ms)}
        if pod.annotations.profile_ms:
            profiling_ms = slowest_where_unknown_ms(view.table, pod.annotations.profile_ms)
            parts["profiling_ms"] = profiling_ms[candidates]
        prediction_ms: Floats = sum(parts.values(), np.zeros(candidates.size))
        replicas = np.zeros(candidates.size, dtype=np.int64)
        if wanted := service_of(pod):
            replicas = replicas_per_node(view, wanted)[candidates]

        def why(at: int) -> str:
            terms = ", ".join(f"{part[:-3]} {column[at]:.1f}" for part, column in parts.items())
            text = f"{prediction_ms[at]:.1f} ms predicted ({terms})"
            if not replicas.any():
                return text
            if at not in finalists:
                return text
            if replicas.all():
                return f"{text}; every node that fits has a replica already"
            return f"{text}, the least of the nodes without a replica"

        def among(at: Ints) -> Ints:
            return at[least_without_replica(prediction_ms[at], replicas[at])]

        finalists = among(np.arange(candidates.size))
        rivals = (replicas == 0) | (replicas > 0).all()  # lines 8-19
        scatter_ms = SCATTER_MS
        return Scores(
            candidates, prediction_ms, finalists, why, parts, scatter_ms, among, rivals=rivals
        )


def within_threshold(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose prediction is known and does not exceed `leadline.dev/response-time-ms`
    (Algorithm 1, lines 1-7)."""
    threshold_ms = pod.annotations.response_time_ms
    if threshold_ms is None:
        return FilterResult.all_pass(view)
    if not pod.annotations.profile_ms:
        return FilterResult.none_pass(
            view,
            "annotation leadline.dev/response-time-ms needs leadline.dev/profile-ms beside it, "
            "or no response time can be predicted",
        )
    ping_ms = _ping_ms(view, pod)
    profiling_ms = profiled_ms(view.table, pod.annotations.profile_ms)

    def reason(i: int) -> str:
        if np.isnan(ping_ms[i]):
            return f"needs {threshold_ms:g} ms, its round trip is unknown"
        if np.isnan(profiling_ms[i]):
            return f"needs {threshold_ms:g} ms, the pod's profile does not name it"
        return f"needs {threshold_ms:g} ms, predicted {ping_ms[i] + profiling_ms[i]:g}"

    return FilterResult(ping_ms + profiling_ms <= threshold_ms, reason)


def _ping_ms(view: ClusterView, pod: Pod) -> Floats:
    """Round trip from the gateway of the requests to each node, ms, NaN if not measured."""
    gateways = view.table.mask("masters", lambda node: node.is_control_plane)
    if (user := view.user_node(pod)) is not None:
        ping_ms = view.links.rtt_ms_from(user)
        ping_ms[user] = 0.0
        return ping_ms
    if not gateways.any():
        return view.links.rtt_mean_and_deviation_ms(view.table.mask("all", lambda _: True))[0]
    mean_ms = view.links.rtt_mean_and_deviation_ms(gateways)[0]
    alone = np.count_nonzero(gateways) == 1
    return np.where(gateways, 0.0, mean_ms) if alone else mean_ms
