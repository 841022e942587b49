"""A cluster in memory that answers like the API server, and fails when a test wants it to."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from leadline_controller.framework.cluster_objects import (
    Claim,
    ClusterObject,
    DisruptionBudget,
    Volume,
    VolumePlan,
)
from leadline_controller.framework.model import CPU, MEMORY, ContainerResources, Node, Owner, Pod
from leadline_controller.framework.ports import (
    BudgetError,
    ClusterError,
    ConflictError,
    Event,
    InvalidError,
    NodeChanged,
    NodeDeleted,
    NotFoundError,
    ObjectChanged,
    ObjectDeleted,
    PodDeleted,
    Relisted,
    StorageChangedError,
    UnavailableError,
    Workload,
)
from leadline_controller.framework.quantity import parse_quantity
from leadline_controller.framework.selectors import selects
from leadline_lab.demo_cluster import DemoCluster


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event on a pod or node, and its count."""

    about: Pod | Node
    event: Event
    count: int = 1


class MemoryCluster(DemoCluster):
    """Nodes, pods, volumes and events in memory; see framework.ports.Cluster."""

    def __init__(self, nodes: Iterable[Node] = (), pods: Iterable[Pod] = ()) -> None:
        super().__init__(nodes)
        self._objects: dict[tuple[type, str], ClusterObject] = {}
        self._events: dict[tuple[str, Event], RecordedEvent] = {}
        self._bind_errors: deque[ClusterError] = deque()
        self._event_errors: deque[Exception] = deque()
        self._workloads: dict[str, Workload] = {}
        self._above: dict[str, str] = {}  # namespace/ReplicaSet -> namespace/Deployment
        self._versions = count(1)
        for pod in pods:
            self.put_pod(pod)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods."""
        return tuple(self._pods.values())

    @property
    def events(self) -> tuple[RecordedEvent, ...]:
        """All recorded events, aggregated, oldest first."""
        return tuple(self._events.values())

    def put_node(self, node: Node) -> None:
        """Add a node, or replace the one of that name."""
        self._nodes[node.name] = node
        self._notify(NodeChanged(node))

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods stay, as in Kubernetes. Raises KeyError."""
        del self._nodes[name]
        self._notify(NodeDeleted(name))

    def remove_pod(self, key: str) -> None:
        """Remove the pod of that namespace/name. Raises KeyError."""
        self._notify(PodDeleted(self._pods.pop(key)))

    def put_object(self, made: ClusterObject) -> None:
        """Add a namespace or a storage object, or replace the one of that type and key."""
        self._objects[type(made), made.key] = made
        self._notify(ObjectChanged(made))

    def remove_object(self, made: ClusterObject) -> None:
        """Remove the object of that type and key. Raises KeyError."""
        self._notify(ObjectDeleted(self._objects.pop((type(made), made.key))))

    def relist(self) -> None:
        """Send every watch the whole state again, as after a lost connection."""
        self._notify(self._relisted())

    def fail_next_bind(self, error: ClusterError) -> None:
        """Let the next bind raise `error` and do nothing; repeated calls queue up."""
        self._bind_errors.append(error)

    def fail_next_event(self, error: Exception) -> None:
        """The same for record_event."""
        self._event_errors.append(error)

    def put_workload(self, workload: Workload, replica_set: str) -> Workload:
        """Add a Deployment, or replace the one of that name. Returns it with a new version."""
        made = replace(workload, version=str(next(self._versions)))
        self._workloads[made.key] = made
        self._above[f"{made.namespace}/{replica_set}"] = made.key
        return made

    async def evict(self, pod: Pod) -> None:
        """Evict exactly this pod, if it is not ready or its budgets allow it. It terminates until
        it is removed; one that is not bound goes at once."""
        current = self._found(pod)
        budgets = [
            each
            for each in self._objects.values()
            if isinstance(each, DisruptionBudget)
            and each.namespace == pod.namespace
            and selects(each.selector, current.labels)
        ]
        if current.terminating:
            return
        if len(budgets) > 1 and current.ready:
            raise UnavailableError("500: This pod has more than one PodDisruptionBudget")
        for budget in budgets if current.ready else ():
            if budget.allowed < 1:
                raise BudgetError(
                    "Cannot evict pod as it would violate the pod's disruption budget."
                )
            self.put_object(replace(budget, allowed=budget.allowed - 1))
        if current.node_name:
            self.put_pod(replace(current, terminating=True))
        else:
            self.remove_pod(pod.key)

    async def nominate(self, pod: Pod, node: str | None) -> None:
        """Nominate exactly this pod. Raises ClusterError."""
        self.put_pod(replace(self._found(pod), nominated_node=node))

    async def preempt(self, pod: Pod, message: str) -> None:  # nobody reads it here
        """Delete exactly this pod, whatever its budgets say. It terminates until it is removed; one
        that is not bound goes at once."""
        current = self._found(pod)
        if current.node_name:
            self.put_pod(replace(current, terminating=True, preempted=True))
        else:
            self.remove_pod(pod.key)

    async def deployment(self, namespace: str, owner: Owner) -> Workload | None:
        """The Deployment of a ReplicaSet, or of that name."""
        key = f"{namespace}/{owner.name}"
        if owner.kind == "ReplicaSet":
            key = self._above.get(key, "")
        return self._workloads.get(key) if owner.kind in ("ReplicaSet", "Deployment") else None

    async def scale(self, over: Workload, replicas: int, extra: str | None) -> Workload:
        """Set replicas and annotation together, if nobody else changed the Deployment."""
        current = self._workloads.get(over.key)
        if current is None:
            raise NotFoundError(f"404: deployment {over.key} not found")
        if current.version != over.version:
            raise ConflictError(f"409: deployment {over.key} has been modified")
        made = replace(current, replicas=replicas, extra=extra, version=str(next(self._versions)))
        self._workloads[over.key] = made
        return made

    async def resize(self, pod: Pod, containers: Sequence[ContainerResources]) -> None:
        """Set the pod's requests to those of its containers; whether its kubelet can do it is for
        the test to say."""
        current = self._found(pod, InvalidError)
        requests = dict(current.requests)
        for resource, per_unit in ((CPU, 1000), (MEMORY, 1)):
            given = (each.requests.get(resource) for each in containers)
            amounts = [parse_quantity(text, per_unit=per_unit) for text in given if text]
            if amounts:
                requests[resource] = sum(amounts)
        self.put_pod(replace(current, requests=requests))

    def _found(self, pod: Pod, wrong_uid: type[ClusterError] = ConflictError) -> Pod:
        current = self._pods.get(pod.key)
        if current is None:
            raise NotFoundError(f"404: pod {pod.key} not found")
        if current.uid != pod.uid:
            raise wrong_uid(f"pod {pod.key} has another uid: {current.uid}")
        return current

    async def prepare(self, plan: VolumePlan) -> None:
        """Reserve the plan's volumes and annotate its claims; see framework.ports.Cluster."""
        for name, key in plan.binds:
            claim, volume = self._claim(key), self._objects.get((Volume, name))
            if not isinstance(volume, Volume):
                raise StorageChangedError(f"404: volume {name} not found")
            if claim.terminating or claim.volume not in ("", name):
                raise StorageChangedError(f"claim {key} is no longer free")
            if volume.terminating or not (volume.claim is None or volume.is_reserved_for(claim)):
                raise StorageChangedError(f"volume {name} is no longer free")
            if not volume.claim_uid:
                self.put_object(replace(volume, claim=key, claim_uid=claim.uid))
        for key in plan.selects:
            claim = self._claim(key)
            if claim.selected_node == plan.node:
                continue
            if claim.terminating or claim.volume or claim.selected_node:
                raise StorageChangedError(f"claim {key} is no longer free")
            self.put_object(replace(claim, selected_node=plan.node))

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind exactly this pod (by uid) to a node. Raises ClusterError. Like the API server, it
        does not check that the node exists."""
        if self._bind_errors:
            raise self._bind_errors.popleft()
        current = self._pods.get(pod.key)
        if current is None:
            raise NotFoundError(f"404: pod {pod.key} not found")
        if conflict := _conflict(current, pod.uid):
            raise ConflictError(f"409: pod {pod.key} {conflict}")
        await super().bind(pod, node)

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        """Write an event on a pod or node. Repeated events are aggregated."""
        if self._event_errors:
            raise self._event_errors.popleft()
        uid = about.uid if isinstance(about, Pod) else about.name
        known = self._events.get((uid, event))
        if known is None or not event.once:
            count = known.count + 1 if known else 1
            self._events[uid, event] = RecordedEvent(about, event, count)

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Set or remove annotations of exactly this pod (by uid). Raises ClusterError."""
        self._found(pod)
        await super().annotate(pod, annotations)

    def _relisted(self) -> Relisted:
        return Relisted(self.nodes, self.pods, tuple(self._objects.values()))

    def _claim(self, key: str) -> Claim:
        claim = self._objects.get((Claim, key))
        if not isinstance(claim, Claim):
            raise StorageChangedError(f"404: claim {key} not found")
        return claim


def _conflict(pod: Pod, uid: str) -> str | None:
    if pod.uid != uid:
        return f"has another uid: {pod.uid}"
    if pod.node_name:
        return f"is already assigned to node {pod.node_name}"
    if pod.terminating:
        return "is being deleted"
    if pod.gated:
        return "has scheduling gates"
    return None
