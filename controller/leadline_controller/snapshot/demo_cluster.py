"""A cluster in memory for the demo."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import replace
from itertools import count

from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import ClusterChange, PodChanged, PodEvent, Relisted
from leadline_controller.framework.resources import VolumePlan
from leadline_controller.kubeobjects.manifest import DELETION_COST


class DemoCluster:
    """Nodes and pods in memory; see framework.ports.Cluster. Every watch gets every change, in
    order."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._uids = count(1)
        self._nodes = {node.name: node for node in nodes}
        self._pods: dict[str, Pod] = {}
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

    async def record_event(self, pod: Pod, event: PodEvent) -> None:
        """Nothing: nobody reads the demo's events."""

    async def annotate(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Set annotations of the pod of that name; of all, only the deletion cost can be seen."""
        cost = int(annotations.get(DELETION_COST, "0"))
        self.put_pod(replace(self._pods[pod.key], deletion_cost=cost))

    def _relisted(self) -> Relisted:
        return Relisted(self.nodes, tuple(self._pods.values()))

    def _notify(self, change: ClusterChange) -> None:
        for changes in self._watches:
            changes.put_nowait(change)
