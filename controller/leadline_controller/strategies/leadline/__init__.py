"""leadline: the node where users and peers wait the least.

Leadline's own; docs/leadline-strategy.md derives the rule and tells its limits.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.assumed_load import Expectations, PodUse, workload_of
from leadline_controller.framework.batch import Allowed, BatchPlan, BatchStrategy, Running
from leadline_controller.framework.cycle import Leeway, Scores, best
from leadline_controller.framework.model import CPU, Pod
from leadline_controller.framework.options import choice, option
from leadline_controller.framework.services import service_of
from leadline_controller.framework.traffic import PeerAt
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.leadline.batch_peers import among_batch
from leadline_controller.strategies.leadline.boards import (
    LEAST_CORES,
    REQUESTED_SHARE,
    absence_ms,
    busy_share,
    cores_of,
    memory_ms,
    memory_size,
    memory_used,
    throttling,
)
from leadline_controller.strategies.leadline.moves import Cost, Movers, moving_ms, plan_moves
from leadline_controller.strategies.leadline.network import (
    peers_at,
    peers_ms,
    relative_error,
    users_ms,
)
from leadline_controller.strategies.leadline.planning import search
from leadline_controller.strategies.leadline.starts import pulls_s, starts_s
from leadline_controller.strategies.leadline.terms import Demand, Uncertain, Work, shown
from leadline_controller.strategies.leadline.waits import MAX_MS, Boards, PodColumns, Room, Waits
from leadline_controller.strategies.shared.delays import SCATTER_MS, profiling_ms
from leadline_controller.strategies.shared.unknowns import LIKE_BOARDS

# Where a pod says nothing, and nothing was counted.
_REQUESTS_PER_S = 1.0
_MEGABITS = 0.25  # of a request and its answer; as framework/peers.py takes four to be a Mbit
# Waits that differ by less are equal: a share of the least one, and ms.
_EQUAL_SHARE, _EQUAL_MS = 0.01, 0.1
# Each term, and how a reason has it.
TERMS: Mapping[str, str] = {
    "start": "{} for its start",
    "work": "{} work",
    "throttling": "{} for throttling",
    "memory": "{} for a lack of memory",
    "absence": "{} while the board is away",
    "users": "{} to users",
    "peers": "{} to its peers",
    "risk": "{} for what is not certain",
}


@dataclass(frozen=True, slots=True)
class Leadline(BatchStrategy):
    """The node on which users and peers wait the least for each request.

    wait(n) = start(n)/N + work(n) + throttling(n) + memory(n) + absence(n) + users(n) + peers(n) +
    risk(n), in ms for each request that the pod will serve; the least wins.
    docs/leadline-strategy.md derives each term.

    start: until its images are pulled, behind the node's queue, and then what its workload's starts
    take on boards of this class. N: its requests a second times
    its expected life, that of its workload's pods and of the first one `life`; 1 for a pod of a
    Job, and for one with `data-mb` whose requests nothing tells. work: its `profile-ms`, slowed
    down by the load that is measured and assumed there (M/M/c), at most as far as its CPU request
    allows; or its `data-mb` at `rate` on the cores that it gets; or `work` of an idle core.
    throttling: by how much longer all that takes on a board that its firmware slows down. memory:
    the chance that the kubelet evicts it, times what a restart costs. absence: what it costs that a
    board went away more than once in the last hours. users: one round trip to
    `user-node` and a transfer over the link's free bandwidth; without user and peers the user is
    where requests enter, the control plane. peers: what it and its peers wait for each other
    (framework/peers.py). risk: the mean over the errors of these less their values, and `caution`
    times the standard deviation. `without` leaves a term out, to see what it is worth.

    Unknown, never zero and never the worst: as boards like it (strategies/shared/unknowns.py), with
    that value's error in the risk. A board without reports counts by the CPU that its pods request.
    Of a service whose requests nothing tells, each replica is taken to keep a core busy.
    """

    name = "leadline"
    better = "lower"
    paper = "Leadline, docs/leadline-strategy.md"
    needs = ("cpu_percent", "memory_percent", "bandwidth_mbps", "rtt_ms")
    pod_by_pod = True

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

    def peer_is_user(self) -> bool:
        """Always: it reads the round trips to all peers."""
        return True

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The wait on every candidate, ms a request, and its terms."""
        peers = peers_at(view, pod)
        expectations = _expectations(view)
        demand = self._demand(pod, peers, expectations.life_s(pod, self.life_s))
        expected = expectations.of(pod)
        notes: list[Callable[[int], str]] = []
        start = starts_s(view, expectations, pod, candidates)
        terms = {
            "start": self._start_ms(view, pod, candidates, demand, start),
            "work": self._work(view, pod, candidates, demand, expected, notes).of(
                *busy_share(view, candidates, cores_of(view, candidates))
            ),
            "memory": memory_ms(view, candidates, expected),
            "users": users_ms(view, pod, candidates, demand, bool(peers), notes),
            "peers": peers_ms(view, pod, candidates, demand, peers),
        }
        if (absence := absence_ms(view, candidates)) is not None:
            terms["absence"] = absence
        terms.pop(self.without, None)
        deviation = np.sqrt(sum(each.deviation**2 for each in terms.values()))
        values = sum(each.value for each in terms.values())
        means = sum(each.mean for each in terms.values())
        parts = {f"{name}_ms": each.value for name, each in terms.items() if each.value.any()}
        slower, _ = self._throttling(view, candidates)
        if "work" in terms and (slower > 1.0).any():
            work_ms = terms["work"].value / slower
            parts |= {"work_ms": work_ms, "throttling_ms": terms["work"].value - work_ms}
        risk = means - values + self.caution * deviation
        if self.without == "risk":
            risk = np.zeros(candidates.size)
        if risk.any():
            parts["risk_ms"] = risk
        total = np.minimum(values + risk, MAX_MS)
        # A start that takes as long everywhere makes no waits more alike.
        alike_ms = 1000 * float(start.min()) / demand.requests if "start" in terms else 0.0
        equal_ms = _EQUAL_MS + _EQUAL_SHARE * (float(total.min()) - min(alike_ms, MAX_MS))
        finalists = best(total, self.better, equal_ms)

        def why(at: int) -> str:
            text = f"{shown(total[at])} ms a request: {_terms_text(parts, at)}"
            text += _others_text(view, candidates, total, parts, at)
            return text + demand.assumed + "".join(note(at) for note in notes)

        leeway = Leeway(max(SCATTER_MS, equal_ms))
        return Scores(candidates, total, finalists, why, parts, leeway)

    def plan(
        self,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
    ) -> BatchPlan:
        """Nodes for all pending pods together: of the plans with the most of them on nodes the one
        whose requests wait the least in sum, requests a second times the wait of each
        (planning.py). Running pods that may move do so where that is worth more than the time for
        which they are away (moves.py)."""
        masks = np.array([allowed(pod) for pod in pending]).reshape(len(pending), len(view))
        nodes = np.flatnonzero(masks.any(axis=0))
        at, method = np.full(len(pending), -1), ""
        if nodes.size:
            found = search(self._waits_of(view, pending, nodes, masks[:, nodes]))
            at, method = np.where(found.nodes >= 0, nodes[found.nodes], -1), found.method
        waiting = list(zip(pending, masks, strict=True))
        movers = Movers.choose(view, waiting, running, allowed, self._alone_s)
        if movers.of:
            plan = plan_moves(self._waits_of, view, movers, waiting, at, self._cost)
            if plan is not None:
                return plan
        placed = {
            pod.key: node for pod, node in zip(pending, at.tolist(), strict=True) if node >= 0
        }
        why = f"as planned for {len(placed)} pods that came together, {method}{movers.note}"
        return BatchPlan(placed, why=dict.fromkeys(placed, why), method=method)

    def _alone_s(self, view: ClusterView, pod: Pod) -> Floats:
        """What the pod waits on each node, s each second."""
        demand = self._demand(pod, peers_at(view, pod), self.life_s)
        return self.score(view, pod, np.arange(len(view))).total * demand.requests_per_s / 1000

    def _cost(self, view: ClusterView, pod: Pod, nodes: Ints) -> Cost:
        """Of the move of a running pod to these nodes."""
        expectations = _expectations(view)
        life_s = expectations.life_s(pod, self.life_s)
        pull, start = pulls_s(view, pod, nodes), starts_s(view, expectations, pod, nodes)
        others = int(view.replicas_of(pod).sum()) - 1
        each_ms = moving_ms(pull.value, start, life_s)
        return Cost(np.zeros(nodes.size) if others > 0 else each_ms, life_s, max(others, 0))

    def _waits_of(
        self,
        view: ClusterView,
        pods: Sequence[Pod],
        nodes: Ints,
        allowed: Bools,
        own: Sequence[int] = (),
    ) -> Waits:
        """What the pods wait on these nodes, by the nodes that each may have, shape (m, n). own:
        the nodes of the first of them, which run there, as indexes of `nodes`; `view` is without
        these pods."""
        batch = among_batch(view, pods)
        cores, size = cores_of(view, nodes), memory_size(view, nodes)
        busy, used = busy_share(view, nodes, cores), memory_used(view, nodes)
        assumes, expectations = view.assumed is not None, _expectations(view)
        absence = absence_ms(view, nodes)
        columns = []
        # Pods of a batch are often replicas, or have the same images.
        starts: dict[Hashable, Uncertain] = {}
        users: dict[Hashable, Uncertain] = {}
        for at, pod in enumerate(pods):
            peers, among = [*peers_at(view, pod)], batch.of[at]
            demand = self._demand(pod, [*peers, *among], expectations.life_s(pod, self.life_s))
            expected = expectations.of(pod)
            images = workload_of(pod), pod.images, pod.init_images, demand.requests
            if images not in starts:
                start = starts_s(view, expectations, pod, nodes)
                starts[images] = self._start_ms(view, pod, nodes, demand, start)
            has_peers = bool(peers or among)
            user = pod.annotations.user_node, demand.megabits, has_peers
            if user not in users:
                users[user] = users_ms(view, pod, nodes, demand, has_peers, [])
            terms = {
                "start": starts[images],
                "users": users[user],
                "peers": peers_ms(view, pod, nodes, demand, batch.less_of_placed(at, peers)),
            }
            if absence is not None:
                terms["absence"] = absence
            terms.pop(self.without, None)
            if at < len(own) and "start" in terms:  # it has started there
                elsewhere = np.arange(nodes.size) != own[at]
                terms["start"] = Uncertain(*(each * elsewhere for each in terms["start"]))
            others = Uncertain(
                np.asarray(sum(each.value for each in terms.values())),
                np.asarray(sum(each.mean for each in terms.values())),
                np.sqrt(sum(each.deviation**2 for each in terms.values())),
            )
            work = self._work(view, pod, nodes, demand, expected, [])
            if self.without == "work":
                work = work.nothing()
            by_requests = pod.requests.get(CPU, 0) / 1000 / cores
            adds_busy = REQUESTED_SHARE * by_requests
            adds_memory = np.zeros(nodes.size)
            if assumes:
                adds_busy += (1 - REQUESTED_SHARE) * expected.cpu_cores / cores
                adds_memory += expected.memory_bytes / size
            own_memory = expected.memory_bytes / size
            found = demand.requests_per_s, others, work, own_memory, adds_busy, adds_memory
            columns.append(PodColumns(*found))
        caution = None if self.without == "risk" else self.caution
        return Waits.of(
            *(columns, _same_service(pods), Boards(*busy, *used)),
            *(_room(view, pods, nodes, allowed), batch.between(view, nodes, caution or 0.0)),
            caution,
            memory_counts=self.without != "memory",
        )

    def _demand(self, pod: Pod, peers: Sequence[PeerAt], life_s: float) -> Demand:
        data_mb = pod.annotations.data_mb
        megabits = _MEGABITS if data_mb is None else 8 * data_mb
        is_job = pod.owner is not None and pod.owner.kind == "Job"
        known = max((each.requests_per_s for each in peers), default=0.0)
        if is_job or (not known and data_mb is not None):
            return Demand(_REQUESTS_PER_S, 1.0, megabits, bool(known), "")
        assumed = "" if known else f"; {_REQUESTS_PER_S:g} request a second is assumed"
        rate = known or _REQUESTS_PER_S
        return Demand(rate, max(rate * life_s, 1.0), megabits, bool(known), assumed)

    def _start_ms(
        self, view: ClusterView, pod: Pod, nodes: Ints, demand: Demand, start: Floats
    ) -> Uncertain:
        """Until it is ready, for each request. start: without its pulls, s."""
        pull = pulls_s(view, pod, nodes)
        each_ms = np.minimum(1000 * (pull.value + start) / demand.requests, MAX_MS)
        error_ms = 1000 * pull.deviation / demand.requests
        return Uncertain(each_ms, each_ms, np.minimum(error_ms, MAX_MS))

    def _work(
        self,
        view: ClusterView,
        pod: Pod,
        nodes: Ints,
        demand: Demand,
        expected: PodUse,
        notes: list[Callable[[int], str]],
    ) -> Work:
        """One request's, on a board that does other work too."""
        cores = cores_of(view, nodes)
        limit = pod.limits.get(CPU, 0) / 1000 or np.inf
        request = max(pod.requests.get(CPU, 0) / 1000, LEAST_CORES)
        slower, spread = self._throttling(view, nodes)
        alone_ms, error_ms = self.work_ms * slower, self.work_ms * spread
        own, each = expected.cpu_cores * slower, np.zeros(nodes.size)
        replicas = view.replicas_of(pod)[nodes].astype(np.float64)
        data_ms, threads = np.nan, limit if np.isfinite(limit) else 1.0  # that handle data
        if pod.annotations.profile_ms:
            filled = profiling_ms(view, pod.annotations.profile_ms, nodes, LIKE_BOARDS)
            notes.append(filled.note)
            alone_ms = filled.values * slower
            error_ms = np.hypot(alone_ms * relative_error(filled), filled.values * spread)
            most = np.minimum(max(limit, LEAST_CORES), 1.0)
            own = np.minimum(demand.requests_per_s * alone_ms / 1000, most)
            # Where nothing tells how many requests there are, a service that has replicas is taken
            # to need them: each keeps one of its board's cores busy.
            is_known = demand.is_counted or _is_known(view, pod)
            each = own if is_known else np.full(nodes.size, most)
        elif pod.annotations.data_mb is not None:
            data_ms = 1000 * pod.annotations.data_mb / self.rate
            # What was seen of its workload replaces that. The mean use tells the work of a request
            # only if the requests are counted, or if the pod does nothing but this work.
            if _is_known(view, pod) and demand.is_counted:
                data_ms = 1000 * expected.cpu_cores / demand.requests_per_s
            elif _is_known(view, pod) and pod.owner is not None and pod.owner.kind == "Job":
                data_ms *= min(expected.cpu_cores / min(limit, 1.0), 1.0)
            error_ms = data_ms / max(threads, request) * spread
        # The kernel gives each pod its share by what it requests.
        most_slow = max(min(limit, 1.0) / request, 1.0)
        stated = (np.full(nodes.size, it) for it in (threads, request))
        slow = np.full(nodes.size, most_slow)
        return Work(
            *(cores, alone_ms, error_ms, own, replicas, each, slow, data_ms * slower, *stated)
        )

    def _throttling(self, view: ClusterView, nodes: Ints) -> tuple[Floats, Floats]:
        if self.without == "throttling":
            return np.ones(nodes.size), np.zeros(nodes.size)
        return throttling(view, nodes)


def _expectations(view: ClusterView) -> Expectations:
    return view.assumed.expected if view.assumed else Expectations()


def _is_known(view: ClusterView, pod: Pod) -> bool:
    """Whether it was seen what pods of this workload use."""
    if view.assumed is None:
        return False
    expected, workload = view.assumed.expected, workload_of(pod)
    return workload in expected.usage or workload in expected.learned


def _same_service(pods: Sequence[Pod]) -> Floats:
    """1 for two pods of one service, shape (m, m)."""
    services = [service_of(pod) for pod in pods]
    same = [[one is not None and one == other for other in services] for one in services]
    found = np.array(same, dtype=np.float64).reshape(len(pods), len(pods))
    np.fill_diagonal(found, 0.0)
    return found


def _room(view: ClusterView, pods: Sequence[Pod], nodes: Ints, allowed: Bools) -> Room:
    """What the filters NodeResourcesFit, NodeBandwidthFit and NodePorts count."""
    names = sorted({name for pod in pods for name, amount in pod.requests.items() if amount})
    ports = sorted({port for pod in pods for port in pod.host_ports}, key=repr)
    amounts = [
        [
            *(pod.requests.get(name, 0) for name in names),
            pod.annotations.bandwidth_mbps or 0.0,
            *(pod.host_ports.count(port) for port in ports),
        ]
        for pod in pods
    ]
    mbps = view.bandwidth_possible_mbps()[nodes]
    free = [view.unrequested(name)[nodes].astype(np.float64) for name in names]
    free += [np.where(np.isnan(mbps), np.inf, mbps), *(np.ones(nodes.size) for _ in ports)]
    return Room(allowed, np.array(amounts, dtype=np.float64), np.array(free).T)


def _terms_text(parts: Mapping[str, Floats], at: int) -> str:
    """The terms of one candidate that are not negligible, the largest first."""
    parts_of = {term: f"{term}_ms" for term in TERMS}
    found = {term: float(parts[name][at]) for term, name in parts_of.items() if name in parts}
    least = 0.001 * sum(found.values())
    most = sorted((name for name in found if found[name] > least), key=lambda name: -found[name])
    return ", ".join(TERMS[name].format(shown(found[name])) for name in most) or "nothing"


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
    text = TERMS[term.removesuffix("_ms")].format(shown(column[other]))
    return f"; {name} would be {shown(total[other])}: {text}"
