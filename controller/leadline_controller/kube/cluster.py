"""The Cluster port against a real API server.

Claims and volumes are changed as kube-scheduler changes them. Each object is read, checked, and
changed only while it is as it was read (resourceVersion), so a change by somebody else is never
overwritten. The cluster's controllers do the rest.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from leadline_controller.framework.cluster_objects import VolumePlan
from leadline_controller.framework.model import ContainerResources, Node, Owner, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    ConflictError,
    Event,
    Fence,
    ImagePull,
    InvalidError,
    Leadership,
    NotFoundError,
    PodUsage,
    StorageChangedError,
    Workload,
)
from leadline_controller.kube.client import ApiServer, Json, pod_path
from leadline_controller.kube.connection import Login
from leadline_controller.kube.events import EventSink
from leadline_controller.kube.issuing import Issuer
from leadline_controller.kube.lease import KubeLease
from leadline_controller.kube.notes import Notes
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.kube.reflector import watch_cluster, watch_pulls
from leadline_controller.kube.signing import IssuingSettings
from leadline_controller.kube.usage import pod_usage
from leadline_controller.kube.workloads import Workloads
from leadline_controller.kubeobjects.cluster_objects import read_claim, read_volume
from leadline_controller.kubeobjects.manifest import PREEMPTED
from leadline_controller.kubeobjects.schema import Named
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

# Short, so that a renewal can be tried again before its deadline.
_LEASE_TIMEOUT_S = 3.5
_USAGE_TIMEOUT_S = 15.0
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_ATTEMPTS = 3


class KubeCluster:
    """A Kubernetes cluster; see framework.ports.Cluster.

        async with KubeCluster.connect(Path("kubeconfig")) as cluster: ...

    lease: the Lease for which this cluster's controllers compete. reachability: which requests
    fail now, and when the API server answered last.
    """

    def __init__(
        self, server: ApiServer, lease_server: ApiServer, usage_server: ApiServer | None = None
    ) -> None:
        self._server = server
        # Of its own, because who answers there is not the API server: no other request is to wait
        # for a long answer, nor because that server asks to be left alone for a while.
        self._usage_server = usage_server or server
        self.reachability = ReachabilityLog(server.url)
        self._events = EventSink(server)
        self._fence: Fence | None = None
        self._workloads = Workloads(server)
        self._notes = Notes(server)
        self.lease = KubeLease(lease_server, self.reachability)

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path | None = None) -> AsyncIterator["KubeCluster"]:
        """A cluster to use in the context. kubeconfig: None inside a pod, for the pod's service
        account. Raises KubeConfigError and makes no request; `watch` waits for an API server that
        is not there yet."""
        login = Login(kubeconfig)
        async with (
            ApiServer.connect(login) as server,
            ApiServer.connect(login, _LEASE_TIMEOUT_S) as lease_server,
            ApiServer.connect(login, _USAGE_TIMEOUT_S) as usage_server,
        ):
            yield cls(server, lease_server, usage_server)

    def fenced(self, fence: Fence) -> "KubeCluster":
        """The same cluster, which binds and annotates pods, and writes volumes, only before the
        fence closes."""
        fenced = copy(self)
        fenced._fence = fence
        return fenced

    @property
    def cert_file(self) -> Path | None:
        """The client certificate of the kubeconfig, if it has one."""
        return self._server.cert_file

    def watch(self) -> AsyncGenerator[ClusterChange, None]:
        """All objects, then every change, for ever. Reconnects by itself and logs it."""
        return watch_cluster(self._server, reachability=self.reachability)

    def watch_pulls(self) -> AsyncGenerator[ImagePull, None]:
        """Every image pull that a kubelet reports; see reflector.watch_pulls."""
        return watch_pulls(self._server, self.reachability)

    async def pod_usage(self) -> Sequence[PodUsage]:
        """What each running pod uses; see framework.ports.UsageSource."""
        return await pod_usage(self._usage_server)

    async def issue(
        self,
        settings: IssuingSettings,
        leadership: Leadership,
        nodes: Callable[[], Collection[str] | None],
    ) -> None:
        """Answer agents' requests for certificates, until cancelled; see Issuer."""
        await Issuer(self._server, self.reachability, settings, leadership, nodes).run()

    async def read_secret(self, key: str) -> bytes:
        """A secret, as JSON, by namespace/name. Raises subclasses of ClusterError."""
        namespace, _, name = (quote(part, safe="") for part in key.partition("/"))
        return await self._server.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        """Write an event; see EventSink. Raises subclasses of ClusterError."""
        await self._events.record(about, event)

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind exactly this pod. Raises subclasses of ClusterError.

        The uid protects a new pod of the same name. The API server does not check whether the node
        exists.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._server.post(f"{pod_path(pod)}/binding", body, self._fence)

    async def evict(self, pod: Pod) -> None:
        """Evict exactly this pod; see framework.ports.Cluster."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        await self._server.post(f"{pod_path(pod)}/eviction", body, self._fence)

    async def nominate(self, pod: Pod, node: str | None) -> None:
        """Set or remove the nominated node of exactly this pod; see framework.ports.Cluster."""
        await self._patch_pod(pod, "/status", {"status": {"nominatedNodeName": node}})

    async def preempt(self, pod: Pod, message: str) -> None:
        """Delete exactly this pod, as kube-scheduler does; see framework.ports.Cluster. The
        condition comes first, so that whoever sees the pod end sees why."""
        condition = {"type": "DisruptionTarget", "status": "True", "reason": PREEMPTED}
        condition |= {"message": message, "lastTransitionTime": _seconds()}
        await self._patch_pod(pod, "/status", {"status": {"conditions": [condition]}}, by_name=True)
        await self._server.delete(pod_path(pod), pod.uid, self._fence)

    async def deployment(self, namespace: str, owner: Owner) -> Workload | None:
        """The Deployment of a ReplicaSet; see framework.ports.Cluster."""
        return await self._workloads.deployment(namespace, owner)

    async def scale(self, over: Workload, replicas: int, extra: str | None) -> Workload:
        """Set replicas and annotation together; see framework.ports.Cluster."""
        return await self._workloads.scale(over, replicas, extra, self._fence)

    async def resize(self, pod: Pod, containers: Sequence[ContainerResources]) -> None:
        """Resize exactly this pod's containers in place; see framework.ports.Cluster."""
        spec: dict[str, list[Json]] = {}
        for each in containers:
            resources = {"requests": dict(each.requests), "limits": dict(each.limits)}
            kind = "initContainers" if each.is_sidecar else "containers"
            spec.setdefault(kind, []).append({"name": each.container, "resources": resources})
        body = {"metadata": {"uid": pod.uid}, "spec": spec}
        await self._server.patch(f"{pod_path(pod)}/resize", body, self._fence, by_name=True)

    async def read_notes(self) -> Mapping[str, str]:
        """The notes in the ConfigMap kube-system/leadline-rescheduling."""
        return await self._notes.read()

    async def write_note(self, key: str, text: str | None) -> None:
        """Replace or remove a note in the ConfigMap kube-system/leadline-rescheduling."""
        await self._notes.write(key, text, self._fence)

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Set or remove annotations of exactly this pod; see framework.ports.Cluster."""
        await self._patch_pod(pod, "", {"metadata": {"annotations": dict(annotations)}})

    async def _patch_pod(
        self, pod: Pod, subresource: str, change: Json, *, by_name: bool = False
    ) -> None:
        body = {**change, "metadata": {**change.get("metadata", {}), "uid": pod.uid}}
        path = pod_path(pod) + subresource
        try:
            await self._server.patch(path, body, self._fence, by_name=by_name)
        except InvalidError as error:
            if "metadata.uid" not in str(error):  # which is immutable: it is another pod
                raise
            raise ConflictError(str(error)) from None

    async def prepare(self, plan: VolumePlan) -> None:
        """Reserve the plan's volumes and annotate its claims; see framework.ports.Cluster."""
        try:
            for name, key in plan.binds:
                await self._reserve_volume(name, key)
            for key in plan.selects:
                await self._select_node(key, plan.node)
        except (NotFoundError, FieldError) as error:
            raise StorageChangedError(str(error)) from None

    async def _reserve_volume(self, name: str, key: str) -> None:
        path = f"/api/v1/persistentvolumes/{quote(name, safe='')}"
        for _ in range(_ATTEMPTS):
            claim = read_claim(await self._server.get(_claim_path(key)))
            manifest = await self._server.get(path)
            volume = read_volume(manifest)
            if claim.terminating or claim.volume not in ("", name):
                raise StorageChangedError(f"claim {key} is no longer free")
            if volume.terminating or not (volume.claim is None or volume.is_reserved_for(claim)):
                raise StorageChangedError(f"volume {name} is no longer free")
            if volume.claim_uid:
                return
            reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": claim.uid}
            reference |= {"namespace": claim.namespace, "name": claim.name}
            # A volume that a person reserved stays reserved when the claim is deleted.
            annotations = {_BOUND_BY_CONTROLLER: "yes"} if volume.claim is None else {}
            change = {"spec": {"claimRef": reference}}
            if await self._patch_unchanged(path, manifest, annotations, change):
                return
        raise StorageChangedError(f"volume {name} keeps changing")

    async def _select_node(self, key: str, node: str) -> None:
        path = _claim_path(key)
        for _ in range(_ATTEMPTS):
            manifest = await self._server.get(path)
            claim = read_claim(manifest)
            if claim.selected_node == node:
                return
            if claim.terminating or claim.volume or claim.selected_node:
                raise StorageChangedError(f"claim {key} is no longer free")
            annotations = {_SELECTED_NODE: node}
            if await self._patch_unchanged(path, manifest, annotations, {}):
                return
        raise StorageChangedError(f"claim {key} keeps changing")

    async def _patch_unchanged(
        self, path: str, manifest: bytes, annotations: dict[str, str], change: Json
    ) -> bool:
        """Change an object that still is as `manifest` says. False when it is not."""
        now = decode(manifest, Named, path).metadata
        version = {"uid": now.uid, "resourceVersion": now.resource_version}
        body = {"metadata": {**version, "annotations": annotations}, **change}
        try:
            await self._server.patch(path, body, self._fence)
        except ConflictError:  # 409
            return False
        return True


def _seconds() -> str:
    """The time as a Time of the API."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _claim_path(key: str) -> str:
    namespace, _, name = (quote(part, safe="") for part in key.partition("/"))
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
