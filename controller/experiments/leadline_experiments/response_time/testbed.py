"""The paper's cluster and workloads (Sections 4.1 and 4.2), with stand-ins for the numbers that
only its figures had.

The text has neither the workers' CPUs and memory (Fig. 2) nor the delays added by `tc`, the
profiles and the thresholds. The stand-ins agree with the text: there are eight CPUs, like on the
laptop, and the node with the most free resources is the one that violates the threshold.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
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
from leadline_controller.framework.view import ClusterView, LinkTable, NodeMetrics, NodeTable

from leadline_experiments.models.autoscaler import Scaling
from leadline_experiments.models.users import LoadProfile, Step

_MIB = 1024**2
_GIB = 1024**3
MASTER = "master"
# kindnet, which Kind runs on every node.
_KINDNET_REQUESTS = {CPU: 100, MEMORY: 50 * _MIB}
_REPLICA_REQUESTS = {CPU: 200, MEMORY: 128 * _MIB, PODS: 1}


@dataclass(frozen=True, slots=True)
class Worker:
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
    """A deployment and its load. profile_ms: processing time of a single request on each worker.
    users_per_step: users that each step up adds. requests_per_replica: the autoscaler's target.
    workers: the nodes for its replicas."""

    name: str
    profile_ms: Mapping[str, float]
    load_profile: LoadProfile
    users_per_step: int
    requests_per_replica: int
    step_s: float
    workers: tuple[Worker, ...] = WORKERS

    @property
    def predicted_ms(self) -> Mapping[str, float]:
        """The sum of ping and profile of each worker (Algorithm 1, line 3)."""
        return {each.name: each.ping_ms + self.profile_ms[each.name] for each in self.workers}

    @property
    def scaling(self) -> Scaling:
        """From one replica to one per worker, soon after each step."""
        soon_s = self.step_s / 20
        return Scaling(
            self.requests_per_replica,
            maximum=len(self.workers),
            poll_s=soon_s,
            stabilisation_s=soon_s,
        )

    @property
    def steps(self) -> tuple[Step, ...]:
        """Four levels up and three down (Fig. 3 and 4)."""
        return tuple(Step(self.users_per_step * level, self.step_s) for level in LEVELS)


WEB = Service(
    name="web",
    profile_ms={"w1": 2.6, "w2": 4.0, "w3": 4.0, "w4": 5.6},
    load_profile=LoadProfile(parallel=5, pause_s=(0.05, 0.15)),
    users_per_step=10,
    requests_per_replica=50,
    step_s=10.0,
)
DETECTION = Service(
    name="object detection",
    profile_ms={"w1": 60.0, "w2": 85.0, "w3": 85.0, "w4": 120.0},
    load_profile=LoadProfile(parallel=10, pause_s=(2.0, 6.0)),
    users_per_step=2,
    requests_per_replica=20,
    step_s=60.0,
)


def cluster(workers: Sequence[Worker]) -> ClusterView:
    """The master and the workers, with no pods but Kind's own."""
    table = NodeTable([_master(), *map(_node, workers)])
    count = len(table)
    links = [Link(MASTER, worker.name, worker.ping_ms) for worker in workers]
    return ClusterView(
        table=table,
        requested={name: np.full(count, amount) for name, amount in _KINDNET_REQUESTS.items()},
        metrics=NodeMetrics.unknown(count),
        links=LinkTable(table.index, links),
        bandwidth_requested_mbps=np.zeros(count),
        placed_in_run=np.zeros(count, dtype=np.int64),
    )


def draw_workers(services: Iterable[Service], random: Random, spread: float) -> Sequence[Service]:
    """The services with random workers: every delay and profile is within `spread`, as a share, of
    its stand-in."""

    def near(value: float) -> float:
        return value * random.uniform(1 - spread, 1 + spread)

    workers = tuple(replace(each, ping_ms=near(each.ping_ms)) for each in WORKERS)
    return [
        replace(
            service,
            workers=workers,
            profile_ms={name: near(ms) for name, ms in service.profile_ms.items()},
        )
        for service in services
    ]


def make_pod(service: Service, number: int) -> Pod:
    """A pod of the deployment, with threshold and profile."""
    annotations = PodAnnotations(response_time_ms=THRESHOLD_MS, profile_ms=service.profile_ms)
    labels = {"app": service.name.replace(" ", "-")}
    name = f"{labels['app']}-{number}"
    return Pod("default", name, requests=_REPLICA_REQUESTS, annotations=annotations, labels=labels)


def _master() -> Node:
    taint = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
    return Node(MASTER, {CPU: 2000, MEMORY: 2 * _GIB, PODS: 110}, taints=(taint,))


def _node(worker: Worker) -> Node:
    allocatable = {CPU: worker.cores * 1000, MEMORY: worker.memory_gib * _GIB, PODS: 110}
    return Node(worker.name, allocatable, tier="edge")
