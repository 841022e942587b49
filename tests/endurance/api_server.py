"""The API server of a simulated cluster, and the connections of controllers to it.

The cluster in memory answers as the real API server (tests/contracts/test_cluster.py). Here it has
outages, and each connection takes time, breaks, and tells the bookkeeper what crosses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from random import Random

from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    Event,
    Fence,
    LeaseRecord,
    NodeChanged,
    NodeDeleted,
    NotLeadingError,
    PodChanged,
    PodDeleted,
    Relisted,
    UnavailableError,
    Workload,
)
from leadline_lab.demo_cluster import DemoCluster

from tests.endurance.bookkeeper import Bookkeeper, NodeFacts, PodFacts
from tests.endurance.loop import SimulatedLoop
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_lease import MemoryLease

APART = "apart"
REASONS = ("FailedScheduling", "FailedBinding")
# What ends a watch; no node has this name.
_ENDED: ClusterChange = NodeDeleted("")


class SimulatedApiServer(MemoryCluster):
    """The cluster, with outages. Its users go through it, so that the bookkeeper knows. on_bound:
    told of each pod that is bound, by namespace/name, and of its node."""

    def __init__(self, book: Bookkeeper, loop: SimulatedLoop) -> None:
        super().__init__()
        self.book = book
        self.loop = loop
        self.on_bound: Callable[[str, str], None] = lambda _pod, _node: None
        self.is_up = True
        self.lease = MemoryLease()

    def stop(self) -> None:
        """It answers nobody, and all watches end."""
        self.is_up = False
        self.end_watches()

    def start(self) -> None:
        """It answers again; nothing is lost."""
        self.is_up = True

    def end_watches(self) -> None:
        """All watches end, and begin with a new list."""
        self._notify(_ENDED)

    def found_pod(self, key: str) -> Pod | None:
        """The pod of that namespace/name."""
        return self._pods.get(key)

    def found_node(self, name: str) -> Node | None:
        """The node of that name."""
        return self._nodes.get(name)

    def found_workload(self, name: str) -> Workload:
        """The Deployment of that name in the namespace default. Raises KeyError."""
        return self._workloads[f"default/{name}"]

    def put_node(self, node: Node) -> None:
        super().put_node(node)
        self.book.node_is(
            node.name,
            NodeFacts(node.allocatable, node.labels, node.ready and not node.unschedulable),
        )

    def remove_node(self, name: str) -> None:
        super().remove_node(name)
        self.book.node_gone(name)

    def create(self, pod: Pod) -> None:
        """A user creates a pod."""
        requests = {key: pod.requests.get(key, 0) for key in (CPU, MEMORY)}
        facts = PodFacts(
            pod.key,
            {**requests, PODS: 1},
            pod.node_selector,
            tuple(port.port for port in pod.host_ports),
            pod.labels.get(APART, ""),
        )
        self.book.created(pod.uid, facts, self.loop.now_s)
        self.put_pod(pod)

    def delete(self, key: str) -> None:
        """A user deletes a pod, which may be gone."""
        pod = self._pods.get(key)
        if pod is not None:
            self.book.gone(pod.uid)
            self.remove_pod(key)

    async def evict(self, pod: Pod) -> None:
        await super().evict(pod)
        if pod.key not in self._pods:
            self.book.gone(pod.uid)

    async def bind(self, pod: Pod, node: str) -> None:
        await super().bind(pod, node)
        self.book.bound(pod.uid, node, self.loop.now_s)
        self.on_bound(pod.key, node)


class Connection(DemoCluster):
    """One controller's way to the API server: ports Cluster and LeaseStore. fence: see
    KubeCluster.fenced. A process that was killed has no connection any more: `cut`."""

    def __init__(self, server: SimulatedApiServer, name: str, random: Random) -> None:
        super().__init__()
        self._server, self._name, self._random = server, name, random
        self._is_cut = False
        self.fence: Fence | None = None

    def cut(self) -> None:
        """What the process sends from now on arrives nowhere."""
        self._is_cut = True
        self._server.book.ended(self._name)

    async def watch(self) -> AsyncGenerator[ClusterChange, None]:
        while True:
            if not self._is_reachable():
                await asyncio.sleep(self._random.uniform(1.0, 5.0))
                continue
            async with aclosing(self._server.watch()) as changes:
                async for change in changes:
                    if change is _ENDED:
                        break
                    if self._random.random() < 0.05:
                        await asyncio.sleep(self._random.uniform(0.0, 0.05))
                    self._tell(change)
                    yield change
            await asyncio.sleep(self._random.uniform(0.0, 3.0))

    def _tell(self, change: ClusterChange) -> None:
        """Tell the bookkeeper what the controller is shown."""
        book, name, now_s = self._server.book, self._name, self._server.loop.now_s
        match change:
            case PodChanged(pod):
                book.pod_shown(name, pod.uid, pod.node_name)
            case PodDeleted(pod):
                book.pod_shown(name, pod.uid, None)
            case NodeChanged(node):
                usable = node.ready and not node.unschedulable
                book.node_shown(name, node.name, is_usable=usable, now_s=now_s)
            case NodeDeleted(node_name):
                book.node_shown(name, node_name, is_usable=False, now_s=now_s)
            case Relisted(nodes, pods):
                usable_nodes = (n.name for n in nodes if n.ready and not n.unschedulable)
                bound = {pod.uid: pod.node_name for pod in pods if pod.node_name}
                book.listed(name, usable_nodes, bound, now_s)
            case _:
                pass

    async def bind(self, pod: Pod, node: str) -> None:
        await self._request(fenced=True)
        self._server.book.asked(self._name, pod.uid, node, self._server.loop.now_s)
        await self._server.bind(pod, node)
        await self._answer()

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        await self._request()
        if isinstance(about, Pod) and event.reason in REASONS:
            self._server.book.explained(about.uid, event.message)
        self._server.book.counts[f"events {event.reason}"] += 1

    async def evict(self, pod: Pod) -> None:
        await self._request(fenced=True)
        await self._server.evict(pod)
        await self._answer()

    async def read_notes(self) -> Mapping[str, str]:
        await self._request()
        return await self._server.read_notes()

    async def write_note(self, key: str, text: str | None) -> None:
        await self._request(fenced=True)
        await self._server.write_note(key, text)
        await self._answer()

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        await self._request(fenced=True)
        await self._server.annotate(pod, annotations)

    # The Lease.

    async def read(self) -> LeaseRecord | None:
        await self._request()
        return await self._server.lease.read()

    async def write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        await self._request()
        record = await self._server.lease.write(holder, duration_s, over)
        self._server.book.lease_written(holder, duration_s, self._server.loop.now_s)
        await self._answer()
        return record

    async def follow(self) -> AsyncGenerator[str, None]:
        await self._request()
        async with aclosing(self._server.lease.follow()) as holders:
            async for holder in holders:
                if not self._is_reachable():
                    raise UnavailableError("the connection has ended")
                yield holder

    # The way there and back.

    def _is_reachable(self) -> bool:
        return self._server.is_up and not self._is_cut

    async def _request(self, *, fenced: bool = False) -> None:
        """A request is on its way."""
        if fenced and self.fence is not None and self.fence.left_s() <= 0:
            raise NotLeadingError("the Lease has expired; nothing is sent")
        await asyncio.sleep(self._random.uniform(0.001, 0.01))
        if not self._is_reachable():
            raise UnavailableError("no connection")

    async def _answer(self) -> None:
        """An answer is on its way; it is lost if the connection breaks."""
        await asyncio.sleep(self._random.uniform(0.001, 0.01))
        if not self._is_reachable():
            raise UnavailableError("the connection broke before the answer came")
