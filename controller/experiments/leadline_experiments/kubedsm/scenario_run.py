"""One scenario run through: an autoscaler asks for pods and takes them away, a method places
them, and where they are is counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchStrategy, Running, decide_batch
from leadline_controller.framework.cycle import Strategy, decide_in_turn
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Floats
from leadline_controller.strategies.shared.tiers import is_cloud

from leadline_experiments.kubedsm.setting import (
    SERVICES,
    Scenario,
    empty_cluster,
    make_pod,
    replicas,
)

INTERVAL_S = 15.0  # between suggestions
MIGRATION_S = 2.0  # "a couple of seconds" (Section 5.3), in which a pod is in the cloud or starts


@dataclass(frozen=True, slots=True)
class Method:
    """How pods are placed: new ones by `new`, and then up to `rounds` suggestions by `moves`, as
    long as they move anything. targets: QoS targets of the services, none for the default."""

    new: Strategy
    moves: BatchStrategy | None = None
    rounds: int = 0
    targets: Mapping[str, float] = field(default_factory=dict)


class Moment(NamedTuple):
    """A cycle before its pods are placed."""

    view: ClusterView
    pending: Sequence[Pod]
    running: Sequence[Running]


@dataclass
class ScenarioRun:
    """A cluster over the cycles of a scenario. random: for ties. leaving: for who leaves when
    there are too many, drawn apart so that it is the same for all methods. as_replica_set:
    not drawn but as a ReplicaSet has it, of the node with most of its pods the newest."""

    method: Method
    random: Random
    leaving: Random
    as_replica_set: bool = False
    view: ClusterView = field(default_factory=empty_cluster)
    running: list[Running] = field(default_factory=list)
    wanted: Mapping[str, int] = field(default_factory=dict)
    made: int = 0
    migrations: int = 0

    def scale(self, wanted: Mapping[str, int]) -> Moment:
        """Take away what is too much, and ask for what is missing."""
        pending, self.wanted = [], wanted
        for service, count in wanted.items():
            there = [one for one in self.running if one[0].labels["app"] == service]
            for _ in range(len(there) - count):
                there.remove(self._leaves(there))
            pending += [self._new(service) for _ in range(count - len(there))]
        return Moment(self.view, pending, tuple(self.running))

    def _leaves(self, there: Sequence[Running]) -> Running:
        """Which one a service gives up."""
        if self.as_replica_set:
            at = [node for _, node in there]
            gone = max(there, key=lambda one: (at.count(one[1]), self.running.index(one)))
        else:
            gone = there[self.leaving.randrange(len(there))]
        self.running.remove(gone)
        self.view = self.view.without_placement(*gone)
        return gone

    def _new(self, service: str) -> Pod:
        self.made += 1
        return make_pod(service, self.made, self.method.targets.get(service))

    def place(self, pending: Sequence[Pod]) -> None:
        """Place the new pods; one that fits nowhere is asked for again in the next cycle."""
        new = self.method.new
        if isinstance(new, BatchStrategy):
            decisions, _, self.view = decide_batch(
                self.view, pending, self.running, FILTERS, new, self.random
            )
        else:
            placed = list(decide_in_turn(self.view, pending, FILTERS, new, self.random))
            decisions = [decision for decision, _ in placed]
            self.view = placed[-1][1] if placed else self.view
        index = self.view.table.index
        self.running += [(each.pod, index[each.node]) for each in decisions if each.node]

    def suggest(self) -> frozenset[str]:
        """One suggestion; the pods that it moved."""
        if self.method.moves is None:
            return frozenset()
        _, plan, self.view = decide_batch(
            self.view, [], self.running, FILTERS, self.method.moves, self.random
        )
        for move in plan.moves:  # deleted and made anew: the newest of its service now
            self.running.remove((move.pod, move.source))
            self.running.append((move.pod, move.target))
        self.migrations += len(plan.moves)
        return frozenset(move.pod.key for move in plan.moves)

    def edge_shares(self, moving: frozenset[str] = frozenset()) -> Floats:
        """The share of each service's pods that is on the edge and not just moving, shape
        (services,); a pod that fits nowhere is not on the edge."""
        cloud = is_cloud(self.view)
        near = Counter(
            pod.labels["app"]
            for pod, node in self.running
            if not cloud[node] and pod.key not in moving
        )
        return np.array([near[service] / self.wanted[service] for service in SERVICES])

    def cycle_shares(self) -> Floats:
        """The time mean of the shares over a cycle whose new pods were placed, shape
        (services,): a suggestion after each interval but the last."""
        seen = [self.edge_shares()]
        moved: frozenset[str] | None = None
        for _ in range(self.method.rounds):
            if moved is None or moved:  # one that moves nothing moves nothing again
                moved = self.suggest()
                settled = self.edge_shares()
                share = MIGRATION_S / INTERVAL_S
                shares = share * self.edge_shares(moved) + (1 - share) * settled
            else:
                shares = settled
            seen.append(shares)
        mean: Floats = np.mean(seen, axis=0)
        return mean


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What came of a run. shares: the mean share of each service's pods that was on the edge,
    shape (services,). migrations: pods that were moved."""

    shares: Floats
    migrations: int


def start(
    scenario: Scenario, method: Method, seed: int, *, as_replica_set: bool = False
) -> ScenarioRun:
    """An empty cluster for a run."""
    ties, leaving = Random(seed), Random(f"leaving {scenario.name} {seed}")
    return ScenarioRun(method, ties, leaving, as_replica_set)


def run_through(
    scenario: Scenario, method: Method, seed: int, *, as_replica_set: bool = False
) -> Seen:
    """All cycles of a scenario."""
    course = start(scenario, method, seed, as_replica_set=as_replica_set)
    shares = []
    for wanted in replicas(scenario, seed):
        course.place(course.scale(wanted).pending)
        shares.append(course.cycle_shares())
    return Seen(np.mean(shares[1:], axis=0), course.migrations)


def moments(scenario: Scenario, method: Method, seed: int) -> Iterator[Moment]:
    """Each cycle as the method meets it: the view, the pods to place and those that run."""
    course = start(scenario, method, seed)
    for wanted in replicas(scenario, seed):
        moment = course.scale(wanted)
        yield moment
        course.place(moment.pending)
        for _ in range(method.rounds):
            course.suggest()
