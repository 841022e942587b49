"""A cluster in memory for the demo."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from leadline_controller.framework.cluster_objects import VolumePlan
from leadline_controller.framework.model import ContainerResources, Node, Owner, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    Event,
    PodChanged,
    PodDeleted,
    Relisted,
    Workload,
)
from leadline_controller.kubeobjects.manifest import DELETION_COST


class DemoCluster:
    """Nodes and pods in memory; see framework.ports.Cluster. Every watch gets every change, in
    order."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._uids = count(1)
        self._nodes = {node.name: node for node in nodes}
        self._pods: dict[str, Pod] = {}
        self._notes: dict[str, str] = {}
        self._watches: list[asyncio.Queue[ClusterChange]] = []

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return tuple(self._nodes.values())

    def pod(self, key: str) -> Pod:
        """The pod of that namespace/name. Raises KeyError."""
        return self._pods[key]

    def put_pod(self, pod: Pod) -> Pod:
        """Add a pod, or replace the one of that name. Returns it with a uid."""
        if not pod.uid:
            pod = replace(pod, uid=f"uid-{next(self._uids)}")
        self._pods[pod.key] = pod
        self._notify(PodChanged(pod))
        return pod

    async def watch(self) -> AsyncGenerator[ClusterChange, None]:
        """Yields Relisted, then every change, forever."""
        changes: asyncio.Queue[ClusterChange] = asyncio.Queue()
        changes.put_nowait(self._relisted())
        self._watches.append(changes)
        try:
            while True:
                yield await changes.get()
        finally:
            self._watches.remove(changes)

    async def prepare(self, plan: VolumePlan) -> None:
        """Nothing: the demo's pods have no volumes."""

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind the pod of that name to a node."""
        self.put_pod(replace(self._pods[pod.key], node_name=node))

    async def evict(self, pod: Pod) -> None:
        """Remove the pod at once; the demo's pods have no owners."""
        del self._pods[pod.key]
        self._notify(PodDeleted(pod))

    async def nominate(self, pod: Pod, node: str | None) -> None:
        """Nominate the pod of that name for a node."""
        self.put_pod(replace(self._pods[pod.key], nominated_node=node))

    async def preempt(self, pod: Pod, message: str) -> None:  # noqa: ARG002  # the port's
        """Remove the pod at once."""
        await self.evict(pod)

    async def deployment(self, namespace: str, owner: Owner) -> Workload | None:  # noqa: ARG002  # the port's
        """None: the demo has no Deployments."""
        return None

    async def scale(self, over: Workload, replicas: int, extra: str | None) -> Workload:  # noqa: ARG002  # the port's
        """Nothing: the demo has no Deployments."""
        return over

    async def resize(self, pod: Pod, containers: Sequence[ContainerResources]) -> None:
        """Nothing: the demo's pods are never resized."""

    async def read_notes(self) -> Mapping[str, str]:
        """What `write_note` was given."""
        return dict(self._notes)

    async def write_note(self, key: str, text: str | None) -> None:
        """Replace one note, or remove it."""
        if text is None:
            self._notes.pop(key, None)
        else:
            self._notes[key] = text

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        """Nothing: nobody reads the demo's events."""

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the pod of that name; of all, only the deletion cost can be seen."""
        if DELETION_COST in annotations:
            text = annotations[DELETION_COST]
            cost = None if text is None else int(text)
            self.put_pod(replace(self._pods[pod.key], deletion_cost=cost))

    def _relisted(self) -> Relisted:
        return Relisted(self.nodes, tuple(self._pods.values()))

    def _notify(self, change: ClusterChange) -> None:
        for changes in self._watches:
            changes.put_nowait(change)
