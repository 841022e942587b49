"""What pods are expected to use, and how much of that a board's measurements contain already.

A board reports each ten seconds, and in that time a scheduler places hundreds of pods. So what was
placed since a measurement counts beside it (as in Trimaran of Kubernetes' scheduler-plugins, which
keeps an account of the pods that its metrics do not show yet). Pure; times are seconds on any one
clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import NamedTuple

from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.node_table import NodeTable
from leadline_controller.framework.services import Service, service_of
from leadline_controller.framework.starts import Starts

# kube-scheduler's for a pod without requests: DefaultMilliCPURequest, DefaultMemoryRequest.
_DEFAULT_CPU_CORES, _DEFAULT_MEMORY_BYTES = 0.1, 200 * 1024**2
# Of what is requested, or these defaults. Of pods that use nothing, any number would count as none,
# and a burst of them would go to one board.
_LEAST_SHARE = 0.1


class PodUse(NamedTuple):
    """What a pod uses while it runs; NaN where nothing tells. Packets are those of its board's
    interfaces, disk is input and output together, as in NodeMetrics."""

    cpu_cores: float
    memory_bytes: float
    packets_sent_per_s: float = nan
    packets_received_per_s: float = nan
    disk_bytes_per_s: float = nan

    @property
    def lacks_rates(self) -> bool:
        """Whether nothing tells its packets or its disk."""
        return isnan(self.packets_sent_per_s + self.packets_received_per_s + self.disk_bytes_per_s)


class BoardSize(NamedTuple):
    """What a board has, for values that are shares of it; 0 if unknown."""

    cores: float
    memory_bytes: float

    @classmethod
    def of(cls, table: NodeTable, node: int) -> "BoardSize":
        """The size of the node with this index."""
        amounts = table.nodes[node].allocatable
        return cls(amounts.get(CPU, 0) / 1000, float(amounts.get(MEMORY, 0)))

    def added_by(self, use: PodUse) -> list[float]:
        """What a pod adds to the board's values, in the order of METRICS without the bandwidth; 0
        where nothing tells."""
        cpu = 100.0 * use.cpu_cores / self.cores if self.cores else 0.0
        memory = 100.0 * use.memory_bytes / self.memory_bytes if self.memory_bytes else 0.0
        return [each if each == each else 0.0 for each in (cpu, memory, *use[2:])]

    def use_of(self, added: Sequence[float]) -> PodUse:
        """The pod that adds this much to the board's values, in that order."""
        amounts = (
            share / 100.0 * total if total else nan
            for share, total in zip(added, self, strict=False)
        )
        return PodUse(*amounts, *added[2:])


class Lives(NamedTuple):
    """Of the pods of a workload."""

    ran_s: float  # how long all of them ran together until now, those that still run as well
    ended: int  # how many have ended

    def expected_s(self, prior_s: float) -> float:
        """How long a pod is expected to run: of exponential lives the estimate with the most
        likelihood, all time that was seen over all ends that were seen, so that one that still
        runs counts, too. prior_s: what is expected of a workload without pods; it counts as one
        pod that ended after so long."""
        return (self.ran_s + prior_s) / (self.ended + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Expectations:
    """What pods are expected to use. Of CPU and memory the first counts that tells: `usage`,
    `learned`, the pod's requests, kube-scheduler's defaults; at least a tenth of the last two.
    Packets and disk are only learned."""

    # Median of the running pods of a workload by the metrics API: cores, and bytes of memory.
    usage: Mapping[Service, tuple[float, float]] = field(default_factory=dict)
    # By how much boards' values grew with each pod of a workload.
    learned: Mapping[Service, PodUse] = field(default_factory=dict)
    lives: Mapping[Service, Lives] = field(default_factory=dict)
    starts: Starts = field(default_factory=Starts)

    def life_s(self, pod: Pod, prior_s: float) -> float:
        """How long this pod is expected to run; prior_s: if nothing is known of its workload."""
        known = self.lives.get(workload_of(pod)) if self.lives else None
        return prior_s if known is None else known.expected_s(prior_s)

    def of(self, pod: Pod) -> PodUse:
        """What this pod is expected to use."""
        learned = _UNKNOWN
        cpu = memory = nan
        if self.usage or self.learned:
            workload = workload_of(pod)
            learned = self.learned.get(workload, _UNKNOWN)
            cpu, memory = self.usage.get(workload, learned[:2])
        stated_cpu = pod.requests.get(CPU, 0) / 1000 or _DEFAULT_CPU_CORES
        stated_memory = float(pod.requests.get(MEMORY, 0) or _DEFAULT_MEMORY_BYTES)
        cpu = stated_cpu if isnan(cpu) else max(cpu, _LEAST_SHARE * stated_cpu)
        memory = stated_memory if isnan(memory) else max(memory, _LEAST_SHARE * stated_memory)
        return PodUse(cpu, memory, *learned[2:])


_UNKNOWN = PodUse(nan, nan)


def workload_of(pod: Pod) -> Service:
    """Pods of the same workload are expected to use the same: replicas of one service, else the
    pods of one owner. A pod with neither stands alone."""
    found = service_of(pod)
    if found is None:
        found = pod.namespace, frozenset({("", pod.owner.uid if pod.owner else pod.uid)})
    return found


def contained_share(start_s: float, end_s: float, measured_s: float, interval_s: float) -> float:
    """How much of a pod that ran from `start_s` to `end_s` is in a mean over the `interval_s`
    seconds before `measured_s`: the share of that time in which it ran, 0 to 1. An interval of 0
    is a reading at one moment."""
    if interval_s <= 0:
        return float(start_s <= measured_s < end_s)
    ran_s = min(end_s, measured_s) - max(start_s, measured_s - interval_s)
    return min(max(ran_s / interval_s, 0.0), 1.0)
