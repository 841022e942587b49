"""One run of the paper's test: a deployment that is scaled and placed while users load it."""

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
from leadline_experiments.models.users import Answered, Users
from leadline_experiments.response_time.testbed import (
    Service,
    cluster,
    replica,
)


class Replica(NamedTuple):
    """A pod, and the worker that it is on."""

    pod: Pod
    node: str


Removal = Callable[[ClusterView, Sequence[Replica]], Replica]


def newest(_: ClusterView, replicas: Sequence[Replica]) -> Replica:
    """The paper's: Algorithm 1, lines 20-24."""
    pod = replica_to_remove([each.pod for each in replicas])
    return next(each for each in replicas if each.pod is pod)


def on_the_fullest(view: ClusterView, replicas: Sequence[Replica]) -> Replica:
    """The default's, by Section 5.1: the one on the node with the least resources left. Of
    equals the newest."""
    at = np.array([view.table.index[each.node] for each in replicas])
    room = KubeDefault().score(view, replicas[0].pod, at).total
    return replicas[int(np.flatnonzero(room == room.min())[-1])]


@dataclass(frozen=True, slots=True)
class Method:
    """How replicas are placed and taken away."""

    strategy: Strategy
    removal: Removal


class Deployment:
    """A service's replicas, in the order of their creation."""

    def __init__(self, service: Service, method: Method, random: Random) -> None:
        self.replicas: list[Replica] = []
        self.created: list[Replica] = []
        self.removed: list[Replica] = []
        self._service = service
        self._method = method
        self._random = random
        self._empty = cluster(service.workers)
        self._nodes: Sequence[str] = ()

    @property
    def nodes(self) -> Sequence[str]:
        """Where the replicas are."""
        return self._nodes

    def scale(self, count: int) -> None:
        """Place new replicas, or take some away, one after the other. One that no node takes
        stays away."""
        while len(self.replicas) > count:
            gone = self._method.removal(self._view(), self.replicas)
            self.replicas.remove(gone)
            self.removed.append(gone)
        for _ in range(count - len(self.replicas)):
            self._add(replica(self._service, len(self.created) + 1))
        self._nodes = tuple(each.node for each in self.replicas)

    def _add(self, pod: Pod) -> None:
        decision = decide(self._view(), pod, FILTERS, self._method.strategy, self._random)
        if decision.node is not None:
            self.replicas.append(Replica(pod, decision.node))
            self.created.append(self.replicas[-1])

    def _view(self) -> ClusterView:
        view = self._empty
        for pod, node in self.replicas:
            at = view.table.index[node]
            view = view.with_placement(pod, at, self._method.strategy.charge(view, pod, at))
        return view


class Planned:
    """Replicas that are where a plan has them. plan: the nodes of one, of two and so on."""

    def __init__(self, plan: Sequence[Sequence[str]]) -> None:
        self.nodes: Sequence[str] = ()
        self.removed: Sequence[Replica] = ()
        self._plan = plan

    def scale(self, count: int) -> None:
        """Have so many, wherever the ones before were."""
        self.nodes = self._plan[count - 1]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run showed; all per step. response_s: of the requests sent in the step.
    throughput: requests answered a second. nodes: of the replicas halfway through the step, in
    the order of their creation. removed: nodes of the replicas taken away, in that order."""

    response_s: Sequence[Sequence[float]]
    throughput: Sequence[float]
    nodes: Sequence[Sequence[str]]
    removed: Sequence[str]


def run_trial(service: Service, method: Method, seed: int) -> Outcome:
    """Follow the steps up and down once. What users draw is the same for every method."""
    deployment = Deployment(service, method, Random(seed))
    return _follow(service, deployment, seed)


def run_plan(service: Service, plan: Sequence[Sequence[str]], seed: int) -> Outcome:
    """The same, where the replicas are always as planned. plan: see Planned."""
    return _follow(service, Planned(plan), seed)


def _follow(service: Service, deployment: Deployment | Planned, seed: int) -> Outcome:
    random = Random(seed)
    env = simpy.Environment()
    deployment.scale(service.scaling.minimum)
    nodes: list[Sequence[str]] = []

    def watch() -> ProcessGenerator:
        for step in service.steps:
            yield env.timeout(step.length_s / 2)
            nodes.append(deployment.nodes)
            yield env.timeout(step.length_s / 2)

    users = _users(env, service, lambda: deployment.nodes, random)
    env.process(users.follow(service.steps))
    env.process(watch())
    env.process(
        autoscale(
            env,
            service.scaling,
            metric=lambda: users.asking,
            replicas=lambda: len(deployment.nodes),
            scale=deployment.scale,
        )
    )
    env.run(until=service.step_s * len(service.steps))
    return _outcome(
        users.answered, service.step_s, nodes, [gone.node for gone in deployment.removed]
    )


def _users(
    env: simpy.Environment, service: Service, nodes: Callable[[], Sequence[str]], random: Random
) -> Users:
    """The service's users, at the master. Chance decides to which replica a request goes, as
    kube-proxy has it; it waits for the way there and back, and for its share of the cores."""
    cores = {worker.name: CpuModel(env, worker.cores) for worker in service.workers}
    away_s = {worker.name: worker.ping_ms / 1000 for worker in service.workers}
    work_s = {name: ms / 1000 for name, ms in service.profile_ms.items()}

    def serve() -> ProcessGenerator:
        node = random.choice(nodes())
        yield env.timeout(away_s[node])
        yield cores[node].run(work_s[node], limit_cores=1.0)

    return Users(env, serve, service.load_profile, random)


def _outcome(
    answered: Sequence[Answered],
    step_s: float,
    nodes: Sequence[Sequence[str]],
    removed: Sequence[str],
) -> Outcome:
    response_s: list[list[float]] = [[] for _ in nodes]
    done = [0] * len(nodes)
    for each in answered:
        response_s[int(each.sent_s // step_s)].append(each.response_s)
        done[min(int(each.done_s // step_s), len(nodes) - 1)] += 1
    return Outcome(response_s, [count / step_s for count in done], nodes, removed)
