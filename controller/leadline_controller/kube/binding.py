"""The writes that place a pod: the changes to its claims and volumes, then its binding.

Claims and volumes are changed as kube-scheduler changes them. Each object is read, checked, and
changed only while it is as it was read (resourceVersion), so a change by somebody else is never
overwritten. The cluster's controllers do the rest.
"""

from urllib.parse import quote

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    ConflictError,
    Fence,
    NotFoundError,
    StorageChangedError,
)
from leadline_controller.framework.resources import VolumePlan
from leadline_controller.kube.client import ApiServer, Json, pod_path
from leadline_controller.kubeobjects.resources import read_claim, read_volume
from leadline_controller.parsing.fields import FieldError

_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_ATTEMPTS = 3


async def bind(server: ApiServer, pod: Pod, node: str, fence: Fence | None = None) -> None:
    """Bind exactly this pod before the fence closes. Raises subclasses of ClusterError.

    The uid protects a new pod of the same name. The API server does not check whether the node
    exists.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await server.post(f"{pod_path(pod)}/binding", body, fence)


async def prepare_volumes(server: ApiServer, plan: VolumePlan, fence: Fence | None = None) -> None:
    """Carry out the plan before the fence closes; see Cluster.prepare."""
    try:
        for name, key in plan.binds:
            await _reserve_volume(server, name, key, fence)
        for key in plan.selects:
            await _select_node(server, key, plan.node, fence)
    except (NotFoundError, FieldError) as error:
        raise StorageChangedError(str(error)) from None


async def _reserve_volume(server: ApiServer, name: str, key: str, fence: Fence | None) -> None:
    path = f"/api/v1/persistentvolumes/{quote(name, safe='')}"
    for _ in range(_ATTEMPTS):
        claim = read_claim(await server.get(_claim_path(key)))
        manifest = await server.get(path)
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
        if await _patch_unchanged(server, path, manifest, annotations, change, fence):
            return
    raise StorageChangedError(f"volume {name} keeps changing")


async def _select_node(server: ApiServer, key: str, node: str, fence: Fence | None) -> None:
    path = _claim_path(key)
    for _ in range(_ATTEMPTS):
        manifest = await server.get(path)
        claim = read_claim(manifest)
        if claim.selected_node == node:
            return
        if claim.terminating or claim.volume or claim.selected_node:
            raise StorageChangedError(f"claim {key} is no longer free")
        annotations = {_SELECTED_NODE: node}
        if await _patch_unchanged(server, path, manifest, annotations, {}, fence):
            return
    raise StorageChangedError(f"claim {key} keeps changing")


async def _patch_unchanged(
    server: ApiServer,
    path: str,
    manifest: Json,
    annotations: dict[str, str],
    change: Json,
    fence: Fence | None,
) -> bool:
    """Change an object that still is as `manifest` says. False when it is not."""
    version = {name: manifest["metadata"][name] for name in ("uid", "resourceVersion")}
    body = {"metadata": {**version, "annotations": annotations}, **change}
    try:
        await server.patch(path, body, fence)
    except ConflictError:  # 409
        return False
    return True


def _claim_path(key: str) -> str:
    namespace, _, name = (quote(part, safe="") for part in key.partition("/"))
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
