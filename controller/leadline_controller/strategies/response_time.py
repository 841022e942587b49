"""response-time: the node with the shortest predicted response time.

Alqahtani, Toosi, "Container Orchestration in Heterogeneous Edge Computing Environments",
Algorithm 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Filter, FilterResult, Leeway, Scores, Strategy, best
from leadline_controller.framework.model import CPU, Pod
from leadline_controller.framework.options import choice
from leadline_controller.framework.traffic import PeerAt
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.shared.delays import (
    SCATTER_MS,
    gateway_round_trips_ms,
    profiled_ms,
    profiling_ms,
    round_trips_ms,
    unknown_rtt_option,
)
from leadline_controller.strategies.shared.peers import (
    main_peer_option,
    user_peer,
    user_round_trips_ms,
)
from leadline_controller.strategies.shared.unknowns import unknown_option

THRESHOLD = "ResponseTime"


def replica_to_remove(replicas: Sequence[Pod]) -> Pod:
    """The replica that a scale-down removes: the newest one (Algorithm 1, lines 20-24). replicas:
    oldest first, at least one. Raises ValueError."""
    if not replicas:
        raise ValueError("replicas: expected one at least, got none")
    return replicas[-1]


def next_in_round(prediction_ms: Floats, replicas: Ints) -> Ints:
    """Positions of the shortest prediction among the nodes with the fewest replicas, so that each
    node gets one more before any gets two more (the text's rounds, Section 3.2). Both columns have
    shape (n,)."""
    return best(np.where(replicas == replicas.min(), prediction_ms, np.nan), "lower")


def least_without_replica(prediction_ms: Floats, replicas: Ints) -> Ints:
    """Positions of the shortest prediction among the nodes without a replica, or among all nodes if
    each has one (Algorithm 1, lines 8-19). Both columns have shape (n,)."""
    return next_in_round(prediction_ms, np.minimum(replicas, 1))


def replicas_needed(
    placed: Iterable[tuple[str, float, float, float]], requests_per_s: float, threshold_ms: float
) -> int | None:
    """The least number of replicas with which each is predicted to answer within the threshold;
    None if even all are not enough. placed: of each replica, in the order in which the algorithm
    places them, its node, its ping, its profiling and what sharing the node's cores with the
    replicas before it adds, ms.

    The paper's prediction, ping + profiling, is that of one request at a time. Of k replicas, each
    gets a k-th of the requests, and one that works on them at rate 1/profiling takes, on average,
    profiling / (1 - load) for each, where load = requests_per_s / k * (profiling + sharing) (the
    queue M/M/1, for which processor sharing gives the same, also with the replicas beside it).
    """
    nodes: dict[str, tuple[float, float, float]] = {}  # the last replica's sharing counts for all
    for count, (node, *times_ms) in enumerate(placed, 1):
        nodes[node] = (times_ms[0], times_ms[1], times_ms[2])
        ping_ms, profiling_ms, sharing_ms = np.array(list(nodes.values())).T
        load = requests_per_s / count * (profiling_ms + sharing_ms) / 1000
        if (load < 1).all() and (ping_ms + profiling_ms / (1 - load) <= threshold_ms).all():
            return count
    return None


@dataclass(frozen=True, slots=True)
class ResponseTime(Strategy):
    """The node whose predicted response to the user is the shortest.

    prediction = ping + profiling, in ms; the shortest one wins (Algorithm 1).

    Further replicas of the service (same namespace and labels, framework/services.py) go to
    the shortest prediction among the candidates without one. When each has one, Algorithm 1 as
    printed takes the shortest of all, again and again (`replicas=minimum`, line 15), and the text
    goes over the nodes again (`replicas=rounds`, Section 3.2: "second round"). In the paper's
    experiments the two are the same, because four replicas on three nodes under the threshold are
    one round and the first node again. `rounds` is the default: the text says it, blames several
    replicas on one node for "traffic bottlenecks" (Section 5.1), and from the fifth replica on it
    answers as soon or sooner (the experiment's rows "further replicas"). Pods without labels stand
    alone and are not spread.

    Replicas on one board share its cores: each takes one core, or the pod's CPU limit, and if they
    take more than there are together, profiling grows in proportion (the part `sharing`).
    `cores=apart` leaves it out, as Algorithm 1 does (line 3).

    This strategy's filter rejects nodes whose prediction exceeds `leadline.dev/response-time-ms`
    (lines 1-7). A pod without the annotation has no threshold.

    The ping starts where requests enter the cluster. In the paper that is the master, its gateway;
    here it is `leadline.dev/user-node`, else the pod's main peer (framework/peers.py), else the
    mean over the control plane nodes, else, if there are none, the mean over all other nodes.
    `main_peer=off` leaves the peer out. Profiling is `leadline.dev/profile-ms`, by node or node
    class.

    Unknown, never zero: without a threshold, of which the paper says nothing, a round trip and a
    node that is not in the profile count as boards like it (strategies/shared/unknowns.py). With
    `unknown=worst`, and where nothing is known of any, they count as the longest round trip
    measured in the cluster, or as `unknown_rtt` if there is none, and as the slowest node of the
    profile. Without a profile only the ping counts. With a threshold, a node with an unknown value
    does not pass, because line 4 asks for a prediction below it.
    """

    name = "response-time"
    better = "lower"
    paper = "Response time, Algorithm 1"
    needs = ("rtt_ms",)

    unknown_rtt_ms: float = unknown_rtt_option()
    unknown: str = unknown_option()
    replicas: str = choice(
        "rounds",
        "minimum",
        help="where replicas go once every node has one: round again, or as printed",
    )
    cores: str = choice("shared", "apart", help="whether replicas on one board share its cores")
    main_peer: str = main_peer_option()

    def filters(self) -> Mapping[str, Filter]:
        """The threshold (lines 4-6)."""
        return {THRESHOLD: self._within_threshold}

    def peer_is_user(self) -> bool:
        """As `main_peer` says."""
        return self.main_peer == "on"

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The prediction for every candidate, in ms, and its parts."""
        peer = user_peer(view, pod, self.main_peer)
        ping_ms, at_home = _ping_ms(view, pod, peer)
        ping = round_trips_ms(view, ping_ms, candidates, self.unknown, self.unknown_rtt_ms, at_home)
        parts, notes = {"ping_ms": ping.values}, [ping]
        replicas = view.replicas_of(pod)[candidates]
        if pod.annotations.profile_ms:
            profile = profiling_ms(view, pod.annotations.profile_ms, candidates, self.unknown)
            notes.append(profile)
            parts["profiling_ms"] = profile.values
            sharing_ms = profile.values * self._sharing(view, pod)[candidates]
            if sharing_ms.any():
                parts["sharing_ms"] = sharing_ms
        prediction_ms: Floats = sum(parts.values(), np.zeros(candidates.size))

        def why(at: int) -> str:
            terms = ", ".join(f"{part[:-3]} {column[at]:.1f}" for part, column in parts.items())
            text = f"{prediction_ms[at]:.1f} ms predicted ({terms})"
            text += "".join(each.note(at) for each in notes)
            if peer is not None:
                text += f"; its user is its main peer, {peer.name}"
            if not replicas.any() or at not in finalists:
                return text
            if not replicas.all():
                return f"{text}, the least of the nodes without a replica"
            text += "; every node that fits has a replica already"
            return text + (", and this one no more than others" if rounds else "")

        rounds = self.replicas == "rounds"
        choose = next_in_round if rounds else least_without_replica

        def among(at: Ints) -> Ints:
            return at[choose(prediction_ms[at], replicas[at])]

        finalists = among(np.arange(candidates.size))
        counted = replicas if rounds else np.minimum(replicas, 1)
        leeway = Leeway(SCATTER_MS, among, rivals=counted == counted.min())  # lines 8-19
        return Scores(candidates, prediction_ms, finalists, why, parts, leeway)

    def _within_threshold(self, view: ClusterView, pod: Pod) -> FilterResult:
        """Pass the nodes whose prediction is known and does not exceed
        `leadline.dev/response-time-ms` (Algorithm 1, lines 1-7)."""
        threshold_ms = pod.annotations.response_time_ms
        if threshold_ms is None:
            return FilterResult.all_pass(view)
        if not pod.annotations.profile_ms:
            return FilterResult.none_pass(
                view,
                "annotation leadline.dev/response-time-ms needs leadline.dev/profile-ms beside it, "
                "or no response time can be predicted",
            )
        ping_ms, at_home = _ping_ms(view, pod, user_peer(view, pod, self.main_peer))
        ping_ms = np.where(at_home, 0.0, ping_ms)
        work_ms = profiled_ms(view.table, pod.annotations.profile_ms)
        work_ms *= 1 + self._sharing(view, pod)

        def reason(i: int) -> str:
            if np.isnan(ping_ms[i]):
                return f"needs {threshold_ms:g} ms, its round trip is unknown"
            if np.isnan(work_ms[i]):
                return f"needs {threshold_ms:g} ms, the pod's profile does not name it"
            return f"needs {threshold_ms:g} ms, predicted {ping_ms[i] + work_ms[i]:g}"

        return FilterResult(ping_ms + work_ms <= threshold_ms, reason)

    def _sharing(self, view: ClusterView, pod: Pod) -> Floats:
        """The share of profiling that each node's replicas of the service add to it, with this one,
        shape (n,): 0 while there is a core, or the pod's CPU limit, for each. The profile of a
        board with less than that is what one replica alone takes there."""
        replicas = view.replicas_of(pod)
        if self.cores == "apart" or not replicas.any():
            return np.zeros(len(view))
        # Of the board's cores, by one and by all of them.
        alone = (pod.limits.get(CPU) or 1000) / np.maximum(view.table.allocatable(CPU), 1)
        shared: Floats = np.maximum(alone * (replicas + 1), 1.0) / np.maximum(alone, 1.0) - 1
        return shared


def _ping_ms(view: ClusterView, pod: Pod, peer: PeerAt | None) -> tuple[Floats, Bools]:
    """Round trip from the gateway of the requests to each node, ms, NaN if not measured, and the
    nodes that are the gateway, shapes (n,). peer: the gateway, if no user node is."""
    user = view.user_node(pod)
    if user is None and peer is not None:
        return user_round_trips_ms(view, peer)
    return gateway_round_trips_ms(view, user)
