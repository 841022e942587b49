"""leadline: the node where users and peers wait the least.

Leadline's own; docs/leadline-strategy.md derives the rule and tells its limits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leadline_controller.framework.assumed_load import Expectations, PodUse
from leadline_controller.framework.cycle import Leeway, Scores, Strategy, best
from leadline_controller.framework.image_layers import MIN_MBPS
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.options import choice, option
from leadline_controller.framework.peers import PeerAt, peers_of
from leadline_controller.framework.view import METRICS, ClusterView, Floats, Ints
from leadline_controller.strategies.leadline.terms import (
    Uncertain,
    out_of_memory,
    over_error,
    restarts_ms,
    slowdown,
)
from leadline_controller.strategies.shared.delays import (
    SCATTER_MS,
    gateway_round_trips_ms,
    profiling_ms,
    registry_mbps,
    round_trips_ms,
)
from leadline_controller.strategies.shared.peers import filled_waits_s
from leadline_controller.strategies.shared.services import replicas_per_node, service_of
from leadline_controller.strategies.shared.unknowns import (
    LIKE_BOARDS,
    Filled,
    fill,
    left_unknown,
)

# Where a pod says nothing, and nothing was counted.
_REQUESTS_PER_S = 1.0
_MEGABITS = 0.25  # of a request and its answer; as framework/peers.py takes four to be a Mbit
_UNKNOWN_RTT_MS = 100.0
# How much of a board's load is taken from what its pods request, and the rest from what its agent
# reports: one that reports nonsense attracts no more than its share.
_REQUESTED_SHARE = 0.25
# The standard deviations of what is not measured: of a load that only requests tell, of a load
# whose report is a minute old (it grows with the root of the age), of a wait that is measured, and
# of one that is taken from other boards, the last two as shares.
_LOAD_ERROR, _DRIFT = 0.25, 0.05
_WAIT_ERROR, _UNKNOWN_WAIT_ERROR = 0.1, 0.5
# Waits that differ by less are equal: a share of the least one, and ms.
_EQUAL_SHARE, _EQUAL_MS = 0.01, 0.1
_LEAST_CORES = 0.001
TERMS = ("start", "work", "memory", "users", "peers", "risk")
_MAX_MS = 1e12


@dataclass(frozen=True, slots=True)
class _Demand:
    """What a pod is expected to do."""

    requests_per_s: float
    requests: float  # in its life, N
    megabits: float  # that one request exchanges with its user
    assumed: str  # what of it is assumed, a part of a sentence, "" for nothing


@dataclass(frozen=True, slots=True)
class Leadline(Strategy):
    """The node on which users and peers wait the least for each request.

    wait(n) = start(n)/N + work(n) + memory(n) + users(n) + peers(n) + risk(n), in ms for each
    request that the pod will serve; the least wins. docs/leadline-strategy.md derives each term.

    start: until its images are pulled, behind the node's queue. N: its requests a second times
    its expected life, that of its workload's pods and of the first one `life`; 1 for a pod of a
    Job, and for one with `data-mb` whose requests nothing tells. work: its `profile-ms`, slowed
    down by the load that is measured and assumed there (M/M/c), at most as far as its CPU request
    allows; or its `data-mb` at `rate` on the cores that it gets; or `work` of an idle core. memory:
    the chance that the kubelet evicts it, times what a restart costs. users: one round trip to
    `user-node` and a transfer over the link's free bandwidth; without user and peers the user is
    where requests enter, the control plane. peers: what it and its peers wait for each other
    (framework/peers.py). risk: the mean over the errors of these less their values, and `caution`
    times the standard deviation. `without` leaves a term out, to see what it is worth.

    Unknown, never zero and never the worst: as boards like it (strategies/shared/unknowns.py), with
    that value's error in the risk. A board without reports counts by what its pods request.
    """

    name = "leadline"
    better = "lower"
    paper = "Leadline, docs/leadline-strategy.md"
    needs = ("cpu_percent", "memory_percent", "bandwidth_mbps", "rtt_ms")
    main_peer: ClassVar[str] = "on"  # it always reads the round trips to peers

    life_s: float = option(
        3600.0, unit="s", minimum=1.0, maximum=1e9, name="life", help="expected life of a first pod"
    )
    work_ms: float = option(
        20.0, unit="ms", maximum=1e9, name="work", help="work of a request without a profile"
    )
    rate: float = option(
        1.0, unit="MB/s", minimum=1e-9, maximum=1e9, help="data-mb that one core handles a second"
    )
    caution: float = option(
        0.5, maximum=100.0, help="how many standard deviations of a wait count as wait"
    )
    without: str = choice("nothing", *TERMS, help="a term that is left out")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The wait on every candidate, ms a request, and its terms."""
        peers = [each for each in peers_of(view, pod) if not each.is_everywhere]
        expectations = view.assumed.expected if view.assumed else Expectations()
        demand = self._demand(pod, peers, expectations.life_s(pod, self.life_s))
        expected = expectations.of(pod)
        notes: list[Callable[[int], str]] = []
        terms = {
            "start": self._start_ms(view, pod, candidates, demand),
            "work": self._work_ms(view, pod, candidates, demand, expected, notes),
            "memory": _memory_ms(view, candidates, expected),
            "users": _users_ms(view, pod, candidates, demand, bool(peers), notes),
            "peers": _peers_ms(view, pod, candidates, demand, peers),
        }
        terms.pop(self.without, None)
        deviation = np.sqrt(sum(each.deviation**2 for each in terms.values()))
        values = sum(each.value for each in terms.values())
        means = sum(each.mean for each in terms.values())
        parts = {f"{name}_ms": each.value for name, each in terms.items() if each.value.any()}
        risk = means - values + self.caution * deviation
        if self.without == "risk":
            risk = np.zeros(candidates.size)
        if risk.any():
            parts["risk_ms"] = risk
        total = np.minimum(values + risk, _MAX_MS)
        equal_ms = _EQUAL_MS + _EQUAL_SHARE * float(total.min())
        finalists = best(total, self.better, equal_ms)

        def why(at: int) -> str:
            text = f"{total[at]:.3g} ms a request: {_terms_text(parts, at)}"
            text += _others_text(view, candidates, total, parts, at)
            return text + demand.assumed + "".join(note(at) for note in notes)

        leeway = Leeway(max(SCATTER_MS, equal_ms))
        return Scores(candidates, total, finalists, why, parts, leeway)

    def _demand(self, pod: Pod, peers: Sequence[PeerAt], life_s: float) -> _Demand:
        data_mb = pod.annotations.data_mb
        megabits = _MEGABITS if data_mb is None else 8 * data_mb
        is_job = pod.owner is not None and pod.owner.kind == "Job"
        known = max((each.requests_per_s for each in peers), default=0.0)
        if is_job or (not known and data_mb is not None):
            return _Demand(_REQUESTS_PER_S, 1.0, megabits, "")
        assumed = "" if known else f"; {_REQUESTS_PER_S:g} request a second is assumed"
        rate = known or _REQUESTS_PER_S
        return _Demand(rate, max(rate * life_s, 1.0), megabits, assumed)

    def _start_ms(self, view: ClusterView, pod: Pod, nodes: Ints, demand: _Demand) -> Uncertain:
        """Until its images are there, for each request; 0 for all if no layers are known."""
        if not view.images.knows(view.table, pod):
            return Uncertain.exact(np.zeros(nodes.size))
        filled = registry_mbps(view, nodes, LIKE_BOARDS, left_unknown)
        speeds = np.full(len(view), np.nan)
        speeds[nodes] = filled.values
        time_s = view.images.pull(view.table, pod, speeds).time_s[nodes]
        known = ~np.isnan(time_s)
        if not known.any():
            return Uncertain.exact(np.zeros(nodes.size))
        time_s = np.where(known, time_s, time_s[known].max())
        each_ms = np.minimum(1000 * time_s / demand.requests, _MAX_MS)
        relative = _relative_error(filled)
        return Uncertain(each_ms, each_ms, each_ms * relative)

    def _work_ms(
        self,
        view: ClusterView,
        pod: Pod,
        nodes: Ints,
        demand: _Demand,
        expected: PodUse,
        notes: list[Callable[[int], str]],
    ) -> Uncertain:
        """Of one request, on a board that does other work too."""
        cores = np.maximum(view.table.allocatable(CPU)[nodes] / 1000, _LEAST_CORES)
        limit = pod.limits.get(CPU, 0) / 1000 or np.inf
        request = max(pod.requests.get(CPU, 0) / 1000, _LEAST_CORES)
        busy, error = _busy(view, nodes, cores)
        if not pod.annotations.profile_ms and pod.annotations.data_mb is not None:
            data_mb = pod.annotations.data_mb

            def data_ms(busy: Floats) -> Floats:
                free = np.minimum(cores * (1.0 - np.clip(busy, 0.0, 1.0)), limit)
                found: Floats = 1000 * data_mb / (np.maximum(free, request) * self.rate)
                return found

            return over_error(data_ms, busy, error)
        # A thread that has its core to itself.
        alone = Uncertain.exact(np.full(nodes.size, self.work_ms))
        own = np.full(nodes.size, expected.cpu_cores)
        if pod.annotations.profile_ms:
            filled = profiling_ms(view, pod.annotations.profile_ms, nodes, LIKE_BOARDS)
            notes.append(filled.note)
            alone_ms = filled.values
            alone = Uncertain(alone_ms, alone_ms, alone_ms * _relative_error(filled))
            most = np.minimum(max(limit, _LEAST_CORES), 1.0)
            own = np.minimum(demand.requests_per_s * alone_ms / 1000, most)
            busy = np.maximum(busy, _replicas(view, pod)[nodes] * own / cores)
        # The kernel gives each pod its share by what it requests.
        most_slow = np.maximum(np.minimum(limit, 1.0) / request, 1.0)

        def work_ms(busy: Floats) -> Floats:
            factor = np.minimum(slowdown(busy, np.maximum(cores, 1.0)), most_slow)
            found: Floats = alone.value * factor
            return found

        found = over_error(work_ms, busy + own / cores, error)
        return found._replace(deviation=np.hypot(found.deviation, alone.deviation))


def _busy(view: ClusterView, nodes: Ints, cores: Floats) -> tuple[Floats, Floats]:
    """The share of each node's cores that is in use, 0 to 1, and its standard deviation: what is
    measured and assumed, and partly what pods request."""
    requested = np.clip(view.requested_of(CPU)[nodes] / 1000 / cores, 0.0, 1.0)
    measured, error = _measured_share(view, "cpu_percent", nodes, requested)
    return (1 - _REQUESTED_SHARE) * measured + _REQUESTED_SHARE * requested, error


def _memory_ms(view: ClusterView, nodes: Ints, expected: PodUse) -> Uncertain:
    """What restarts cost each request where memory runs out. A node of unknown size costs none."""
    size = view.table.allocatable(MEMORY)[nodes].astype(np.float64)
    size[size == 0] = np.inf
    used, error = _measured_share(
        view, "memory_percent", nodes, view.requested_of(MEMORY)[nodes] / size
    )
    own = expected.memory_bytes / size
    return over_error(lambda share: restarts_ms(out_of_memory(share + own)), used, error)


def _measured_share(
    view: ClusterView, metric: str, nodes: Ints, requested: Floats
) -> tuple[Floats, Floats]:
    """A percentage as a share, and its standard deviation: as measured, else as boards like it have
    it, else as pods request."""
    column, at = getattr(view.metrics, metric), METRICS.index(metric)
    filled = fill(view, column, nodes, LIKE_BOARDS, left_unknown, metric, "%")
    own_error = view.metrics.errors[nodes, at] / 100 if view.metrics.errors.size else 0.0
    error = np.where(filled.is_known, own_error, _LOAD_ERROR)
    if view.metrics.measured_at_s.size:
        at_s = view.metrics.measured_at_s[:, at]
        if not np.isnan(at_s).all():
            age_s = np.nan_to_num(np.nanmax(at_s) - at_s[nodes])
            drift = _DRIFT * np.sqrt(np.maximum(age_s, 0.0) / 60)
            error = np.minimum(np.hypot(error, drift), _LOAD_ERROR)
    share = filled.values / 100
    return np.where(np.isnan(share), requested, share), error


def _users_ms(
    view: ClusterView,
    pod: Pod,
    nodes: Ints,
    demand: _Demand,
    has_peers: bool,
    notes: list[Callable[[int], str]],
) -> Uncertain:
    """A round trip to the user and the transfer of one request. A pod that has peers and names no
    user is used by these."""
    if has_peers and view.user_node(pod) is None:
        return Uncertain.exact(np.zeros(nodes.size))
    rtt_ms, at_home = gateway_round_trips_ms(view, view.user_node(pod))
    rtt = round_trips_ms(view, rtt_ms, nodes, LIKE_BOARDS, _UNKNOWN_RTT_MS, at_home)
    capacity_mbps = view.bandwidth_capacity_mbps()
    how = nodes, LIKE_BOARDS, left_unknown
    bandwidth = fill(view, capacity_mbps, *how, "bandwidth", "Mbit/s")
    notes += [rtt.note, bandwidth.note]
    left = bandwidth.values - view.bandwidth_requested_mbps[nodes]
    known = ~np.isnan(left)
    left[~known] = left[known].min() if known.any() else np.inf
    least = np.maximum(left / 10, MIN_MBPS)

    def transfer_ms(mbps: Floats) -> Floats:
        found: Floats = 1000 * demand.megabits / np.maximum(mbps, least)
        return np.where(at_home[nodes], 0.0, found)

    left = np.maximum(left, MIN_MBPS)
    spread = np.where(np.isinf(left), 0.0, left) * _relative_error(bandwidth)
    sent = over_error(transfer_ms, left, spread)
    trips = rtt.values * _relative_error(rtt)
    return Uncertain(
        rtt.values + sent.value,
        rtt.values + sent.mean,
        np.hypot(np.where(at_home[nodes], 0.0, trips), sent.deviation),
    )


def _peers_ms(
    view: ClusterView, pod: Pod, nodes: Ints, demand: _Demand, peers: Sequence[PeerAt]
) -> Uncertain:
    """What the pod and its peers wait for each other, for each request that it serves."""
    if not peers:
        return Uncertain.exact(np.zeros(nodes.size))
    waits_s, known = filled_waits_s(view, pod, peers, nodes, LIKE_BOARDS, _UNKNOWN_RTT_MS)
    each_ms = np.minimum(1000 * waits_s / demand.requests_per_s, _MAX_MS)
    error = np.where(known, _WAIT_ERROR, _UNKNOWN_WAIT_ERROR)
    return Uncertain(each_ms, each_ms, error * each_ms)


def _relative_error(filled: Filled) -> Floats:
    """The error of values that stand for unknown ones, as a share of them; of measured ones 0, as
    it is the same for all nodes and would only hide the others'."""
    if filled.boards is None or filled.error is None:
        return np.zeros(filled.values.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.nan_to_num(filled.error / filled.values, nan=_UNKNOWN_WAIT_ERROR, posinf=0.0)
    error = np.clip(error, _WAIT_ERROR, _UNKNOWN_WAIT_ERROR)
    found: Floats = np.where(filled.boards >= 0, error, 0.0)
    return found


def _replicas(view: ClusterView, pod: Pod) -> Ints:
    """Of the pod's service on each node, shape (n,)."""
    wanted = service_of(pod)
    return np.zeros(len(view), np.int64) if wanted is None else replicas_per_node(view, wanted)


_TERMS: Mapping[str, str] = {
    "work_ms": "{:.3g} work",
    "peers_ms": "{:.3g} to its peers",
    "users_ms": "{:.3g} to users",
    "start_ms": "{:.3g} for its start",
    "memory_ms": "{:.3g} for a lack of memory",
    "risk_ms": "{:.3g} for what is not certain",
}


def _terms_text(parts: Mapping[str, Floats], at: int) -> str:
    """The terms of one candidate that are not negligible, the largest first."""
    found = {name: float(parts[name][at]) for name in _TERMS if name in parts}
    least = 0.001 * sum(found.values())
    shown = sorted((name for name in found if found[name] > least), key=lambda name: -found[name])
    return ", ".join(_TERMS[name].format(found[name]) for name in shown) or "nothing"


def _others_text(
    view: ClusterView, candidates: Ints, total: Floats, parts: Mapping[str, Floats], at: int
) -> str:
    """The best other candidate, and what makes the difference."""
    if total.size == 1:
        return ""
    others = total.copy()
    others[at] = np.inf
    other = int(others.argmin())
    name = view.table.names[candidates[other]]
    more = {each: abs(float(column[other] - column[at])) for each, column in parts.items()}
    term = max(more, key=lambda each: more[each], default="")
    if not term or more[term] < 0.001 * max(total[at], total[other]):
        return f"; {name} would be as good"
    column = parts[term]
    return f"; {name} would be {total[other]:.3g}: {_TERMS[term].format(column[other])}"
