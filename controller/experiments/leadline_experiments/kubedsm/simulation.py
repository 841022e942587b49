"""The cluster, the services and the load of the KubeDSM paper (Section 6, Tables 4 and 5); one run
of one method on a scenario: an autoscaler adds and removes pods, the method places them, and the
shares of pods on the edge are measured; and all runs of the figures, with the methods that the
paper compares.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil, floor
from random import Random
from statistics import fmean
from typing import ClassVar, NamedTuple

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchStrategy, Running, decide_batch
from leadline_controller.framework.cycle import Better, Scores, Strategy, best, decide_in_turn
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, PodAnnotations
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.shared.capacity import is_cloud

from leadline_experiments.models.cluster import view_of
from leadline_experiments.optimum import kubedsm as programme
from leadline_experiments.optimum.programme import Optimum
from leadline_experiments.optimum.study import QOS, Gap, gap_rows
from leadline_experiments.result import Progress, Row

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
            on_node = Counter(node for _, node in replicas)
            removed = max(replicas, key=lambda each: (on_node[each[1]], self.running.index(each)))
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


class Outcome(NamedTuple):
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


SUGGESTIONS = 5  # between the six intervals of a cycle of 90 s
K8S, KUBEDSM = "kube-default", "kubedsm"
_PREFERENCE = 100.0  # more than any score of kube-default, which is 10 at most


@dataclass(frozen=True, slots=True)
class EdgePreferred(Strategy):
    """kube-scheduler with the configuration of Section 6.2: a PreferNoSchedule taint on the cloud
    and a preferred affinity to the edge, so that any edge node that fits is preferred. Within a
    tier kube-default decides. Unknown where kube-default is."""

    name: ClassVar[str] = K8S
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "KubeDSM, Section 6.2 (K8S)"
    needs: ClassVar[tuple[str, ...]] = ()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """kube-default's score plus the preference for the edge."""
        scores = KubeDefault().score(view, pod, candidates)
        total = scores.total + np.where(is_cloud(view)[candidates], 0.0, _PREFERENCE)
        return Scores(candidates, total, best(total, self.better), scores.why, scores.parts)


def kubedsm(m_c2e: int = 5, m_er: int = 3, targets: Mapping[str, float] | None = None) -> Method:
    """KubeDSM with these limits of migrations and QoS targets."""
    return Method(KubeDsm(suggest=0), KubeDsm(m_c2e=m_c2e, m_er=m_er), SUGGESTIONS, targets or {})


METHODS: Mapping[str, Method] = {
    KUBEDSM: kubedsm(),
    K8S: Method(EdgePreferred()),
    **{name: Method(STRATEGIES[name]()) for name in ("bef", "sef", "cloud-first")},
}
# Fig. 10: M_C2E and M_ER. The paper's values of MidMig are lost; these lie between the others.
VARIANTS: Mapping[str, tuple[int, int]] = {
    "Original": (5, 3),
    "MidMig": (3, 1),
    "NoCloudOffload": (0, 3),
    "NoMig": (0, 0),
}
# Fig. 11.
SETTINGS: Mapping[str, Mapping[str, float]] = {
    "default": {},
    "AllEqual": dict.fromkeys("ABCD", 0.5),
    "CA": {"A": 0.5, "B": 0.1, "C": 1.0, "D": 0.1},
    "RespectD": {"A": 0.1, "B": 0.1, "C": 0.1, "D": 0.5},
}

REPLICATES = 4
ALL = (*BY_LOAD, *BY_SPREAD)  # the eleven workloads; 1.5_0.4 is in both figures
AS_REPLICA_SET = " as a ReplicaSet"


class Runs:
    """Results by scenario and method: a name of METHODS, VARIANTS or SETTINGS, or a name of METHODS
    followed by AS_REPLICA_SET. Values are means over the runs unless the method says otherwise."""

    def __init__(self, seed: int, progress: Progress) -> None:
        methods = {
            **METHODS,
            **{name: kubedsm(*limits) for name, limits in VARIANTS.items()},
            **{name: kubedsm(targets=targets) for name, targets in SETTINGS.items()},
        }
        aliases = {"Original": "kubedsm", "default": "kubedsm"}
        pairs = [(s, name) for s in dict.fromkeys(ALL) for name in (*METHODS, *VARIANTS)]
        pairs += [(s, name) for s in BY_LOAD for name in SETTINGS]
        pairs += [(s, name + AS_REPLICA_SET) for s in BY_LOAD for name in METHODS]
        pairs += [(s, name) for s in ROUNDED_UP for name in METHODS]
        self._seeds = [seed * REPLICATES + replicate for replicate in range(REPLICATES)]
        self._outcomes: dict[tuple[Scenario, str], Sequence[Outcome]] = {}
        for done, (scenario, name) in enumerate(pairs):
            progress(done / len(pairs))
            if name in aliases:
                self._outcomes[scenario, name] = self._outcomes[scenario, aliases[name]]
                continue
            method = name.removesuffix(AS_REPLICA_SET)
            self._outcomes[scenario, name] = [
                simulate(scenario, methods[method], each, as_replica_set=method != name)
                for each in self._seeds
            ]
        progress(1.0)

    def _shares_percent(self, scenario: Scenario, name: str) -> Floats:
        """The edge ratio of each service, %, shape (services,)."""
        shares = [run.shares for run in self._outcomes[scenario, name]]
        percent: Floats = np.mean(shares, axis=0) * 100
        return percent

    def by_service_percent(self, scenarios: Sequence[Scenario], name: str) -> dict[str, float]:
        """The edge ratio of each service over scenarios, %."""
        columns = [self._shares_percent(each, name) for each in scenarios]
        return {s: float(sum(c[i] for c in columns)) / len(columns) for i, s in enumerate(SERVICES)}

    def ratio_percent(self, scenarios: Iterable[Scenario], name: str) -> float:
        """The edge ratio over services and scenarios, %."""
        return float(np.mean([self._shares_percent(each, name) for each in scenarios]))

    def ratios_percent(self, scenarios: Iterable[Scenario], name: str) -> Floats:
        """The edge ratio over services and scenarios in each run, %, shape (REPLICATES,)."""
        percent: Floats = self.each_percent(scenarios, name).mean(axis=1)
        return percent

    def each_percent(self, scenarios: Iterable[Scenario], name: str) -> Floats:
        """The edge ratio of each service over scenarios in each run, %, shape (REPLICATES,
        services)."""
        shares = [[run.shares for run in self._outcomes[each, name]] for each in scenarios]
        percent: Floats = np.mean(shares, axis=0) * 100
        return percent

    def best_ratio_percent(self, scenarios: Iterable[Scenario]) -> float:
        """The highest ratio_percent of any placement."""
        return float(
            np.mean([best_ratio_percent(each, seed) for each in scenarios for seed in self._seeds])
        )

    def deviation_percent(self, scenario: Scenario, name: str) -> float:
        """The population standard deviation of the services' edge ratios, percentage points."""
        return float(np.mean([np.std(run.shares) for run in self._outcomes[scenario, name]]) * 100)

    def migrations(self, scenario: Scenario, name: str) -> float:
        """The moved pods of a run."""
        return float(np.mean([run.migrations for run in self._outcomes[scenario, name]]))


# With a target of 0, F is linear up to a constant, so the highest QoS is the highest edge ratio.
_EDGE_RATIO = KubeDsm(a=2.0, b=1.0, gamma=3.0, qos_target=0.0)


def optimality_gaps(seed: int) -> Iterator[Row]:
    """The quality of service after each cycle, averaged over the cycles, of each method in each
    workload, beside the optimum for the same pods. Eq. 9 has no pending pods: they are not on the
    edge, like pods in the cloud."""
    objective = KubeDsm()
    for scenario in dict.fromkeys(ALL):
        for name, method in METHODS.items():
            run = ScenarioRun(scenario, method, seed)
            gaps = [
                Gap(_quality_after(run, wanted, objective), _optimum((*wanted.items(),), objective))
                for wanted in replicas(scenario, seed)
            ]
            yield from gap_rows("Optimum, Eq. 9", scenario.name, name, "", QOS, gaps)


@cache
def _optimum(wanted: tuple[tuple[str, int], ...], objective: KubeDsm) -> Optimum:
    """The optimum for so many pods of each service. Earlier placements do not change it, as pods
    can be moved."""
    pods = [make_pod(name, number) for name, count in wanted for number in range(count)]
    return programme.best(empty_cluster(), pods, [], objective, FILTERS)


def _quality_after(run: ScenarioRun, wanted: Mapping[str, int], objective: KubeDsm) -> float:
    """The quality of service at the end of a cycle."""
    pending = run.scale(wanted)
    run.place(pending)
    for _ in range(run.method.rounds):
        if not run.suggest():
            break
    pods = {pod.key: pod for pod in (*pending, *(pod for pod, _ in run.running))}
    names = run.view.table.names
    placement = {pod.key: names[node] for pod, node in run.running}
    return programme.quality(run.view, list(pods.values()), objective, placement)


def best_ratio_percent(scenario: Scenario, seed: int) -> float:
    """The highest edge ratio of any placement in a run with this seed, %: the mean over services
    and over the cycles after the first, as in the figures."""
    ratios = []
    for wanted in replicas(scenario, seed)[1:]:
        optimum = _optimum((*wanted.items(),), _EDGE_RATIO)
        if not optimum.proved:
            raise RuntimeError(f"the best edge ratio of {wanted} was not found: {optimum.status}")
        ratios.append(optimum.value / len(wanted) - _EDGE_RATIO.gamma)
    return fmean(ratios) * 100
