"""The cluster, the services and the load of the KubeDSM paper (Section 6, Tables 4 and 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from random import Random

import numpy as np
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, PodAnnotations
from leadline_controller.framework.view import ClusterView, LinkTable, NodeMetrics, NodeTable

GIB = 1024**3
MIB = 1024**2
CYCLES = 12

# Table 4: name, tier, memory in GB, cores. The master N1 takes no pods.
NODES = (("N2", "edge", 5, 5), ("N3", "edge", 4, 4), ("N4", "edge", 5, 7), ("N5", "cloud", 17, 22))
# Table 5: cores, memory in MiB.
SERVICES: Mapping[str, tuple[int, int]] = {
    "A": (1, 950),
    "B": (1, 1900),
    "C": (1, 950),
    "D": (2, 1900),
}
LOADS = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6)  # at a spread of 0.4, Fig. 4
SPREADS = (0.1, 0.2, 0.3, 0.4, 0.5)  # at a load of 1.5, Fig. 5


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


BY_LOAD = tuple(Scenario(load, 0.4) for load in LOADS)
BY_SPREAD = tuple(Scenario(1.5, spread) for spread in SPREADS)
ROUNDED_UP = tuple(replace(each, rounded_up=True) for each in BY_LOAD)


def empty_cluster() -> ClusterView:
    """Table 4's nodes without pods."""
    nodes = [
        Node(name, allocatable={CPU: cores * 1000, MEMORY: gb * GIB, PODS: 110}, tier=tier)
        for name, tier, gb, cores in NODES
    ]
    table = NodeTable(nodes)
    return ClusterView(
        table=table,
        requested={},
        metrics=NodeMetrics.unknown(len(nodes)),
        links=LinkTable(table.index, []),
        bandwidth_requested_mbps=np.zeros(len(nodes)),
        placed_in_run=np.zeros(len(nodes), dtype=np.int64),
    )


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
