"""One run of one method on a scenario: an autoscaler adds and removes pods, the method places them,
and the shares of pods on the edge are measured.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchStrategy, Running, decide_batch
from leadline_controller.framework.cycle import Strategy, decide_in_turn
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Floats
from leadline_controller.strategies.shared.capacity import is_cloud

from leadline_experiments.kubedsm.setting import (
    SERVICES,
    Scenario,
    empty_cluster,
    make_pod,
    replicas,
)

INTERVAL_S = 15.0  # between two suggestions
MIGRATION_S = 2.0  # "a couple of seconds" (Section 5.3), during which the pod is not on the edge


@dataclass(frozen=True, slots=True)
class Method:
    """A strategy for new pods, and one that suggests migrations, up to `rounds` times in a cycle.
    targets: QoS targets of the services; a missing one has the default."""

    strategy: Strategy
    migration: BatchStrategy | None = None
    rounds: int = 0
    targets: Mapping[str, float] = field(default_factory=dict)


@dataclass
class ScenarioRun:
    """A cluster over the cycles of a scenario.

    random: breaks ties. removals: chooses the pods that a scale-down removes; a generator of its
    own, so that it draws the same for all methods. as_replica_set: remove as a ReplicaSet does
    instead, the newest pod on the node with most pods of the service.
    """

    method: Method
    random: Random
    removals: Random
    as_replica_set: bool = False
    view: ClusterView = field(default_factory=empty_cluster)
    running: list[Running] = field(default_factory=list)
    wanted: Mapping[str, int] = field(default_factory=dict)
    created: int = 0
    migrations: int = 0

    @classmethod
    def of(
        cls, scenario: Scenario, method: Method, seed: int, *, as_replica_set: bool = False
    ) -> "ScenarioRun":
        """A run with an empty cluster."""
        removals = Random(f"leaving {scenario.name} {seed}")
        return cls(method, Random(seed), removals, as_replica_set)

    def scale(self, wanted: Mapping[str, int]) -> list[Pod]:
        """Remove surplus pods, and return the missing ones as pending pods. wanted: service ->
        replicas."""
        pending, self.wanted = [], wanted
        for service, count in wanted.items():
            replicas = [each for each in self.running if each[0].labels["app"] == service]
            for _ in range(len(replicas) - count):
                replicas.remove(self._remove_one(replicas))
            for _ in range(count - len(replicas)):
                self.created += 1
                pending.append(make_pod(service, self.created, self.method.targets.get(service)))
        return pending

    def _remove_one(self, replicas: Sequence[Running]) -> Running:
        if self.as_replica_set:
            nodes = [node for _, node in replicas]
            removed = max(
                replicas, key=lambda each: (nodes.count(each[1]), self.running.index(each))
            )
        else:
            removed = replicas[self.removals.randrange(len(replicas))]
        self.running.remove(removed)
        self.view = self.view.without_placement(*removed)
        return removed

    def place(self, pending: Sequence[Pod]) -> None:
        """Place the new pods. A pod that fits nowhere is dropped, and is missing again in the next
        cycle."""
        strategy = self.method.strategy
        if isinstance(strategy, BatchStrategy):
            decisions, _, self.view = decide_batch(
                self.view, pending, self.running, FILTERS, strategy, self.random
            )
        else:
            placed = list(decide_in_turn(self.view, pending, FILTERS, strategy, self.random))
            decisions = [decision for decision, _ in placed]
            self.view = placed[-1][1] if placed else self.view
        index = self.view.table.index
        self.running += [(each.pod, index[each.node]) for each in decisions if each.node]

    def suggest(self) -> frozenset[str]:
        """Carry out one suggestion and return the keys of the pods that it moved."""
        if self.method.migration is None:
            return frozenset()
        _, plan, self.view = decide_batch(
            self.view, [], self.running, FILTERS, self.method.migration, self.random
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
    run = ScenarioRun.of(scenario, method, seed, as_replica_set=as_replica_set)
    shares = []
    for wanted in replicas(scenario, seed):
        run.place(run.scale(wanted))
        shares.append(run.cycle_shares())
    return Outcome(np.mean(shares[1:], axis=0), run.migrations)
