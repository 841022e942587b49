"""A cluster in memory with the controllers that moves depend on: Deployments, budgets, kubelets.

They act when a test calls `tick`. Every write of the controller under test can fail before or after
it takes effect. The cluster is the witness of what was disrupted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from leadline_controller.framework.cluster_objects import DisruptionBudget
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    ContainerResources,
    Node,
    Owner,
    Pod,
)
from leadline_controller.framework.ports import (
    BudgetError,
    ClusterError,
    ConflictError,
    Fence,
    NotLeadingError,
    UnavailableError,
    Workload,
)
from leadline_controller.framework.selectors import Requirement

from tests.support.memory_cluster import MemoryCluster


@dataclass
class Faults:
    """How often a write fails."""

    random: Random
    before: float = 0.0  # it is not done
    after: float = 0.0  # it is done, and the answer is lost
    refused: float = 0.0  # an eviction is refused as by a budget
    conflict: float = 0.0  # a Deployment was written meanwhile

    def strike(self, share: float) -> bool:
        return self.random.random() < share

    def stop(self) -> None:
        self.before = self.after = self.refused = self.conflict = 0.0


@dataclass
class Witness:
    """What was done to pods. begun: when and of which workload a ready pod was taken away on
    purpose. broken: budgets that were broken by that."""

    begun: list[tuple[float, str]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)


class WorkloadCluster(MemoryCluster):
    """Deployments "d0", "d1" and so on, each with a ReplicaSet and, perhaps, a budget."""

    def __init__(self, nodes: Iterable[Node], faults: Faults, now_s: Callable[[], float]) -> None:
        super().__init__(nodes)
        self.faults = faults
        self.witness = Witness()
        self.wanted: dict[str, int] = {}
        self.lingers = False  # pods that are being deleted stay for now
        self.never_ready: set[str] = set()  # nodes on which no pod becomes ready
        self._now_s = now_s
        self._bound_s: dict[str, float] = {}
        self._autoscaled: set[str] = set()

    def add_workload(self, name: str, replicas: int, least: int | None, *, scaled: bool) -> None:
        """A Deployment; least: its budget's minAvailable, None without a budget. scaled: an
        autoscaler exists."""
        self.wanted[name] = replicas
        made = Workload("default", name, f"uid-{name}", "", replicas, autoscaled=scaled)
        self.put_workload(made, f"{name}-set")
        if least is not None:
            selector = (Requirement("app", "In", (name,)),)
            self.put_object(DisruptionBudget("default", f"{name}:{least}", selector))

    def pods_of(self, name: str) -> list[Pod]:
        """The live pods of a Deployment."""
        return [p for p in self.pods if p.labels.get("app") == name and not p.terminating]

    def healthy(self, name: str) -> int:
        """How many of them are ready."""
        return sum(pod.ready for pod in self.pods_of(name))

    def tick(self) -> None:
        """Let all controllers act once."""
        for pod in self.pods:
            if (pod.terminating and not self.lingers) or (
                pod.node_name and pod.node_name not in self._nodes
            ):
                self.remove_pod(pod.key)
            elif pod.node_name and not pod.ready and pod.node_name not in self.never_ready:
                bound_s = self._bound_s.setdefault(pod.uid, self._now_s())
                if self._now_s() - bound_s >= 2.0:
                    self.put_pod(replace(pod, ready=True))
        for name in self.wanted:
            self._replicate(name)
        self._allow()

    def _replicate(self, name: str) -> None:
        workload = self._workloads[f"default/{name}"]
        live = self.pods_of(name)
        for _ in range(workload.replicas - len(live)):
            number = next(self._versions)
            self.put_pod(
                Pod(
                    "default",
                    f"{name}-{number}",
                    requests={CPU: 500, MEMORY: 2**20, PODS: 1},
                    labels={"app": name},
                    owner=Owner("ReplicaSet", f"{name}-set", f"uid-{name}-set"),
                    created_s=self._now_s() + number / 1e6,
                )
            )
        # As the ReplicaSet controller ranks them: not assigned, not ready, cost, youngest.
        ranked = sorted(
            live,
            key=lambda p: (
                p.node_name is not None,
                p.ready,
                p.deletion_cost or 0,
                -(p.created_s or 0.0),
            ),
        )
        for pod in ranked[: max(len(live) - workload.replicas, 0)]:
            if pod.ready:
                self._disrupted(pod, name)
            self.put_pod(replace(pod, terminating=True))
        healthy = self.healthy(name)
        rolled_out = healthy == len(self.pods_of(name)) == workload.replicas
        if workload.rolled_out != rolled_out:
            self._workloads[workload.key] = replace(
                workload, rolled_out=rolled_out, version=str(next(self._versions))
            )

    def _allow(self) -> None:
        """As the disruption controller: what is healthy beyond minAvailable may go."""
        for budget in [b for b in self._objects.values() if isinstance(b, DisruptionBudget)]:
            name, least = budget.name.split(":")
            allowed = max(self.healthy(name) - int(least), 0)
            if allowed != budget.allowed:
                self.put_object(replace(budget, allowed=allowed))

    def _disrupted(self, pod: Pod, name: str) -> None:
        self.witness.begun.append((self._now_s(), name))
        for budget in self._objects.values():
            if not isinstance(budget, DisruptionBudget):
                continue
            of, least = budget.name.split(":")
            if of == name and self.healthy(name) - 1 < int(least):
                self.witness.broken.append(f"{budget.name} by {pod.name}")


class FaultyApi:
    """The cluster as one controller writes to it: with faults, and only while it leads."""

    def __init__(self, cluster: WorkloadCluster, fence: Fence) -> None:
        self._cluster = cluster
        self._fence = fence
        self.watch = cluster.watch
        self.prepare = cluster.prepare

    async def bind(self, pod: Pod, node: str) -> None:
        self._check("bind")
        await self._cluster.bind(pod, node)
        self._lose()

    async def record_event(self, about: Pod | Node, event: object) -> None: ...

    async def evict(self, pod: Pod) -> None:
        self._check("evict")
        cluster = self._cluster
        if cluster.faults.strike(cluster.faults.refused):
            raise BudgetError("Cannot evict pod as it would violate the pod's disruption budget.")
        before = cluster._pods.get(pod.key)
        await cluster.evict(pod)
        if before is not None and not before.terminating and before.ready:
            cluster._pods[pod.key] = before  # judged as it was
            cluster._disrupted(before, before.labels["app"])
            cluster._pods[pod.key] = replace(before, terminating=True)
        cluster._allow()
        self._lose()

    async def nominate(self, pod: Pod, node: str | None) -> None:
        self._check("nominate")
        await self._cluster.nominate(pod, node)
        self._lose()

    async def preempt(self, pod: Pod, message: str) -> None:
        self._check("preempt")
        await self._cluster.preempt(pod, message)
        self._lose()

    async def deployment(self, namespace: str, owner: Owner) -> Workload | None:
        self._check("read a Deployment")
        return await self._cluster.deployment(namespace, owner)

    async def scale(self, over: Workload, replicas: int, extra: str | None) -> Workload:
        self._check("scale")
        faults = self._cluster.faults
        if faults.strike(faults.conflict):
            raise ConflictError("409: the object has been modified")
        made = await self._cluster.scale(over, replicas, extra)
        self._cluster._workloads[made.key] = replace(made, rolled_out=False)
        self._lose()
        return made

    async def resize(self, pod: Pod, containers: Sequence[ContainerResources]) -> None:
        self._check("resize")
        await self._cluster.resize(pod, containers)
        self._lose()

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        self._check("annotate")
        await self._cluster.annotate(pod, annotations)
        self._lose()

    async def read_notes(self) -> Mapping[str, str]:
        self._check("read notes")
        return await self._cluster.read_notes()

    async def write_note(self, key: str, text: str | None) -> None:
        self._check("write a note")
        await self._cluster.write_note(key, text)
        self._lose()

    def _check(self, step: str) -> None:
        self._cluster.witness.steps[step] += 1
        if self._fence.left_s() <= 0:
            raise NotLeadingError("this controller is no longer the leader")
        if self._cluster.faults.strike(self._cluster.faults.before):
            raise UnavailableError(f"503: no {step} now")

    def _lose(self) -> None:
        if self._cluster.faults.strike(self._cluster.faults.after):
            raise UnavailableError("the connection broke")


__all__ = ["ClusterError", "Faults", "FaultyApi", "WorkloadCluster"]
