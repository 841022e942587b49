"""The services of a simulated week with their users, the ReplicaSets that keep their pods, and the
kubelets that run these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import sqrt
from random import Random
from statistics import fmean

from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    DeclaredPeer,
    Owner,
    Pod,
    PodAnnotations,
)
from leadline_controller.framework.ports import Workload
from leadline_controller.framework.services import TEMPLATE_HASH

from tests.endurance.api_server import SimulatedApiServer
from tests.endurance.week_boards import CLASSES, CORES, WeekBoards, WeekMembers, day_share

_MIB = 2**20
# The node controller evicts the pods of a board that is away for so long.
_AWAY_S = 300.0
_STARTS_S = (5.0, 25.0)  # least and most, with the pull
_JOB_S, _JOB_CORES = (300.0, 1800.0), 0.6
_FULL = 0.95


@dataclass(frozen=True, slots=True)
class Service:
    """One Deployment. Its users are at a board, or it is called by others, or both."""

    name: str
    replicas: int
    requests_per_s: float  # of all replicas, when it is busiest
    work_ms: float  # of one request on a board of the first class that does nothing else
    user: int | None = None  # the number of the users' board
    calls: tuple[str, ...] = ()  # once for each request
    busiest_h: float = 20.0
    data_mb: float | None = None
    states_profile: bool = False


SERVICES = (
    Service("shop", 2, 30, 40, user=0, calls=("cart", "catalog"), states_profile=True),
    Service("cart", 2, 30, 20, calls=("cart-db",)),
    Service("catalog", 2, 30, 25, calls=("catalog-db",), states_profile=True),
    Service("cart-db", 1, 30, 15),
    Service("catalog-db", 1, 30, 15, states_profile=True),
    Service("camera", 1, 10, 120, user=6, busiest_h=12.0, data_mb=0.5),
    Service("voice", 1, 5, 150, user=5, states_profile=True),
    Service("heating", 1, 2, 30, user=10, busiest_h=7.0),
    Service("dashboard", 2, 20, 30, user=11, busiest_h=10.0),
    Service("broker", 1, 60, 5),
    Service("sensors", 3, 60, 8, user=9, calls=("broker",), busiest_h=14.0),
    Service("api", 2, 30, 30, busiest_h=11.0),
)


@dataclass(frozen=True, slots=True)
class Waited:
    """What requests waited at one time, ms each, and how many came a second."""

    requests_per_s: float
    network_ms: float
    work_ms: float


class Workloads:
    """Makes and runs the pods. Everything is true here: nothing is measured or assumed."""

    def __init__(
        self,
        server: SimulatedApiServer,
        boards: WeekBoards,
        members: WeekMembers,
        random: Random,
        unix_s: float,
    ) -> None:
        self._server, self._boards, self._members = server, boards, members
        self._random, self._unix_s = random, unix_s
        self._names = 0
        self._away_since_s: dict[str, float] = {}
        self._cores: dict[str, float] = {}
        self._memory: dict[str, float] = {}
        self.services = {each.name: each for each in SERVICES}
        for service in SERVICES:
            name = service.name
            server.put_workload(
                Workload("default", name, f"d-{name}", "", service.replicas, rolled_out=True),
                f"{name}-1",
            )
        server.on_bound = self._bound
        boards.busy = lambda name: self._cores.get(name, 0.0) / CORES
        boards.memory = lambda name: self._memory.get(name, 0.0)

    def turn(self) -> None:
        """What ReplicaSets, the node controller and kubelets do."""
        self._evict_lost()
        pods = defaultdict(list)
        for pod in list(self._server.pods):
            if pod.terminating:
                self._server.delete(pod.key)
            elif pod.owner is not None:
                pods[pod.owner.name].append(pod)
        for service in SERVICES:
            owner = Owner("ReplicaSet", f"{service.name}-1", f"r-{service.name}")
            alike, wanted = pods[owner.name], self._server.found_workload(service.name).replicas
            for _ in range(wanted - len(alike)):
                self._server.create(self._pod(service, owner))
            if len(alike) > wanted:
                alike.sort(key=lambda p: (p.deletion_cost or 0, p.ready, -(p.created_s or 0.0)))
                for pod in alike[: len(alike) - wanted]:
                    self._server.delete(pod.key)
        self._use()

    def start_job(self) -> None:
        """Somebody starts a Job of one pod."""
        self._names += 1
        name = f"job-{self._names}"
        pod = Pod(
            *("default", name, f"u-{name}"),
            requests={CPU: 300, MEMORY: 64 * _MIB, PODS: 1},
            labels={"job": name},
            owner=Owner("Job", name, f"j-{name}"),
            created_s=self._unix_s + self._server.loop.now_s,
        )
        self._server.create(pod)
        self._server.loop.call_later(self._random.uniform(*_JOB_S), self._server.delete, pod.key)

    def _pod(self, service: Service, owner: Owner) -> Pod:
        self._names += 1
        name = f"{service.name}-{self._names}"
        profile = {kind: service.work_ms * times for kind, times in CLASSES.items()}
        annotations = PodAnnotations(
            user_node=None if service.user is None else self._boards.boards[service.user].name,
            data_mb=service.data_mb,
            profile_ms=profile if service.states_profile else {},
            peers=tuple(
                DeclaredPeer(called, 1.0, service.requests_per_s / service.replicas)
                for called in service.calls
            ),
        )
        return Pod(
            *("default", name, f"u-{name}"),
            requests={CPU: 200, MEMORY: 96 * _MIB, PODS: 1},
            annotations=annotations,
            labels={"app": service.name, TEMPLATE_HASH: "1"},
            owner=owner,
            created_s=self._unix_s + self._server.loop.now_s,
        )

    def _bound(self, key: str, node: str) -> None:
        self._server.loop.call_later(self._random.uniform(*_STARTS_S), self._start, key, node)

    def _start(self, key: str, node: str) -> None:
        pod = self._server.found_pod(key)
        if pod is not None and self._boards.by_name[node].is_running:
            now_s = self._unix_s + self._server.loop.now_s
            self._server.put_pod(replace(pod, ready=True, started_s=now_s, runs_s=now_s))

    def _evict_lost(self) -> None:
        """Of boards that are away for too long; pods that never started get ready, too."""
        now_s = self._server.loop.now_s
        for node in self._server.nodes:
            if node.ready:
                self._away_since_s.pop(node.name, None)
            elif now_s - self._away_since_s.setdefault(node.name, now_s) > _AWAY_S:
                for pod in self._server.pods:
                    if pod.node_name == node.name:
                        self._server.delete(pod.key)
        for pod in self._server.pods:
            if pod.node_name and not pod.ready and not pod.terminating:
                bound_s = now_s + self._unix_s - (pod.created_s or 0.0)
                if bound_s > 2 * _STARTS_S[1]:
                    self._start(pod.key, pod.node_name)

    # What is true.

    def _ready(self, name: str) -> list[str]:
        """The nodes of the service's pods that answer."""
        return [
            pod.node_name
            for pod in self._server.pods
            if pod.labels.get("app") == name
            and pod.node_name is not None
            and pod.ready
            and self._boards.by_name[pod.node_name].is_running
        ]

    def _use(self) -> None:
        """How much of the boards' CPU and memory pods use now."""
        now_s = self._server.loop.now_s
        cores: defaultdict[str, float] = defaultdict(float)
        memory: defaultdict[str, float] = defaultdict(float)
        for service in SERVICES:
            nodes = self._ready(service.name)
            rate = service.requests_per_s * day_share(now_s, service.busiest_h)
            for node in nodes:
                work_s = service.work_ms / 1000 * self._members.slower(node)
                cores[node] += rate / len(nodes) * work_s
                memory[node] += 0.08
        for pod in self._server.pods:
            if "job" in pod.labels and pod.node_name and pod.ready:
                cores[pod.node_name] += _JOB_CORES
                memory[pod.node_name] += 0.05
        self._cores, self._memory = cores, memory

    def waited(self) -> Iterator[Waited]:
        """What the requests of each service wait now; nothing of one that does not answer."""
        now_s = self._server.loop.now_s
        for service in SERVICES:
            rate = service.requests_per_s * day_share(now_s, service.busiest_h)
            if nodes := self._ready(service.name):
                network_ms = fmean(self._network_ms(service, node) for node in nodes)
                work_ms = fmean(self._work_ms(service, node) for node in nodes)
                yield Waited(rate, network_ms, work_ms)

    def _network_ms(self, service: Service, node: str) -> float:
        found_ms = 0.0
        boards = self._boards
        if service.user is not None:
            user = boards.boards[service.user]
            found_ms += boards.true_rtt_ms(user.name, node)
            if user.name != node:
                mbps = min(boards.by_name[node].mbps, user.mbps)
                found_ms += 1000 * 8 * (service.data_mb or 0.03) / mbps
        for called in service.calls:
            if nodes := self._ready(called):
                found_ms += fmean(boards.true_rtt_ms(node, other) for other in nodes)
        return found_ms

    def _work_ms(self, service: Service, node: str) -> float:
        """In a queue with as many servers as cores, by Sakasegawa's approximation."""
        busy = min(self._boards.true_busy(node), _FULL)
        queued: float = busy ** (sqrt(2 * (CORES + 1)) - 1) / (CORES * (1 - busy))
        return service.work_ms * self._members.slower(node) * (1 + queued)


def mean_ms(waited: Iterable[Waited]) -> tuple[float, float]:
    """Of one request: network and work, ms."""
    found = list(waited)
    total = sum(each.requests_per_s for each in found)
    network = sum(each.requests_per_s * each.network_ms for each in found)
    work = sum(each.requests_per_s * each.work_ms for each in found)
    return network / total, work / total
