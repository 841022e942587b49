"""The Cluster port against a real API server."""

from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType
from typing import Self

from leadline_controller.core.model import Pod
from leadline_controller.core.ports import ClusterChange, PodEvent
from leadline_controller.core.storage import VolumePlan
from leadline_controller.kube.bind import bind
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.connection import Login
from leadline_controller.kube.events import EventRecorder
from leadline_controller.kube.volumes import prepare
from leadline_controller.kube.watch import watch_cluster


class KubeCluster:
    """A Kubernetes cluster; see core.ports.Cluster.

        async with KubeCluster(Path("kubeconfig")) as cluster: ...

    kubeconfig: None inside a pod, for the pod's service account. context: None for the current
    one. Entering raises KubeConfigError and makes no request: an API server that isn't there
    yet is waited for by `watch`.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._login = Login(kubeconfig, context)
        self._server: ApiServer | None = None
        self._events: EventRecorder | None = None

    async def __aenter__(self) -> Self:
        self._server = await ApiServer.connect(self._login)
        self._events = EventRecorder(self._server)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._opened().close()

    def watch(self) -> AsyncGenerator[ClusterChange, None]:
        """What there is, then every change, for ever. Reconnects by itself and says so."""
        return watch_cluster(self._opened())

    async def prepare(self, plan: VolumePlan) -> None:
        """Reserve the plan's volumes and annotate its claims; see core.ports.Cluster."""
        await prepare(self._opened(), plan)

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind exactly this pod (by uid) to a node. Raises ClusterError's kinds.

        The API server does not look whether the node exists.
        """
        await bind(self._opened(), pod, node)

    async def record_event(self, pod: Pod, event: PodEvent) -> None:
        """Write an event on a pod; see EventRecorder. Raises ClusterError's kinds."""
        if self._events is None:
            raise RuntimeError("KubeCluster is used outside `async with`")
        await self._events.record(pod, event)

    def _opened(self) -> ApiServer:
        if self._server is None:
            raise RuntimeError("KubeCluster is used outside `async with`")
        return self._server
