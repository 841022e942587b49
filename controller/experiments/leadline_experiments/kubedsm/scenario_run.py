"""The cluster, the services and the load of the KubeDSM paper (Section 6, Tables 4 and 5), and one
run of one method on a scenario: an autoscaler adds and removes pods, the method places them, and
the shares of pods on the edge are measured.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor
from random import Random

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchStrategy, Running, decide_batch
from leadline_controller.framework.cycle import Strategy, decide_in_turn
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, PodAnnotations
from leadline_controller.framework.view import ClusterView, Floats
from leadline_controller.strategies.shared.tiers import is_cloud

from leadline_experiments.models.cluster import view_of

GIB = 1024**3
MIB = 1024**2
CYCLES = 12
INTERVAL_S = 15.0  # between two suggestions
MIGRATION_S = 2.0  # "a couple of seconds" (Section 5.3), during which the pod is not on the edge

# Table 4: name, tier, memory in GB, cores. The master N1 takes no pods.
NODES = (("N2", "edge", 5, 5), ("N3", "edge", 4, 4), ("N4", "edge", 5, 7), ("N5", "cloud", 17, 22))
# Table 5: cores, memory in MiB.
SERVICES: Mapping[str, tuple[int, int]] = {
    "A": (1, 950),
    "B": (1, 1900),
    "C": (1, 950),
    "D": (2, 1900),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A normally distributed load: the requested share of the edge's resources. load: its mean.
    spread: its standard deviation. rounded_up: whether a fraction of a pod counts as a pod."""

    load: float
    spread: float
    rounded_up: bool = False

    @property
    def name(self) -> str:
        """The paper's name of the workload, like 1.5_0.4."""
        return f"{self.load:.1f}_{self.spread:.1f}"


# Fig. 4 and 5.
BY_LOAD = tuple(Scenario(load, 0.4) for load in (1.1, 1.2, 1.3, 1.4, 1.5, 1.6))
BY_SPREAD = tuple(Scenario(1.5, spread) for spread in (0.1, 0.2, 0.3, 0.4, 0.5))
ROUNDED_UP = tuple(replace(each, rounded_up=True) for each in BY_LOAD)


def empty_cluster() -> ClusterView:
    """Table 4's nodes without pods."""
    nodes = [
        Node(name, allocatable={CPU: cores * 1000, MEMORY: gb * GIB, PODS: 110}, tier=tier)
        for name, tier, gb, cores in NODES
    ]
    return view_of(nodes)


def make_pod(service: str, number: int, target: float | None = None) -> Pod:
    """A pod of a service. target: the QoS target, None for the default."""
    cores, mib = SERVICES[service]
    return Pod(
        "default",
        f"{service.lower()}-{number}",
        requests={CPU: cores * 1000, MEMORY: mib * MIB, PODS: 1},
        labels={"app": service},
        annotations=PodAnnotations(qos_edge_ratio=target),
    )


def replicas(scenario: Scenario, seed: int) -> Sequence[Mapping[str, int]]:
    """The replicas of each service in each cycle. The first entry, before the 12 cycles, has one
    replica of each. In a cycle, a share of the edge's resources is drawn and divided equally among
    the services; a service has the whole pods that fit its part, at least one."""
    random = Random(f"{scenario.name} {seed}")
    whole = ceil if scenario.rounded_up else floor
    cycles = [dict.fromkeys(SERVICES, 1)]
    while len(cycles) <= CYCLES:
        share = max(random.gauss(scenario.load, scenario.spread), 0.0)
        cycles.append({name: max(1, whole(share * pods_at_full(name))) for name in SERVICES})
    return cycles


def pods_at_full(service: str) -> float:
    """The pods of a service that fill a quarter of the edge, by the scarcer resource."""
    edge = [(cores, gb) for _, tier, gb, cores in NODES if tier == "edge"]
    cores, mib = SERVICES[service]
    by_cpu = sum(each for each, _ in edge) / len(SERVICES) / cores
    by_memory = sum(each for _, each in edge) * 1024 / len(SERVICES) / mib
    return min(by_cpu, by_memory)


@dataclass(frozen=True, slots=True)
class Method:
    """A strategy for new pods, and one that suggests migrations, up to `rounds` times in a cycle.
    targets: QoS targets of the services; a missing one has the default."""

    strategy: Strategy
    migration: BatchStrategy | None = None
    rounds: int = 0
    targets: Mapping[str, float] = field(default_factory=dict)


class ScenarioRun:
    """A cluster over the cycles of a scenario.

    seed: of the ties, and of the pods that a scale-down removes, which draws the same for all
    methods. as_replica_set: remove as a ReplicaSet does instead, the newest pod on the node with
    most pods of the service.
    """

    def __init__(
        self, scenario: Scenario, method: Method, seed: int, *, as_replica_set: bool = False
    ) -> None:
        self.method = method
        self.view = empty_cluster()
        self.running: list[Running] = []
        self.wanted: Mapping[str, int] = {}
        self.migrations = 0
        self._created = 0
        self._random = Random(seed)
        self._removals = Random(f"leaving {scenario.name} {seed}")
        self._as_replica_set = as_replica_set

    def scale(self, wanted: Mapping[str, int]) -> list[Pod]:
        """Remove surplus pods, and return the missing ones as pending pods. wanted: service ->
        replicas."""
        pending, self.wanted = [], wanted
        for service, count in wanted.items():
            replicas = [each for each in self.running if each[0].labels["app"] == service]
            for _ in range(len(replicas) - count):
                replicas.remove(self._remove_one(replicas))
            for _ in range(count - len(replicas)):
                self._created += 1
                pending.append(make_pod(service, self._created, self.method.targets.get(service)))
        return pending

    def _remove_one(self, replicas: Sequence[Running]) -> Running:
        if self._as_replica_set:
            nodes = [node for _, node in replicas]
            removed = max(
                replicas, key=lambda each: (nodes.count(each[1]), self.running.index(each))
            )
        else:
            removed = replicas[self._removals.randrange(len(replicas))]
        self.running.remove(removed)
        self.view = self.view.without_placement(*removed)
        return removed

    def place(self, pending: Sequence[Pod]) -> None:
        """Place the new pods. A pod that fits nowhere is dropped, and is missing again in the next
        cycle."""
        strategy = self.method.strategy
        if isinstance(strategy, BatchStrategy):
            decisions, _, self.view = decide_batch(
                self.view, pending, self.running, FILTERS, strategy, self._random
            )
        else:
            placed = list(decide_in_turn(self.view, pending, FILTERS, strategy, self._random))
            decisions = [decision for decision, _ in placed]
            self.view = placed[-1][1] if placed else self.view
        index = self.view.table.index
        self.running += [(each.pod, index[each.node]) for each in decisions if each.node]

    def suggest(self) -> frozenset[str]:
        """Carry out one suggestion and return the keys of the pods that it moved."""
        if self.method.migration is None:
            return frozenset()
        _, plan, self.view = decide_batch(
            self.view, [], self.running, FILTERS, self.method.migration, self._random
        )
        for move in plan.moves:  # a moved pod is created again, so it is the newest of its service
            self.running.remove((move.pod, move.source))
            self.running.append((move.pod, move.target))
        self.migrations += len(plan.moves)
        return frozenset(move.pod.key for move in plan.moves)

    def edge_shares(self, moving: frozenset[str] = frozenset()) -> Floats:
        """The share of each service's pods on the edge, shape (services,). Pods that are `moving`
        or fit nowhere are not on the edge."""
        cloud = is_cloud(self.view)
        on_edge = Counter(
            pod.labels["app"]
            for pod, node in self.running
            if not cloud[node] and pod.key not in moving
        )
        return np.array([on_edge[service] / self.wanted[service] for service in SERVICES])

    def cycle_shares(self) -> Floats:
        """The edge shares averaged over the time of a cycle, shape (services,). The cycle's new
        pods are placed already; a suggestion follows each interval but the last."""
        by_interval = [self.edge_shares()]
        moved: frozenset[str] | None = None
        for _ in range(self.method.rounds):
            if moved is None or moved:  # after a suggestion without moves there are no more moves
                moved = self.suggest()
                settled = self.edge_shares()
                share = MIGRATION_S / INTERVAL_S
                shares = share * self.edge_shares(moved) + (1 - share) * settled
            else:
                shares = settled
            by_interval.append(shares)
        mean: Floats = np.mean(by_interval, axis=0)
        return mean


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The outcome of a run. shares: the mean edge share of each service, shape (services,).
    migrations: the number of moved pods."""

    shares: Floats
    migrations: int


def simulate(
    scenario: Scenario, method: Method, seed: int, *, as_replica_set: bool = False
) -> Outcome:
    """Run all cycles of a scenario. The first one, which fills the cluster, is not measured."""
    run = ScenarioRun(scenario, method, seed, as_replica_set=as_replica_set)
    shares = []
    for wanted in replicas(scenario, seed):
        run.place(run.scale(wanted))
        shares.append(run.cycle_shares())
    return Outcome(np.mean(shares[1:], axis=0), run.migrations)
