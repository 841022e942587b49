"""The paper's cluster and workloads (Sections 4.1 and 4.2), with stand-ins for the numbers that
only its figures had, and one run of its test: users load a deployment while it is scaled and
placed.

The text has neither the workers' CPUs and memory (Fig. 2) nor the delays added by `tc`, the
profiles and the thresholds. The stand-ins agree with the text: there are eight CPUs, like on the
laptop, and the node with the most free resources is the one that violates the threshold.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

import numpy as np
import simpy
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, Strategy, decide
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    Link,
    Node,
    Pod,
    PodAnnotations,
    Taint,
)
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.response_time import replica_to_remove
from simpy.events import ProcessGenerator

from leadline_experiments.models.cluster import view_of
from leadline_experiments.models.cpu import CpuModel
from leadline_experiments.models.load import Autoscaler, Step, UserBehaviour, Users

_GIB, _MIB = 1024**3, 1024**2
MASTER = "master"
# kindnet, which Kind runs on every node.
_KINDNET_REQUESTS = {CPU: 100, MEMORY: 50 * _MIB}
_REPLICA_REQUESTS = {CPU: 200, MEMORY: 128 * _MIB, PODS: 1}


class Worker(NamedTuple):
    """A worker: its size and its round trip to the master."""

    name: str
    cores: int
    memory_gib: int
    ping_ms: float


LEVELS = (1, 2, 3, 4, 3, 2, 1)
WORKERS = (
    Worker("w1", cores=1, memory_gib=2, ping_ms=50.0),
    Worker("w2", cores=2, memory_gib=1, ping_ms=100.0),
    Worker("w3", cores=2, memory_gib=1, ping_ms=150.0),
    Worker("w4", cores=3, memory_gib=4, ping_ms=300.0),
)
THRESHOLD_MS = 250.0


@dataclass(frozen=True, slots=True)
class Service:
    """A deployment and its load."""

    name: str
    profile_ms: Mapping[str, float]  # processing time of a single request on each worker
    behaviour: UserBehaviour
    users_per_step: int  # users that each step up adds
    requests_per_replica: int  # the autoscaler's target
    step_s: float
    workers: tuple[Worker, ...] = WORKERS  # the nodes for its replicas
    levels: Sequence[int] = LEVELS  # of each step, how many replicas its users need

    @property
    def predicted_ms(self) -> Mapping[str, float]:
        """The sum of ping and profile of each worker (Algorithm 1, line 3)."""
        return {each.name: each.ping_ms + self.profile_ms[each.name] for each in self.workers}

    def autoscaler(self) -> Autoscaler:
        """A new autoscaler, from one replica to as many as there are levels, in the paper's steps
        one per worker, soon after each step."""
        most, soon_s = max(self.levels), self.step_s / 20
        return Autoscaler(
            self.requests_per_replica, maximum=most, poll_s=soon_s, stabilisation_s=soon_s
        )

    @property
    def steps(self) -> tuple[Step, ...]:
        """In the paper four levels up and three down (Fig. 3 and 4)."""
        return tuple(Step(self.users_per_step * level, self.step_s) for level in self.levels)


WEB = Service(
    name="web",
    profile_ms={"w1": 2.6, "w2": 4.0, "w3": 4.0, "w4": 5.6},
    behaviour=UserBehaviour(parallel=5, pause_s=(0.05, 0.15)),
    users_per_step=10,
    requests_per_replica=50,
    step_s=10.0,
)
DETECTION = Service(
    name="object detection",
    profile_ms={"w1": 60.0, "w2": 85.0, "w3": 85.0, "w4": 120.0},
    behaviour=UserBehaviour(parallel=10, pause_s=(2.0, 6.0)),
    users_per_step=2,
    requests_per_replica=20,
    step_s=60.0,
)


def cluster(workers: Sequence[Worker]) -> ClusterView:
    """The master and the workers, with no pods but Kind's own."""
    taint = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
    nodes = [Node(MASTER, {CPU: 2000, MEMORY: 2 * _GIB, PODS: 110}, taints=(taint,))]
    for name, cores, gib, _ in workers:
        nodes.append(Node(name, {CPU: cores * 1000, MEMORY: gib * _GIB, PODS: 110}, tier="edge"))
    return view_of(
        nodes,
        [Link(MASTER, worker.name, worker.ping_ms) for worker in workers],
        {name: np.full(len(nodes), amount) for name, amount in _KINDNET_REQUESTS.items()},
    )


def draw_workers(services: Iterable[Service], random: Random, spread: float) -> Sequence[Service]:
    """The services with random workers: every delay and profile is within `spread`, as a share, of
    its stand-in."""

    def near(value: float) -> float:
        return value * random.uniform(1 - spread, 1 + spread)

    return _changed(services, near, near)


def scaled(
    services: Iterable[Service], delays: float = 1.0, profiles: float = 1.0
) -> Sequence[Service]:
    """The services with all delays and all profiles multiplied by these factors."""
    return _changed(services, lambda ms: ms * delays, lambda ms: ms * profiles)


def _changed(
    services: Iterable[Service],
    delay: Callable[[float], float],
    profile: Callable[[float], float],
) -> Sequence[Service]:
    workers = tuple(each._replace(ping_ms=delay(each.ping_ms)) for each in WORKERS)
    return [
        replace(
            service,
            workers=workers,
            profile_ms={name: profile(ms) for name, ms in service.profile_ms.items()},
        )
        for service in services
    ]


def make_pod(service: Service, number: int) -> Pod:
    """A pod of the deployment, with threshold and profile."""
    annotations = PodAnnotations(response_time_ms=THRESHOLD_MS, profile_ms=service.profile_ms)
    labels = {"app": service.name.replace(" ", "-")}
    name = f"{labels['app']}-{number}"
    return Pod("default", name, requests=_REPLICA_REQUESTS, annotations=annotations, labels=labels)


class Replica(NamedTuple):
    """A pod and its worker."""

    pod: Pod
    node: str


Removal = Callable[[ClusterView, Sequence[Replica]], Replica]


def newest(_: ClusterView, replicas: Sequence[Replica]) -> Replica:
    """The paper's removal: Algorithm 1, lines 20-24."""
    pod = replica_to_remove([each.pod for each in replicas])
    return next(each for each in replicas if each.pod is pod)


def on_the_fullest(view: ClusterView, replicas: Sequence[Replica]) -> Replica:
    """The default's removal (Section 5.1): the replica on the node with the fewest free resources;
    of equals the newest."""
    nodes = np.array([view.table.index[each.node] for each in replicas])
    free = KubeDefault().score(view, replicas[0].pod, nodes).total
    return replicas[int(np.flatnonzero(free == free.min())[-1])]


class Method(NamedTuple):
    """A strategy to place replicas, and the choice of the replica to remove."""

    strategy: Strategy
    removal: Removal


@dataclass(slots=True)
class Deployment:
    """A service's replicas, in the order of their creation."""

    service: Service
    method: Method
    random: Random  # breaks ties
    replicas: list[Replica] = field(default_factory=list)
    removed: list[Replica] = field(default_factory=list)
    nodes: Sequence[str] = ()

    def scale(self, count: int) -> None:
        """Add or remove replicas one after the other. A replica that fits no node is not
        created."""
        while len(self.replicas) > count:
            replica = self.method.removal(self._view(), self.replicas)
            self.replicas.remove(replica)
            self.removed.append(replica)
        for _ in range(count - len(self.replicas)):
            pod = make_pod(self.service, len(self.replicas) + len(self.removed) + 1)
            decision = decide(
                self._view(), pod, Rule(self.method.strategy, FILTERS, self.random, letter=True)
            )
            if decision.node is not None:
                self.replicas.append(Replica(pod, decision.node))
        self.nodes = tuple(each.node for each in self.replicas)

    def _view(self) -> ClusterView:
        view = cluster(self.service.workers)
        for pod, node in self.replicas:
            at = view.table.index[node]
            view = view.with_placement(pod, at, self.method.strategy.charge(view, pod, at))
        return view


@dataclass(slots=True)
class PlannedDeployment:
    """Replicas on the nodes of a plan."""

    plan: Sequence[Sequence[str]]  # the nodes of one replica, of two, and so on
    nodes: Sequence[str] = ()
    removed: Sequence[Replica] = ()

    def scale(self, count: int) -> None:
        """Move to the plan's nodes for this number of replicas."""
        self.nodes = self.plan[count - 1]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run. Per step: response_s of the requests sent in it; throughput in
    answers per second; nodes of the replicas in its middle, in the order of creation."""

    response_s: Sequence[Sequence[float]]
    throughput: Sequence[float]
    nodes: Sequence[Sequence[str]]
    removed: Sequence[str]  # nodes of the removed replicas, in the order of removal


def run_trial(service: Service, method: Method, seed: int) -> Outcome:
    """Run all steps once. The users' random numbers are the same for every method."""
    return _simulate(service, Deployment(service, method, Random(seed)), seed)


def run_plan(service: Service, plan: Sequence[Sequence[str]], seed: int) -> Outcome:
    """Run all steps once with the replicas of a plan; see PlannedDeployment."""
    return _simulate(service, PlannedDeployment(plan), seed)


def _simulate(service: Service, deployment: Deployment | PlannedDeployment, seed: int) -> Outcome:
    """Users at the master load the deployment. A request goes to a random replica, as with
    kube-proxy. It takes the round trip and the processing on its share of the cores."""
    random = Random(seed)
    env = simpy.Environment()
    cores = {worker.name: CpuModel(env, worker.cores) for worker in service.workers}
    round_trip_s = {worker.name: worker.ping_ms / 1000 for worker in service.workers}
    work_s = {name: ms / 1000 for name, ms in service.profile_ms.items()}
    nodes: list[Sequence[str]] = []

    def serve() -> ProcessGenerator:
        node = random.choice(deployment.nodes)
        yield env.timeout(round_trip_s[node])
        yield cores[node].run(work_s[node], limit_cores=1.0)

    def record_nodes() -> ProcessGenerator:
        for step in service.steps:
            yield env.timeout(step.length_s / 2)
            nodes.append(deployment.nodes)
            yield env.timeout(step.length_s / 2)

    autoscaler = service.autoscaler()
    deployment.scale(autoscaler.minimum)
    users = Users(env, serve, service.behaviour, random)
    env.process(users.follow(service.steps))
    env.process(record_nodes())
    load, replicas = lambda: users.concurrent_requests, lambda: len(deployment.nodes)
    env.process(autoscaler.follow(env, load, replicas, deployment.scale))
    env.run(until=service.step_s * len(service.steps))
    response_s: list[list[float]] = [[] for _ in nodes]
    answers = [0] * len(nodes)
    for request in users.answered:
        response_s[int(request.sent_s // service.step_s)].append(request.response_s)
        answers[min(int(request.done_s // service.step_s), len(nodes) - 1)] += 1
    throughput = [count / service.step_s for count in answers]
    return Outcome(response_s, throughput, nodes, [each.node for each in deployment.removed])
