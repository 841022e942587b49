"""The two clusters of the DACS paper (Section 7.2, Tables 4 and 5), and one run of one method on
them: the strategy places the pods, then they compute an FFT for their users.

What the paper leaves open is in settings.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from random import Random
from statistics import fmean
from typing import NamedTuple, cast

import numpy as np
import simpy
from leadline_controller.framework.cycle import Strategy
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
from leadline_controller.framework.node_metrics import NodeMetrics
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.nas import PREFERRED_LABEL
from simpy.events import ProcessGenerator

from leadline_experiments.models.cluster import machine, view_of
from leadline_experiments.models.cpu import Contention, CpuModel
from leadline_experiments.optimum import study

_MIB = 1024**2
MASTER = "master"
WORKERS = ("n1", "n2", "n3")
LINK_MBPS = 1000.0
DATA_MB = 1.0
POD_CPU_MILLI, POD_MIB = 300, 256
PACKETS_PER_S = 100.0
USERS = (*WORKERS, MASTER)

ITERATIONS: Mapping[str, int] = {"low load": 250, "high load": 3000}
PHI, LAMBDA_S = 0.25, 0.005
START_APART_S = 0.3
READY_S = 3.43
CORE_S_AN_ITERATION = 0.017915
SLICE_S = 155.2e-6
BETA_CS, BETA_RC = Dacs().beta_cs, Dacs().beta_rc


@dataclass(frozen=True, slots=True)
class Scenario:
    """One of the paper's clusters."""

    number: int
    # Of the paper's results.
    figure: str
    table: str
    pod_mbps: float  # bandwidth that each pod requests
    workers: Sequence[Node]
    rtt_ms: Mapping[tuple[str, str], float]  # average round trip of each pair of nodes
    pod_count: int
    # Memory requests of the pods that run on each worker at the start.
    before_mib: Sequence[int] = (0, 0, 0)
    # The nodes of the first pods' users, and of the next ones again.
    users_at: Sequence[str] = USERS

    @property
    def title(self) -> str:
        """The paper's name of it."""
        return f"scenario {self.number}"

    @property
    def users(self) -> list[str]:
        """The node of each pod's user, in the order of the pods."""
        return list(islice(cycle(self.users_at), self.pod_count))

    @property
    def sending_s(self) -> float:
        """The time to send a pod's data."""
        return DATA_MB * 8 / self.pod_mbps

    def rtt_between_ms(self, a: str, b: str) -> float:
        """The round trip between two nodes, ms; 0 from a node to itself, NaN if unknown."""
        return 0.0 if a == b else self.rtt_ms.get((a, b), self.rtt_ms.get((b, a), np.nan))


_node = partial(machine, tier="edge", bandwidth_mbps=LINK_MBPS)


def _rtt_ms(*values: float) -> dict[tuple[str, str], float]:
    pairs = [(a, b) for i, a in enumerate((MASTER, *WORKERS)) for b in WORKERS[i:]]
    return dict(zip(pairs, values, strict=True))


_TAINTS = (Taint("node-role.kubernetes.io/master", "", "NoSchedule"),)
_MASTER = _node(MASTER, 2, 8, tier="cloud", taints=_TAINTS)
SCENARIO_1 = Scenario(
    *(1, "Fig. 3", "Table 6", 100.0),
    (_node("n1", 2, 4), _node("n2", 2, 4), _node("n3", 2, 4)),
    _rtt_ms(200, 150, 160, 50, 60, 10),
    pod_count=10,
    before_mib=(2048, 2304, 0),
)
SCENARIO_2 = Scenario(
    *(2, "Fig. 4", "Table 7", 20.0),
    (_node("n1", 2, 4), _node("n2", 1, 4), _node("n3", 1, 3)),
    _rtt_ms(350, 210, 200, 160, 150, 10),
    pod_count=6,
)


def cluster(
    scenario: Scenario, preferred: str | None = None
) -> tuple[ClusterView, tuple[Pod, ...]]:
    """A scenario without its pods, and the pods in order; they all belong to one service.
    preferred: the node that is designated as preferred (NAS)."""
    nodes = [*scenario.workers, _MASTER]
    if preferred is not None:
        label = {PREFERRED_LABEL: "true"}
        nodes = [replace(node, labels=label) if node.name == preferred else node for node in nodes]
    before = np.array([*scenario.before_mib, 0], dtype=np.int64)
    packets = np.full(len(nodes), PACKETS_PER_S)
    view = view_of(
        nodes,
        [Link(a, b, rtt_ms) for (a, b), rtt_ms in scenario.rtt_ms.items()],
        {CPU: np.zeros_like(before), MEMORY: before * _MIB, PODS: np.sign(before)},
        replace(
            NodeMetrics.unknown(len(nodes)),
            packets_sent_per_s=packets,
            packets_received_per_s=packets,
        ),
    )
    return view, tuple(
        Pod(
            "default",
            f"fft-{number}",
            requests={CPU: POD_CPU_MILLI, MEMORY: POD_MIB * _MIB, PODS: 1},
            limits={MEMORY: POD_MIB * _MIB},
            annotations=PodAnnotations(
                user_node=user, data_mb=DATA_MB, bandwidth_mbps=scenario.pod_mbps
            ),
            labels={"app": "fft"},
        )
        for number, user in enumerate(scenario.users, start=1)
    )


class ServedRequest(NamedTuple):
    """The delays of a user's request, and the time of its answer, in seconds."""

    network_s: float
    processing_s: float
    done_s: float


class _Served(NamedTuple):
    node: str
    user: str
    request: ServedRequest


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run."""

    nodes: Sequence[str | None]  # of the pods, in their order; None for a pod that is pending
    users: Sequence[str]  # their nodes
    # Those of the pods that are not pending, for each load of ITERATIONS.
    requests: Mapping[str, Sequence[ServedRequest]]

    def pods(self, worker: str | None) -> int:
        """The pods on a worker; None: those that are pending."""
        return self.nodes.count(worker)

    def completion_s(self, load: str) -> float:
        """The average time until the user has the answer of a task."""
        return fmean(request.done_s for request in self.requests[load])

    def last_completion_s(self, load: str) -> float:
        """The time until all tasks are complete."""
        return max(request.done_s for request in self.requests[load])

    def network_s(self, user: str | None = None) -> float:
        """The average network delay of the users at a node (None: of all); it is the same for all
        loads. 0 without users."""
        load = next(iter(self.requests))
        return _mean(s.request.network_s for s in self._served(load) if user in (None, s.user))

    def processing_s(self, load: str, worker: str | None = None) -> float:
        """The average processing delay of the pods on `worker` (None: of all); 0 without pods."""
        served = self._served(load)
        return _mean(s.request.processing_s for s in served if worker in (None, s.node))

    def _served(self, load: str) -> Iterator[_Served]:
        pairs = zip(self.nodes, self.users, strict=True)
        placed = [(node, user) for node, user in pairs if node is not None]
        for (node, user), request in zip(placed, self.requests[load], strict=True):
            yield _Served(node, user, request)


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return fmean(values) if values else 0.0


def place(
    scenario: Scenario, strategy: Strategy, random: Random, preferred: str | None = None
) -> list[str | None]:
    """The node of each pod, None for a pod that fits nowhere. preferred: see `cluster`."""
    view, pods = cluster(scenario, preferred)
    placement = study.place(view, pods, (), strategy, random)
    return [placement.get(pod.key) for pod in pods]


def simulate(
    scenario: Scenario, nodes: Sequence[str | None], iterations: int
) -> list[ServedRequest]:
    """Run the FFT of each pod that has a node. The paper measures processing and network delay
    apart (Section 7.1), so the request's time on the network does not shift the computation; its
    answer comes after both."""
    env = simpy.Environment()
    contention = Contention(BETA_CS, BETA_RC, SLICE_S)
    cpus = {
        worker.name: CpuModel(env, worker.allocatable[CPU] / 1000, contention)
        for worker in scenario.workers
    }
    work_core_s = iterations * CORE_S_AN_ITERATION

    def compute(cpu: CpuModel, start_s: float) -> ProcessGenerator:
        yield env.timeout(start_s)
        yield cpu.run(work_core_s, limit_cores=1.0)
        return env.now - start_s

    pods = []
    for at, (node, user) in enumerate(zip(nodes, scenario.users, strict=True)):
        if node is not None:
            start_s = READY_S + START_APART_S * nodes[:at].count(node)
            network_s = scenario.sending_s + scenario.rtt_between_ms(node, user) / 1000
            pods.append((start_s, network_s, env.process(compute(cpus[node], start_s))))
    env.run()
    requests = []
    for start_s, network_s, process in pods:
        processing_s = cast(float, process.value)
        requests.append(ServedRequest(network_s, processing_s, start_s + processing_s + network_s))
    return requests
