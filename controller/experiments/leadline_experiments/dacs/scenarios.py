"""The two clusters of the DACS paper (Section 7.2, Tables 4 and 5), their users and pods.

CALIBRATION names what the paper leaves open; the values are the same for all methods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import cycle, islice

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

GIB = 1024**3
_MIB = 1024**2
MASTER = "master"
WORKERS = ("n1", "n2", "n3")
LINK_MBPS = 1000.0
DATA_MB = 1.0
POD_MBPS = 100.0
_POD_CPU_MILLI, _POD_MIB = 300, 256
_PACKETS_PER_S = 100.0
_USERS = (*WORKERS, MASTER)
_MASTER_TAINT = Taint("node-role.kubernetes.io/master", "", "NoSchedule")


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker node. before_mib: memory requests of the pods that run there at the start."""

    name: str
    cores: int
    gib: int
    before_mib: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One of the paper's clusters. rtt_ms: average round trip of each pair of nodes."""

    title: str
    workers: tuple[Worker, ...]
    rtt_ms: Mapping[tuple[str, str], float]
    pod_count: int

    def rtt_between_ms(self, a: str, b: str) -> float:
        """The round trip between two nodes, ms; 0 from a node to itself, NaN if unknown."""
        return 0.0 if a == b else self.rtt_ms.get((a, b), self.rtt_ms.get((b, a), np.nan))


def _rtt_ms(*values: float) -> dict[tuple[str, str], float]:
    pairs = [(a, b) for i, a in enumerate((MASTER, *WORKERS)) for b in WORKERS[i:]]
    return dict(zip(pairs, values, strict=True))


SCENARIO_1 = Scenario(
    "scenario 1",
    (Worker("n1", 2, 4, 2048), Worker("n2", 2, 4, 2304), Worker("n3", 2, 4)),
    _rtt_ms(200, 150, 160, 50, 60, 10),
    10,
)
SCENARIO_2 = Scenario(
    "scenario 2",
    (Worker("n1", 2, 4), Worker("n2", 1, 4), Worker("n3", 1, 3)),
    _rtt_ms(350, 210, 200, 160, 150, 10),
    6,
)

CALIBRATION: Mapping[str, str] = {
    "pod": (
        f"asks for {_POD_CPU_MILLI} thousandths of a core (six fit on 2 vCPUs and three on one, as "
        f"NAS has it), {_POD_MIB} MiB, {POD_MBPS:g} Mbit/s; no limit of CPU, {_POD_MIB} MiB of "
        f"memory; {DATA_MB:g} MB of data"
    ),
    "nodes' links": f"{LINK_MBPS:g} Mbit/s (virtual machines on one host)",
    "users": f"one a pod, in turn at {', '.join(_USERS)} (the paper: about as many at each node)",
    "traffic": f"{_PACKETS_PER_S:g} packets/s each way on every node (the paper: similar)",
    "what ran on the workers before, scenario 1": (
        "asks for "
        + ", ".join(f"{worker.before_mib} MiB" for worker in SCENARIO_1.workers)
        + " on n1 to n3, and nothing in scenario 2; fitted, because n3 has to have most left when "
        "all three are alike (Section 7.3) for kube-scheduler to give it five and KCSS none"
    ),
}


def users_of(scenario: Scenario) -> list[str]:
    """The node of each pod's user, in the order of the pods."""
    return list(islice(cycle(_USERS), scenario.pod_count))


def cluster(
    scenario: Scenario, preferred: str | None = None
) -> tuple[ClusterView, tuple[Pod, ...]]:
    """A scenario without its pods, and the pods in order; they all belong to one service.
    preferred: the node that all pods prefer, in place of their users' nodes (NAS)."""
    pods = tuple(
        _pod(number, preferred or user) for number, user in enumerate(users_of(scenario), start=1)
    )
    return _view(scenario), pods


def _pod(number: int, user_node: str) -> Pod:
    memory = _POD_MIB * _MIB
    return Pod(
        "default",
        f"fft-{number}",
        requests={CPU: _POD_CPU_MILLI, MEMORY: memory, PODS: 1},
        limits={MEMORY: memory},
        annotations=PodAnnotations(user_node=user_node, data_mb=DATA_MB, bandwidth_mbps=POD_MBPS),
        labels={"app": "fft"},
    )


def _view(scenario: Scenario) -> ClusterView:
    table = NodeTable([*map(_node, scenario.workers), _MASTER])
    count = len(table)
    before = [worker.before_mib * _MIB for worker in scenario.workers] + [0]
    links = [Link(a, b, rtt_ms) for (a, b), rtt_ms in scenario.rtt_ms.items()]
    packets = np.full(count, _PACKETS_PER_S)
    return ClusterView(
        table=table,
        requested={
            CPU: np.zeros(count, dtype=np.int64),
            MEMORY: np.array(before, dtype=np.int64),
            PODS: np.array([int(mib > 0) for mib in before], dtype=np.int64),
        },
        metrics=replace(
            NodeMetrics.unknown(count), packets_sent_per_s=packets, packets_received_per_s=packets
        ),
        links=LinkTable(table.index, links),
        bandwidth_requested_mbps=np.zeros(count),
        placed_in_run=np.zeros(count, dtype=np.int64),
    )


def _node(worker: Worker) -> Node:
    amounts = {CPU: worker.cores * 1000, MEMORY: worker.gib * GIB, PODS: 110}
    return Node(worker.name, amounts, tier="edge", bandwidth_mbps=LINK_MBPS)


_MASTER = Node(
    MASTER,
    {CPU: 2000, MEMORY: 8 * GIB, PODS: 110},
    taints=(_MASTER_TAINT,),
    tier="cloud",
    bandwidth_mbps=LINK_MBPS,
)
