"""The Cluster port against a real API server."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import Cluster, ClusterChange, Fence, LeaseStore, PodEvent
from leadline_controller.framework.resources import VolumePlan
from leadline_controller.kube.binding import bind, prepare_volumes
from leadline_controller.kube.client import ApiServer, ReachabilityLog
from leadline_controller.kube.connection import Login
from leadline_controller.kube.events import EventRecorder
from leadline_controller.kube.lease import KubeLease
from leadline_controller.kube.reflector import watch_cluster

# Short, so that a renewal can be tried again before its deadline.
_LEASE_TIMEOUT_S = 3.5


@dataclass(frozen=True, slots=True)
class _Connections:
    server: ApiServer
    reachability: ReachabilityLog
    events: EventRecorder
    lease: KubeLease


class KubeCluster:
    """A Kubernetes cluster; see framework.ports.Cluster.

        async with KubeCluster(Path("kubeconfig")) as cluster: ...

    kubeconfig: None inside a pod, for the pod's service account. context: None for the current
    one. Entering raises KubeConfigError and makes no request; `watch` waits for an API server
    that is not there yet.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._login = Login(kubeconfig, context)
        self._closing = AsyncExitStack()
        self._connections: _Connections | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            server = await ApiServer.connect(self._login)
            opening.push_async_callback(server.close)
            lease_server = await ApiServer.connect(self._login, _LEASE_TIMEOUT_S)
            opening.push_async_callback(lease_server.close)
            self._closing = opening.pop_all()
        reachability = ReachabilityLog(server.url)
        self._connections = _Connections(
            server, reachability, EventRecorder(server), KubeLease(lease_server, reachability)
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._closing.aclose()

    @property
    def lease(self) -> LeaseStore:
        """The Lease for which this cluster's controllers compete."""
        return self._opened.lease

    def watch(self) -> AsyncGenerator[ClusterChange, None]:
        """All objects, then every change, for ever. Reconnects by itself and logs it."""
        return watch_cluster(self._opened.server, reachability=self._opened.reachability)

    async def prepare(self, plan: VolumePlan, fence: Fence | None = None) -> None:
        """Reserve the plan's volumes and annotate its claims; see framework.ports.Cluster."""
        await prepare_volumes(self._opened.server, plan, fence)

    async def bind(self, pod: Pod, node: str, fence: Fence | None = None) -> None:
        """Bind exactly this pod (by uid) to a node. Raises subclasses of ClusterError."""
        await bind(self._opened.server, pod, node, fence)

    async def record_event(self, pod: Pod, event: PodEvent) -> None:
        """Write an event on a pod; see EventRecorder. Raises subclasses of ClusterError."""
        await self._opened.events.record(pod, event)

    def fenced(self, fence: Fence) -> Cluster:
        """The same cluster, which binds pods and writes volumes only before the fence closes."""
        return _FencedCluster(self, fence)

    @property
    def _opened(self) -> _Connections:
        if self._connections is None:
            raise RuntimeError("KubeCluster is used outside `async with`")
        return self._connections


@dataclass(frozen=True, slots=True)
class _FencedCluster:
    cluster: KubeCluster
    fence: Fence

    def watch(self) -> AsyncGenerator[ClusterChange, None]:
        return self.cluster.watch()

    async def prepare(self, plan: VolumePlan) -> None:
        await self.cluster.prepare(plan, self.fence)

    async def bind(self, pod: Pod, node: str) -> None:
        await self.cluster.bind(pod, node, self.fence)

    async def record_event(self, pod: Pod, event: PodEvent) -> None:
        await self.cluster.record_event(pod, event)
