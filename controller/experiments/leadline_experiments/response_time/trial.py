"""One run of the paper's test: users load a deployment while it is scaled and placed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np
import simpy
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy, decide
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.response_time import replica_to_remove
from simpy.events import ProcessGenerator

from leadline_experiments.models.autoscaler import autoscale
from leadline_experiments.models.cpu import CpuModel
from leadline_experiments.models.users import Users
from leadline_experiments.response_time.testbed import (
    Service,
    cluster,
    make_pod,
)


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


@dataclass(frozen=True, slots=True)
class Method:
    """A strategy to place replicas, and the choice of the replica to remove."""

    strategy: Strategy
    removal: Removal


class Deployment:
    """A service's replicas, in the order of their creation."""

    def __init__(self, service: Service, method: Method, random: Random) -> None:
        self.replicas: list[Replica] = []

        self.removed: list[Replica] = []
        self._created = 0
        self._service = service
        self._method = method
        self._random = random
        self._empty = cluster(service.workers)
        self.nodes: Sequence[str] = ()

    def scale(self, count: int) -> None:
        """Add or remove replicas one after the other. A replica that fits no node is not
        created."""
        while len(self.replicas) > count:
            replica = self._method.removal(self._view(), self.replicas)
            self.replicas.remove(replica)
            self.removed.append(replica)
        for _ in range(count - len(self.replicas)):
            pod = make_pod(self._service, self._created + 1)
            decision = decide(self._view(), pod, FILTERS, self._method.strategy, self._random)
            if decision.node is not None:
                self.replicas.append(Replica(pod, decision.node))
                self._created += 1
        self.nodes = tuple(each.node for each in self.replicas)

    def _view(self) -> ClusterView:
        view = self._empty
        for pod, node in self.replicas:
            at = view.table.index[node]
            view = view.with_placement(pod, at, self._method.strategy.charge(view, pod, at))
        return view


class PlannedDeployment:
    """Replicas on the nodes of a plan. plan: the nodes of one replica, of two, and so on."""

    def __init__(self, plan: Sequence[Sequence[str]]) -> None:
        self.nodes: Sequence[str] = ()
        self.removed: Sequence[Replica] = ()
        self._plan = plan

    def scale(self, count: int) -> None:
        """Move to the plan's nodes for this number of replicas."""
        self.nodes = self._plan[count - 1]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run. Per step: response_s of the requests sent in it; throughput in
    answers per second; nodes of the replicas in its middle, in the order of creation. removed:
    nodes of the removed replicas, in the order of removal."""

    response_s: Sequence[Sequence[float]]
    throughput: Sequence[float]
    nodes: Sequence[Sequence[str]]
    removed: Sequence[str]


def run_trial(service: Service, method: Method, seed: int) -> Outcome:
    """Run all steps once. The users' random numbers are the same for every method."""
    return _simulate(service, Deployment(service, method, Random(seed)), seed)


def run_plan(service: Service, plan: Sequence[Sequence[str]], seed: int) -> Outcome:
    """Run all steps once with the replicas of a plan; see PlannedDeployment."""
    return _simulate(service, PlannedDeployment(plan), seed)


def _simulate(service: Service, deployment: Deployment | PlannedDeployment, seed: int) -> Outcome:
    random = Random(seed)
    env = simpy.Environment()
    deployment.scale(service.scaling.minimum)
    nodes: list[Sequence[str]] = []

    def record_nodes() -> ProcessGenerator:
        for step in service.steps:
            yield env.timeout(step.length_s / 2)
            nodes.append(deployment.nodes)
            yield env.timeout(step.length_s / 2)

    users = _users(env, service, lambda: deployment.nodes, random)
    env.process(users.follow(service.steps))
    env.process(record_nodes())
    env.process(
        autoscale(
            env,
            service.scaling,
            metric=lambda: users.concurrent_requests,
            replicas=lambda: len(deployment.nodes),
            scale=deployment.scale,
        )
    )
    env.run(until=service.step_s * len(service.steps))
    response_s: list[list[float]] = [[] for _ in nodes]
    answers = [0] * len(nodes)
    for request in users.answered:
        response_s[int(request.sent_s // service.step_s)].append(request.response_s)
        answers[min(int(request.done_s // service.step_s), len(nodes) - 1)] += 1
    throughput = [count / service.step_s for count in answers]
    return Outcome(response_s, throughput, nodes, [each.node for each in deployment.removed])


def _users(
    env: simpy.Environment, service: Service, nodes: Callable[[], Sequence[str]], random: Random
) -> Users:
    """The service's users, at the master. A request goes to a random replica, as with kube-proxy.
    It takes the round trip and the processing on its share of the cores."""
    cores = {worker.name: CpuModel(env, worker.cores) for worker in service.workers}
    round_trip_s = {worker.name: worker.ping_ms / 1000 for worker in service.workers}
    work_s = {name: ms / 1000 for name, ms in service.profile_ms.items()}

    def serve() -> ProcessGenerator:
        node = random.choice(nodes())
        yield env.timeout(round_trip_s[node])
        yield cores[node].run(work_s[node], limit_cores=1.0)

    return Users(env, serve, service.load_profile, random)
