"""The cluster and the services of the KubeDSM paper (Section 6, Tables 4 and 5), and the replay of
a logged run: the pods of each service come and go as in the log, a method places them, and the
shares of pods on the edge are taken at each sample.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import log2
from random import Random
from typing import Any, ClassVar, NamedTuple

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import (
    BatchPlan,
    BatchStrategy,
    Move,
    Running,
    decide_batch,
    suggested_steps,
)
from leadline_controller.framework.cycle import Better, Rule, Scores, Strategy, best, decide_in_turn
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, PodAnnotations
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.kubedsm.decision import Quality
from leadline_controller.strategies.shared.capacity import is_cloud

from leadline_experiments.kubedsm.logs import SAMPLE_S, Log
from leadline_experiments.models.cluster import view_of

GIB = 1024**3
MIB = 1024**2
SUGGEST_S = 1.0  # between two suggestions, as in the authors' configuration

# Table 4 with its columns exchanged, as the authors' configuration has it: cores, memory in GB.
NODES = (("N2", "edge", 5, 5), ("N3", "edge", 4, 4), ("N4", "edge", 5, 7), ("N5", "cloud", 17, 22))
# Other pods of each node, so that the edge nodes hold the 4, 3 and 4 cores and the 4, 3 and 6 units
# of 950 MiB that are seen in the logs: cores, GiB.
OTHER_CORES, OTHER_GIB = 0.5, 0.6
# Table 5: cores, memory in MiB.
SERVICES: Mapping[str, tuple[int, int]] = {
    "A": (1, 950),
    "B": (1, 1900),
    "C": (1, 950),
    "D": (2, 1900),
}
# No other filter has a say about these pods.
_FILTERS = {"NodeResourcesFit": FILTERS["NodeResourcesFit"]}


@cache
def empty_cluster() -> ClusterView:
    """Table 4's nodes with what the other pods leave."""

    def left(cores: int, gib: int) -> dict[str, int]:
        memory = int((gib - OTHER_GIB) * GIB)
        return {CPU: int((cores - OTHER_CORES) * 1000), MEMORY: memory, PODS: 110}

    return view_of([Node(name, left(*sizes), tier=tier) for name, tier, *sizes in NODES])


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


@dataclass(frozen=True, slots=True)
class Method:
    """A strategy for new pods, and one that suggests migrations, if there is one."""

    strategy: Strategy
    migration: BatchStrategy | None = None
    # QoS targets of the services; a missing one has the default.
    targets: Mapping[str, float] = field(default_factory=dict)


def kubedsm(
    m_c2e: int = 5, m_er: int = 3, targets: Mapping[str, float] | None = None, **options: Any
) -> Method:
    """KubeDSM with these limits of migrations, QoS targets and further options. New pods never wait
    (Algorithm 1)."""
    strategy = KubeDsm(m_c2e=m_c2e, m_er=m_er, new_pods="never-wait", **options)
    return Method(strategy, strategy if m_c2e or m_er else None, targets or {})


@dataclass(frozen=True, slots=True)
class EdgePreferred(Strategy):
    """kube-scheduler with the configuration of Section 6.2: a PreferNoSchedule taint on the cloud
    and a preferred affinity to the edge, so that any edge node that fits is preferred. Within a
    tier kube-default decides. Unknown where kube-default is."""

    name: ClassVar[str] = "kube-default"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "KubeDSM, Section 6.2 (K8S)"
    needs: ClassVar[tuple[str, ...]] = ()
    _PREFERENCE: ClassVar[float] = 100.0  # more than any score of kube-default, which is 10 at most

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """kube-default's score plus the preference for the edge."""
        scores = KubeDefault().score(view, pod, candidates)
        total = scores.total + np.where(is_cloud(view)[candidates], 0.0, self._PREFERENCE)
        return Scores(candidates, total, best(total, self.better), scores.why, scores.parts)


@dataclass(frozen=True, slots=True)
class Rules:
    """What happens to pods that leave and move."""

    by_exact_age: bool = False  # the youngest leaves at a scale-down, not any of about its age
    keeps_ages: bool = False  # of moved pods; they are created again, so their ages begin anew
    # The replica whose node the strategy scores worst leaves first, as by a pod deletion cost.
    worst_first: bool = False
    # How long a moved pod is away, from its eviction until another one is ready. Then the next move
    # begins, as the executor does it. 0: all moves of a suggestion are done at once.
    away_s: float = 0.0
    pull_s: float = 0.0  # how much longer where the node does not have the service's image yet


class Transit(NamedTuple):
    """A pod that is away from its node, and on its next one at a time."""

    pod: Pod
    node: int
    ready_s: float


class Replay:
    """The cluster during a run. random: of the order in which pods arrive, of ties, and of which of
    equal pods leaves."""

    def __init__(self, method: Method, random: Random, rules: Rules | None = None) -> None:
        self.method = method
        self._rules = rules or Rules()
        self.view = empty_cluster()
        self.running: list[Running] = []
        self.migrations = 0
        self._is_cloud = is_cloud(self.view)
        self._made_at_s: dict[str, float] = {}
        self._has_image: set[tuple[str, int]] = set()
        self._now_s = 0.0
        self._random = random
        self._wanted: Mapping[str, int] = {}
        self._is_settled = False
        self._steps: list[Move] = []
        self._transit: Transit | None = None

    def sample(self, wanted: Mapping[str, int]) -> Ints:
        """Bring each service to so many pods, let the method suggest until the next sample, and
        count the pods on the edge, shape (services,)."""
        if wanted != self._wanted:
            self._wanted, self._is_settled = wanted, False
        self._place(self._scale())
        if self.method.migration is not None:
            self._migrate(self.method.migration)
        self._now_s += SAMPLE_S
        counts = Counter(
            pod.labels["app"] for pod, node in self.running if not self._is_cloud[node]
        )
        return np.array([counts[service] for service in SERVICES])

    def _scale(self) -> list[Pod]:
        """Remove surplus pods; the missing ones, in the order in which they arrive."""
        arriving = []
        for service, count in self._wanted.items():
            replicas = [each for each in self.running if each[0].labels["app"] == service]
            surplus = len(replicas) - count
            if self._transit is not None and self._transit.pod.labels["app"] == service:
                surplus += 1
                if surplus > 0:  # what is not ready leaves first
                    self.view = self.view.without_placement(*self._transit[:2])
                    self._transit = None
                    surplus -= 1
            for _ in range(surplus):
                replicas.remove(self._remove_one(replicas))
            for _ in range(-surplus):
                target = self.method.targets.get(service)
                pod = make_pod(service, len(self._made_at_s), target)
                self._made_at_s[pod.key] = self._now_s
                arriving.append(pod)
        self._random.shuffle(arriving)
        return arriving

    def _remove_one(self, replicas: Sequence[Running]) -> Running:
        """As a ReplicaSet does since Kubernetes 1.22: of the node with most of them, the youngest
        by whole powers of two of the age, then any. With deletion costs, the lowest."""
        on_node = Counter(node for _, node in replicas)
        scores = self._scores(replicas) if self._rules.worst_first else None

        def rank(each: Running) -> tuple[float, float, float]:
            age_s = max(self._now_s - self._made_at_s[each[0].key], 1.0)
            if scores is not None:  # of equal ones the older stays longer
                return scores[each[1]], age_s, 0.0
            age = age_s if self._rules.by_exact_age else int(log2(age_s))
            return -on_node[each[1]], age, self._random.random()

        removed = min(replicas, key=rank)
        self.running.remove(removed)
        self.view = self.view.without_placement(*removed)
        return removed

    def _scores(self, replicas: Sequence[Running]) -> dict[int, float]:
        """The strategy's score of each node for a replica that is there, more is better: as if it
        were placed now on one of the nodes that they are on."""
        strategy, scores = self.method.strategy, dict[int, float]()
        candidates = np.unique([node for _, node in replicas])
        for at, node in enumerate(candidates.tolist()):
            pod = next(pod for pod, there in replicas if there == node)
            total = strategy.score(self.view.without_placement(pod, node), pod, candidates).total
            scores[node] = float(total[at]) * (1 if strategy.better == "higher" else -1)
        return scores

    def _place(self, arriving: Sequence[Pod]) -> None:
        """Place new pods. One that fits nowhere is dropped, and is missing at the next sample."""
        if not arriving:
            return
        self._is_settled = False
        strategy = self.method.strategy
        if isinstance(strategy, BatchStrategy):
            decisions, plan, self.view = decide_batch(
                self.view,
                arriving,
                self.running,
                Rule(strategy, _FILTERS, self._random, letter=True),
            )
            self._carry_out(plan, self._now_s)
        else:
            placed = list(
                decide_in_turn(
                    self.view, arriving, Rule(strategy, _FILTERS, self._random, letter=True)
                )
            )
            decisions, self.view = [decision for decision, _ in placed], placed[-1][1]
        index = self.view.table.index
        self.running += [(each.pod, index[each.node]) for each in decisions if each.node]
        self._has_image |= {(pod.labels["app"], node) for pod, node in self.running}

    def _migrate(self, strategy: BatchStrategy) -> None:
        """Suggest once a second until the next sample, unless nothing is left to move, and carry
        out what is suggested."""
        at_s, end_s = self._now_s, self._now_s + SAMPLE_S
        while at_s < end_s:
            if self._transit is not None:
                pod, node, at_s = self._transit
                if at_s <= end_s:
                    self._transit = None
                    self.running.append((pod, node))
            elif self._steps:
                self._begin(self._steps.pop(0), at_s)
            elif self._is_settled:
                return
            else:
                self._suggest(strategy, at_s)
                at_s += SUGGEST_S

    def _suggest(self, strategy: BatchStrategy, now_s: float) -> None:
        """Plan one suggestion; carry it out if moves take no time."""
        rule = Rule(strategy, _FILTERS, self._random, letter=True)
        if self._rules.away_s:
            self._steps = [*suggested_steps(self.view, self.running, rule)]
            self._is_settled = not self._steps
            return
        _, plan, self.view = decide_batch(self.view, [], self.running, rule)
        self._carry_out(plan, now_s)
        self._is_settled = not plan.moves

    def _carry_out(self, plan: BatchPlan, now_s: float) -> None:
        """The moves of a plan, at once."""
        for move in plan.moves:
            self.running.remove((move.pod, move.source))
            self.running.append((move.pod, move.target))
            self._create_again(move.pod, now_s)

    def _create_again(self, pod: Pod, now_s: float) -> None:
        """A move: its pod is created again."""
        self.migrations += 1
        if not self._rules.keeps_ages:
            self._made_at_s[pod.key] = now_s

    def _begin(self, move: Move, now_s: float) -> None:
        """Evict a pod. A move that has lost its sense cancels those after it."""
        service, place = move.pod.labels["app"], (move.pod, move.source)
        without = self.view.without_placement(*place) if place in self.running else None
        if without is None or not _passes(without, move.pod)[move.target]:
            self._steps.clear()
            return
        self.running.remove(place)
        self.view = without.with_placement(move.pod, move.target)
        self._create_again(move.pod, now_s)
        pull_s = 0.0 if (service, move.target) in self._has_image else self._rules.pull_s
        self._has_image.add((service, move.target))
        self._transit = Transit(move.pod, move.target, now_s + self._rules.away_s + pull_s)


def _passes(view: ClusterView, pod: Pod) -> Bools:
    """The nodes that pass the filters, shape (n,)."""
    passes: Bools = np.logical_and.reduce([run(view, pod).passes for run in _FILTERS.values()])
    return passes


class Outcome(NamedTuple):
    """The outcome of a replay."""

    on_edge: Ints  # pods of each service on the edge, shape (samples, services)
    migrations: int  # the number of moves


def replay(log: Log, method: Method, random: Random, rules: Rules | None = None) -> Outcome:
    """Replay the pods of a log."""
    run = Replay(method, random, rules)
    rows = (dict(zip(SERVICES, row, strict=True)) for row in log.pods.tolist())
    counts = [run.sample(wanted) for wanted in rows]
    return Outcome(np.array(counts), run.migrations)


@cache
def packings() -> Ints:
    """All (A, B, C, D) that the edge nodes can hold, shape (packings, services)."""
    edge = np.flatnonzero(~is_cloud(empty_cluster()))
    room = [empty_cluster().free(resource)[edge] for resource in (CPU, MEMORY)]
    requests = [make_pod(service, 0).requests for service in SERVICES]
    sizes = np.array([[each[CPU], each[MEMORY]] for each in requests])
    found = {(0,) * len(SERVICES)}
    for amounts in np.array(room).T:
        most = [int(count) for count in (amounts // sizes).min(axis=1)]
        grid = np.indices([count + 1 for count in most]).reshape(len(SERVICES), -1).T
        held = grid[(grid @ sizes <= amounts).all(axis=1)]
        sums = np.array(sorted(found))[:, np.newaxis] + held
        found = {tuple(row) for row in np.unique(sums.reshape(-1, len(SERVICES)), axis=0).tolist()}
    return np.array(sorted(found))


def best_possible(pods: Ints, value: Quality | None = None) -> float:
    """The highest mean edge share of any placement of so many pods, or the highest QoS. pods: of
    each service, shape (services,)."""
    held = packings()
    held = held[(held <= pods).all(axis=1)]
    values: Floats = (held / pods).mean(axis=1) if value is None else value.of(held)
    return float(values.max())
