"""NetSched's test bed (Section IV, Fig. 2): four Raspberry Pi 3 workers, three with a throttled
link, and a master that takes no pods.

CALIBRATION names what the paper leaves open; the values are the same for all methods.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import simpy
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy, decide
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, Taint
from leadline_controller.framework.view import NodeMetrics

from leadline_experiments.models.cluster import view_of
from leadline_experiments.models.network import Network

MB = 10**6
FREE, *THROTTLED = WORKERS = ("pi-1", "pi-2", "pi-3", "pi-4")
MASTER = "master"
FREE_MBPS, MASTER_MBPS = 94.0, 940.0
THROTTLED_MBPS = 1.0
_BOARD = {CPU: 4000, MEMORY: 971 * MB, PODS: 110}
_MASTER = {CPU: 8000, MEMORY: 16_000 * MB, PODS: 110}
# What ran on each worker before: requested thousandths of a core and MB.
_BEFORE = {"pi-1": (6, 62), "pi-2": (0, 0), "pi-3": (3, 32), "pi-4": (1, 10)}
_IDLE_CPU_PERCENT, _IDLE_MEMORY_PERCENT = 6.0, 40.0
_IDLE_PACKETS_PER_S, _IDLE_DISK_BYTES_PER_S = 50.0, 2000.0
_POD_CPU_PERCENT, _POD_MEMORY_PERCENT = 0.1, 0.3
_MASTER_TAINT = Taint("node-role.kubernetes.io/master", "", "NoSchedule")


class NetworkDemand(NamedTuple):
    """The load of the network demand on each throttled worker; packets each way."""

    cpu_percent: float
    packets_per_s: float


DEMAND = NetworkDemand(cpu_percent=20.0, packets_per_s=400.0)
NO_DEMAND = NetworkDemand(0.0, 0.0)


class PodKind(NamedTuple):
    """A kind of pod and its requests, in thousandths of a core and MB."""

    name: str
    cpu_milli: int
    memory_mb: int

    def pods(self, count: int) -> list[Pod]:
        """`count` pods, each of its own deployment."""
        requests = {CPU: self.cpu_milli, MEMORY: self.memory_mb * MB, PODS: 1}
        return [Pod("default", f"{self.name}-{i}", requests=requests) for i in range(1, count + 1)]


PAUSE = PodKind("pause", 1, 10)
SENDER = PodKind("sender", 3, 30)

CALIBRATION: Mapping[str, str] = {
    "free worker's link": f"{FREE_MBPS:g} Mbit/s (100 Mbit/s Ethernet, as iperf measures it)",
    "master's link": f"{MASTER_MBPS:g} Mbit/s (gigabit Ethernet)",
    "throttled workers' links": f"{THROTTLED_MBPS:g} Mbit/s (the paper: a minimum)",
    "demand on the throttled workers": (
        f"{DEMAND.cpu_percent:g} % of their CPU and {DEMAND.packets_per_s:g} packets/s each way "
        "(the paper: a high demand for network resources)"
    ),
    "worker": "4 cores, 971 MB allocatable, 110 pods (Raspberry Pi 3 Model B)",
    "pod of Fig. 7": (
        f"asks for {PAUSE.cpu_milli} thousandth of a core and {PAUSE.memory_mb} MB, as in "
        "clusterloader2's density test"
    ),
    "pod of Fig. 8": (
        f"asks for {SENDER.cpu_milli} thousandths of a core and {SENDER.memory_mb} MB, three "
        "times as much"
    ),
    "a placed pod": f"uses {_POD_CPU_PERCENT:g} % CPU and {_POD_MEMORY_PERCENT:g} % memory",
    "what ran on the workers before": (
        "asks for "
        + ", ".join(f"{mb} MB" for _, mb in _BEFORE.values())
        + " on workers 1 to 4; this and the size of Fig. 8's pods are fitted, so that the original "
        "scheduler's 19/25/22/24 and 1/4/2/3 come out"
    ),
}


@dataclass(frozen=True)
class Placement:
    """counts: pods on each worker, in the order of WORKERS. least_lead: the smallest lead of the
    free worker's total over the best other total, in any decision."""

    counts: Sequence[int]
    least_lead: float


def place(
    strategy: Strategy, pods: Sequence[Pod], random: Random, demand: NetworkDemand = DEMAND
) -> Placement:
    """Place pods one after the other; each decision sees the usage of the pods before it."""
    workers = [Node(name, _BOARD, tier="edge") for name in WORKERS]
    cpu, memory = zip(*_BEFORE.values(), (0, 0), strict=True)
    view = view_of(
        [*workers, Node(MASTER, _MASTER, taints=(_MASTER_TAINT,))],
        requested={
            CPU: np.array(cpu),
            MEMORY: np.array(memory) * MB,
            PODS: np.zeros(len(cpu), dtype=np.int64),
        },
    )
    pods_on: Counter[str] = Counter()
    leads = []
    for pod in pods:
        view = replace(view, metrics=_metrics(pods_on, demand))
        decision = decide(view, pod, FILTERS, strategy, random)
        assert decision.node is not None, decision.why  # noqa: S101  # the boards hold them all
        node = view.table.index[decision.node]
        view = view.with_placement(pod, node, strategy.charge(view, pod, node))
        pods_on[decision.node] += 1
        scores = decision.scores().items()
        totals = {name: total for name, (total, _) in scores if total is not None}
        leads.append(totals[FREE] - max(totals[name] for name in THROTTLED))
    return Placement([pods_on[name] for name in WORKERS], min(leads))


def _metrics(pods_on: Mapping[str, int], demand: NetworkDemand) -> NodeMetrics:
    names = (*WORKERS, MASTER)
    pods = np.array([pods_on[name] for name in names])
    throttled = np.array([name in THROTTLED for name in names])
    packets = _IDLE_PACKETS_PER_S + throttled * demand.packets_per_s
    return NodeMetrics(
        cpu_percent=_IDLE_CPU_PERCENT + pods * _POD_CPU_PERCENT + throttled * demand.cpu_percent,
        memory_percent=_IDLE_MEMORY_PERCENT + pods * _POD_MEMORY_PERCENT,
        packets_sent_per_s=packets,
        packets_received_per_s=packets,
        disk_bytes_per_s=np.full(len(names), _IDLE_DISK_BYTES_PER_S),
        bandwidth_mbps=np.where(throttled, THROTTLED_MBPS, FREE_MBPS),
    )


def delivery_s(counts: Sequence[int], size_mb: float) -> float:
    """Seconds until the last container has sent `size_mb` MB to the master; all start at once.

    counts: containers on each worker, in the order of WORKERS. The containers of a worker share
    its link, and all share the master's link, max-min fairly.
    """
    env = simpy.Environment()
    throttled_mbps = dict.fromkeys(THROTTLED, THROTTLED_MBPS)
    links_mbps = {FREE: FREE_MBPS, **throttled_mbps, MASTER: MASTER_MBPS}
    network = Network(env, links_mbps, {name: (name, MASTER) for name in WORKERS})
    for name, count in zip(WORKERS, counts, strict=True):
        for _ in range(count):
            network.download(name, size_mb)
    env.run()
    return float(env.now)


def best_delivery_s(count: int, size_mb: float) -> float:
    """The shortest delivery of any placement of `count` equal containers, by trying all."""
    # A placement is a split of the row of containers at the bars between the workers.
    bars = combinations_with_replacement(range(count + 1), len(WORKERS) - 1)
    placements = (tuple(b - a for a, b in pairwise((0, *bar, count))) for bar in bars)
    return min(delivery_s(counts, size_mb) for counts in placements)
