"""Where the test bed of NetSched's paper puts pods, and how long these take to send their data:
four equal workers, some of them with a throttled link and a load on it, and a master.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from random import Random
from typing import NamedTuple

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, Strategy, decide
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, Taint
from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.view import Floats, Ints
from numpy.typing import ArrayLike

from leadline_experiments.models.cluster import view_of
from leadline_experiments.models.cpu import fair_shares
from leadline_experiments.result import Setting

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
POD_CPU_PERCENT, _POD_MEMORY_PERCENT = 0.1, 0.3
DECISION_S, READING_S = 0.005, 0.02
# 90 pods are bound in 1.8 s by a real controller, and boards report each 10 s.
_BINDING_S, REPORT_S = 0.02, 10.0
_SAME_MOMENT_S = 1e-9
_MASTER_TAINT = Taint("node-role.kubernetes.io/master", "", "NoSchedule")


class Conditions(NamedTuple):
    """What the throttled workers' network is like, and how precise measurements are."""

    # The load of the network demand on each of them; packets each way.
    cpu_percent: float
    packets_per_s: float
    link_mbps: float = THROTTLED_MBPS  # of the workers' links
    noise: float = 0.0  # the relative standard deviation of every measurement


CONGESTED = Conditions(cpu_percent=20.0, packets_per_s=400.0)
THROTTLED_ONLY = Conditions(0.0, 0.0)
UNCONGESTED = Conditions(0.0, 0.0, FREE_MBPS)
NOISE = 0.02


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

SETTINGS: Mapping[str, Setting] = {
    "workers": Setting(
        "4 with 4 cores and 971 MB allocatable, 110 pods at most: Raspberry Pi 3 Model B", "paper"
    ),
    "links of free workers": Setting(f"{FREE_MBPS:g} Mbit/s: 100 Mbit/s Ethernet", "chosen"),
    "link of the master": Setting(f"{MASTER_MBPS:g} Mbit/s: gigabit Ethernet", "chosen"),
    "links of throttled workers": Setting(
        f"{THROTTLED_MBPS:g} Mbit/s; the paper says: a minimum", "chosen"
    ),
    "demand on throttled workers": Setting(
        f"{CONGESTED.cpu_percent:g} % of their CPU and {CONGESTED.packets_per_s:g} packets/s each "
        "way; the paper says: a high demand for network resources",
        "chosen",
    ),
    "an idle worker": Setting(
        f"uses {_IDLE_CPU_PERCENT:g} % CPU, {_IDLE_MEMORY_PERCENT:g} % memory, "
        f"{_IDLE_PACKETS_PER_S:g} packets/s each way and {_IDLE_DISK_BYTES_PER_S / 1000:g} kB/s of "
        "disk input and output",
        "chosen",
    ),
    "a placed pod": Setting(
        f"adds {POD_CPU_PERCENT:g} % CPU and {_POD_MEMORY_PERCENT:g} % memory", "chosen"
    ),
    "pod of Fig. 7": Setting(
        f"requests {PAUSE.cpu_milli} thousandth of a core and {PAUSE.memory_mb} MB, as in "
        "clusterloader2's density test",
        "chosen",
    ),
    "pod of Fig. 8": Setting(
        f"requests {SENDER.cpu_milli} thousandths of a core and {SENDER.memory_mb} MB, so that the "
        "original's 1/4/2/3 comes out",
        "fitted",
    ),
    "requested on workers 1 to 4 before": Setting(
        f"{', '.join(str(milli) for milli, _ in _BEFORE.values())} thousandths of a core and "
        f"{', '.join(str(mb) for _, mb in _BEFORE.values())} MB, so that the original's "
        "19/25/22/24 comes out",
        "fitted",
    ),
    "noise of measurements": Setting(
        f"none in Fig. 5 to 10; a standard deviation of {NOISE:.0%} where it says so", "chosen"
    ),
    "interval of readings": Setting(
        "0 s, anew before each pod, where nothing else is said; pods are placed "
        f"{_BINDING_S:g} s apart, so that within {REPORT_S:g} s, in which agents report, one "
        "reading serves all 90",
        "chosen",
    ),
    "assumed load": Setting(
        "only where it says so: pods that were placed since the reading count with what they "
        "request, values within their error of the best share its points, and ties go to the "
        "worker with the fewest such pods; the rest is to the letter of the paper",
        "chosen",
    ),
    "time to assign a pod": Setting(
        f"{DECISION_S:g} s, and {READING_S:g} s for every value that the method reads of a "
        "worker; the paper's NetSched asks Prometheus for each pod, Leadline does not",
        "chosen",
    ),
}


class Readings(NamedTuple):
    """What is known of the workers when a pod is placed."""

    interval_s: float = 0.0  # how often they are measured; 0 is anew before each pod
    assumed: bool = False  # with assumed load, else to the letter

    @property
    def pods(self) -> int:
        """How many pods one reading serves."""
        return max(1, round(self.interval_s / _BINDING_S))

    def __str__(self) -> str:
        """As an option in tables."""
        return f"readings each {self.interval_s:g} s{', assumed load' * self.assumed}"


ANEW = Readings()


class Placement(NamedTuple):
    """Where the pods are."""

    counts: Sequence[int]  # pods on each worker, in the order of WORKERS
    # The smallest lead of the free worker's total over the best other total, in any decision while
    # it had room.
    least_lead: float


def place(
    strategy: Strategy,
    pods: Sequence[Pod],
    random: Random,
    conditions: Conditions = CONGESTED,
    workers: Sequence[str] = WORKERS,
    readings: Readings = ANEW,
) -> Placement:
    """Place pods one after the other; each decision sees the usage of the pods before the last
    reading. workers: in the order of their names. random: for ties and noise."""
    names = [*workers, MASTER]
    before = [*(_BEFORE[name] for name in workers), (0, 0)]
    cpu, memory = (np.array(column) for column in zip(*before, strict=True))
    view = view_of(
        [
            *(Node(name, _BOARD, tier="edge") for name in workers),
            Node(MASTER, _MASTER, taints=(_MASTER_TAINT,)),
        ],
        requested={CPU: cpu, MEMORY: memory * MB, PODS: np.zeros(len(names), dtype=np.int64)},
    )
    noise = np.random.default_rng(random.getrandbits(32))
    pods_on = np.zeros(len(names), dtype=np.int64)
    leads = []
    rule = Rule(strategy, FILTERS, random, letter=not readings.assumed)
    for number, pod in enumerate(pods):
        if number % readings.pods == 0:
            metrics = _metrics(names, pods_on, conditions, noise)
            view = replace(view, metrics=metrics, recently_placed=np.zeros_like(pods_on))
            view = view.assuming_load() if readings.assumed else view
        decision = decide(view, pod, rule)
        assert decision.node is not None, decision.why  # noqa: S101  # the boards hold them all
        node = view.table.index[decision.node]
        view = view.with_placement(pod, node, strategy.charge(view, pod, node))
        pods_on[node] += 1
        totals = {name: total or 0.0 for name, (total, _) in decision.scores().items()}
        if FREE in totals and len(totals) > 1:
            leads.append(totals.pop(FREE) - max(totals.values()))
    return Placement([int(pods_on[names.index(name)]) for name in WORKERS], min(leads))


def _metrics(
    names: Sequence[str], pods: Ints, conditions: Conditions, noise: np.random.Generator
) -> NodeMetrics:
    throttled = np.array([name in THROTTLED for name in names])

    def measured(exact: ArrayLike) -> Floats:
        return np.asarray(exact) * (1 + conditions.noise * noise.standard_normal(len(names)))

    packets = _IDLE_PACKETS_PER_S + throttled * conditions.packets_per_s
    cpu = _IDLE_CPU_PERCENT + pods * POD_CPU_PERCENT + throttled * conditions.cpu_percent
    columns = {
        "cpu_percent": measured(cpu),
        "memory_percent": measured(_IDLE_MEMORY_PERCENT + pods * _POD_MEMORY_PERCENT),
        "packets_sent_per_s": measured(packets),
        "packets_received_per_s": measured(packets),
        "disk_bytes_per_s": measured(np.full(len(names), _IDLE_DISK_BYTES_PER_S)),
        "bandwidth_mbps": measured(np.where(throttled, conditions.link_mbps, FREE_MBPS)),
    }
    errors = conditions.noise * np.stack([columns[name] for name in METRICS], axis=1)
    return replace(NodeMetrics.of(columns), errors=errors)


def delivery_s(counts: Sequence[int], size_mb: float) -> float:
    """Seconds until the last container has sent `size_mb` MB to the master; all start at once.

    counts: containers on each worker, in the order of WORKERS. The containers of a worker share
    its link, and all share the master's link, max-min fairly.
    """
    on = {name: count for name, count in zip(WORKERS, counts, strict=True) if count}
    left_mbit = dict.fromkeys(on, size_mb * 8)  # of each container of the worker
    now_s = 0.0
    while left_mbit:
        sending = [name for name in left_mbit for _ in range(on[name])]
        limits = [(FREE_MBPS if name == FREE else THROTTLED_MBPS) / on[name] for name in sending]
        rates_mbps = dict(zip(sending, fair_shares(limits, MASTER_MBPS), strict=True))
        ends_s = {name: mbit / rates_mbps[name] for name, mbit in left_mbit.items()}
        first_s = min(ends_s.values())
        now_s += first_s
        left_mbit = {
            name: mbit - first_s * rates_mbps[name]
            for name, mbit in left_mbit.items()
            if ends_s[name] > first_s + _SAME_MOMENT_S
        }
    return now_s


def best_delivery_s(count: int, size_mb: float) -> float:
    """The shortest delivery of any placement of `count` equal containers, by trying all."""
    # A placement is a split of the row of containers at the bars between the workers.
    bars = combinations_with_replacement(range(count + 1), len(WORKERS) - 1)
    placements = (tuple(b - a for a, b in pairwise((0, *bar, count))) for bar in bars)
    return min(delivery_s(counts, size_mb) for counts in placements)
