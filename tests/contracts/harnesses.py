"""One way to set a harness in both clusters, with Kubernetes' own manifests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from leadline_controller.framework.model import Node, Owner, Pod
from leadline_controller.framework.ports import Cluster, ClusterChange, Workload
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.kubeobjects.manifest import read_node, read_pod

from tests.kube.api import Api, ApiError
from tests.kube.objects import Object, deployment
from tests.kube.played_kubelets import RUNNING
from tests.support.memory_cluster import MemoryCluster

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
RESOURCES = {
    "PersistentVolumeClaim": CLAIMS,
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
}
APPS = "/apis/apps/v1/namespaces/default"
NOTES = "/api/v1/namespaces/kube-system/configmaps/leadline-rescheduling"
TERMINATING = {"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}
PATIENCE_S = 90

Change = TypeVar("Change", bound=ClusterChange)


@dataclass(frozen=True)
class WrittenEvent:
    """An event on a pod."""

    type: str
    reason: str
    message: str
    count: int


class ClusterHarness(Protocol):
    """Changes a cluster from outside, and reads its events."""

    @property
    def cluster(self) -> Cluster: ...
    def add_node(self, manifest: Object) -> None: ...
    def change_node(self, name: str, patch: Object) -> None: ...
    def remove_node(self, name: str) -> None: ...
    def add_pod(self, manifest: Object) -> Pod: ...
    def finish_pod(self, pod: Pod) -> None: ...
    def make_ready(self, pod: Pod) -> None: ...
    def start_to_delete(self, pod: Pod) -> None: ...
    def remove_pod(self, pod: Pod) -> None: ...
    def add_object(self, kind: str, manifest: Object) -> None: ...
    def change_object(self, kind: str, name: str, patch: Object) -> None: ...
    def remove_object(self, kind: str, name: str) -> None: ...
    def add_deployment(self, name: str, replicas: int, *, recreates: bool = False) -> Owner:
        """A Deployment with a ReplicaSet, which is returned."""
        ...

    def events(self, about: Pod | Node) -> list[WrittenEvent]: ...


class MemoryHarness:
    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self._nodes: dict[str, Object] = {}
        self._pods: dict[str, Object] = {}
        self._objects: dict[tuple[str, str], Object] = {}

    def add_node(self, manifest: Object) -> None:
        self._nodes[manifest["metadata"]["name"]] = manifest
        self.cluster.put_node(read_node(manifest))

    def change_node(self, name: str, patch: Object) -> None:
        self.add_node(_merged(self._nodes[name], patch))

    def remove_node(self, name: str) -> None:
        self.cluster.remove_node(name)

    def add_pod(self, manifest: Object) -> Pod:
        pod = self.cluster.put_pod(read_pod(manifest))
        self._pods[pod.uid] = _merged(manifest, {"metadata": {"uid": pod.uid}})
        return pod

    def finish_pod(self, pod: Pod) -> None:
        self._change_pod(pod, {"status": {"phase": "Succeeded"}})

    def make_ready(self, pod: Pod) -> None:
        bound = self.cluster.pod(pod.key)
        self.cluster.put_pod(replace(bound, ready=True))

    def start_to_delete(self, pod: Pod) -> None:
        self._change_pod(pod, TERMINATING)

    def remove_pod(self, pod: Pod) -> None:
        self.cluster.remove_pod(pod.key)

    def add_object(self, kind: str, manifest: Object) -> None:
        name = manifest["metadata"]["name"]
        made = _merged({"metadata": {"uid": f"uid-{kind}-{name}"}}, manifest)
        self._objects[kind, name] = made
        self.cluster.put_object(READERS[kind](made, kind))

    def change_object(self, kind: str, name: str, patch: Object) -> None:
        self.add_object(kind, _merged(self._objects[kind, name], patch))

    def remove_object(self, kind: str, name: str) -> None:
        self.cluster.remove_object(READERS[kind](self._objects.pop((kind, name)), kind))

    def add_deployment(self, name: str, replicas: int, *, recreates: bool = False) -> Owner:
        made = Workload("default", name, f"uid-{name}", "", replicas, recreates=recreates)
        self.cluster.put_workload(made, f"{name}-set")
        return Owner("ReplicaSet", f"{name}-set", f"uid-{name}-set")

    def events(self, about: Pod | Node) -> list[WrittenEvent]:
        return [
            WrittenEvent(e.event.type, e.event.reason, e.event.message, e.count)
            for e in self.cluster.events
            if e.about == about
        ]

    def _change_pod(self, pod: Pod, patch: Object) -> None:
        self.cluster.put_pod(read_pod(_merged(self._pods[pod.uid], patch)))


class KubeHarness:
    """A harness on a real API server. `clean` removes all that it created."""

    def __init__(self, cluster: Cluster, api: Api) -> None:
        self.cluster = cluster
        self._api = api
        self._made: set[str] = set()

    def add_node(self, manifest: Object) -> None:
        self._made.add(f"{NODES}/{manifest['metadata']['name']}")
        self._api.add_node(manifest)

    def change_node(self, name: str, patch: Object) -> None:
        metadata_and_spec = {key: value for key, value in patch.items() if key != "status"}
        if metadata_and_spec:
            self._api.patch(f"{NODES}/{name}", metadata_and_spec)
        if "status" in patch:
            self._api.patch(f"{NODES}/{name}/status", {"status": patch["status"]})

    def remove_node(self, name: str) -> None:
        self._api.delete(f"{NODES}/{name}")

    def add_pod(self, manifest: Object) -> Pod:
        self._made.add(f"{PODS}/{manifest['metadata']['name']}")
        return read_pod(self._api.create(PODS, manifest))

    def finish_pod(self, pod: Pod) -> None:
        self._api.patch(f"{PODS}/{pod.name}/status", {"status": {"phase": "Succeeded"}})

    def make_ready(self, pod: Pod) -> None:
        self._api.patch(f"{PODS}/{pod.name}/status", {"status": RUNNING})

    def start_to_delete(self, pod: Pod) -> None:
        path = f"{PODS}/{pod.name}"
        self._api.patch(path, {"metadata": {"finalizers": ["leadline.dev/test"]}})
        self._api.delete(path)

    def remove_pod(self, pod: Pod) -> None:
        self._api.delete(f"{PODS}/{pod.name}")

    def add_object(self, kind: str, manifest: Object) -> None:
        self._made.add(f"{RESOURCES[kind]}/{manifest['metadata']['name']}")
        self._api.create(RESOURCES[kind], manifest)

    def change_object(self, kind: str, name: str, patch: Object) -> None:
        self._api.patch(f"{RESOURCES[kind]}/{name}", patch)

    def remove_object(self, kind: str, name: str) -> None:
        self._api.patch(f"{RESOURCES[kind]}/{name}", {"metadata": {"finalizers": None}})
        self._api.delete(f"{RESOURCES[kind]}/{name}")

    def add_deployment(self, name: str, replicas: int, *, recreates: bool = False) -> Owner:
        manifest = deployment(name, {"containers": [{"name": "main", "image": "x"}]}, replicas)
        spec = dict(manifest["spec"])
        if recreates:
            manifest["spec"]["strategy"] = {"type": "Recreate"}
        above = self._api.create(f"{APPS}/deployments", manifest)
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        reference["uid"] = above["metadata"]["uid"]
        owners = [{**reference, "controller": True}]
        metadata = {"name": f"{name}-set", "ownerReferences": owners}
        made = self._api.create(f"{APPS}/replicasets", {"metadata": metadata, "spec": spec})
        self._made |= {f"{APPS}/deployments/{name}", f"{APPS}/replicasets/{name}-set"}
        return Owner("ReplicaSet", f"{name}-set", made["metadata"]["uid"])

    def events(self, about: Pod | Node) -> list[WrittenEvent]:
        uid = about.uid if isinstance(about, Pod) else about.name
        return [
            WrittenEvent(e["type"], e["reason"], e["note"], e.get("series", {}).get("count", 1))
            for e in self._api.get(EVENTS)["items"]
            if e["regarding"].get("uid") == uid and e["reportingController"] == "leadline"
        ]

    def clean(self) -> None:
        for path in (*self._made, NOTES):
            with suppress(ApiError):
                if not path.startswith(NODES):
                    self._api.patch(path, {"metadata": {"finalizers": None}})
                self._api.delete(path)


class Watched:
    """A watch with a timeout on every wait."""

    def __init__(self, changes: AsyncIterator[ClusterChange]) -> None:
        self._changes = changes

    async def next(self) -> ClusterChange:
        async with asyncio.timeout(PATIENCE_S):
            return await anext(self._changes)

    async def until(
        self, kind: type[Change], holds: Callable[[Change], bool] = lambda _: True
    ) -> Change:
        """The next change of this kind for which `holds` is true."""
        while True:
            change = await self.next()
            if isinstance(change, kind) and holds(change):
                return change


def _merged(manifest: Object, patch: Object) -> Object:
    merged: dict[str, Any] = dict(manifest)
    for key, value in patch.items():
        inner = merged.get(key)
        both = isinstance(inner, dict) and isinstance(value, dict)
        merged[key] = _merged(inner or {}, value) if both else value
    return merged
