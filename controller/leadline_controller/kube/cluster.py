"""The Cluster port against a real API server."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import Cluster, ClusterChange, Fence, LeaseStore, PodEvent
from leadline_controller.framework.storage import VolumePlan
from leadline_controller.kube.bind import bind
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.connection import Login
from leadline_controller.kube.contact import Contact
from leadline_controller.kube.events import EventRecorder
from leadline_controller.kube.lease import KubeLease
from leadline_controller.kube.volumes import prepare
from leadline_controller.kube.watch import watch_cluster

Part = TypeVar("Part")
# A renewal that takes longer is asked anew while there still is time for it.
_LEASE_REQUEST_S = 3.5


class KubeCluster:
    """A Kubernetes cluster; see core.ports.Cluster.

        async with KubeCluster(Path("kubeconfig")) as cluster: ...

    kubeconfig: None inside a pod, for the pod's service account. context: None for the current
    one. Entering raises KubeConfigError and makes no request: an API server that isn't there
    yet is waited for by `watch`.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._login = Login(kubeconfig, context)
        self._closing = AsyncExitStack()
        self._server: ApiServer | None = None
        self._contact: Contact | None = None
        self._events: EventRecorder | None = None
        self._lease: KubeLease | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            server = await ApiServer.connect(self._login)
            opening.push_async_callback(server.close)
            lease_server = await ApiServer.connect(self._login, _LEASE_REQUEST_S)
            opening.push_async_callback(lease_server.close)
            self._closing = opening.pop_all()
        self._server = server
        self._contact = Contact(server.url)
        self._events = EventRecorder(server)
        self._lease = KubeLease(lease_server, self._contact)
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
        """The Lease by which this cluster's controllers agree."""
        return _opened(self._lease)

    def watch(self) -> AsyncGenerator[ClusterChange, None]:
        """What there is, then every change, for ever. Reconnects by itself and says so."""
        return watch_cluster(_opened(self._server), contact=self._contact)

    async def prepare(self, plan: VolumePlan, fence: Fence | None = None) -> None:
        """Reserve the plan's volumes and annotate its claims; see core.ports.Cluster."""
        await prepare(_opened(self._server), plan, fence)

    async def bind(self, pod: Pod, node: str, fence: Fence | None = None) -> None:
        """Bind exactly this pod (by uid) to a node. Raises ClusterError's kinds.

        The API server does not look whether the node exists.
        """
        await bind(_opened(self._server), pod, node, fence)

    async def record_event(self, pod: Pod, event: PodEvent) -> None:
        """Write an event on a pod; see EventRecorder. Raises ClusterError's kinds."""
        await _opened(self._events).record(pod, event)

    def fenced(self, fence: Fence) -> Cluster:
        """This cluster for one who may act only before the fence closes."""
        return _Fenced(self, fence)


@dataclass(frozen=True, slots=True)
class _Fenced:
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


def _opened(part: Part | None) -> Part:
    if part is None:
        raise RuntimeError("KubeCluster is used outside `async with`")
    return part
