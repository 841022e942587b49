"""What has to be written to claims and volumes before a pod is bound, as kube-scheduler writes it.

Every object is read, looked at, and changed only as it was read (resourceVersion), so that
nothing is taken from whoever came first. The controllers of the cluster do the rest.
"""

from urllib.parse import quote

from leadline_controller.framework.ports import (
    ConflictError,
    Fence,
    NotFoundError,
    StorageChangedError,
)
from leadline_controller.framework.resources import Claim, Volume
from leadline_controller.framework.storage import VolumePlan
from leadline_controller.kube.client import ApiServer, Json
from leadline_controller.kubeobjects.resources import read_claim, read_volume
from leadline_controller.parsing.fields import FieldError

_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_ATTEMPTS = 3


async def prepare(server: ApiServer, plan: VolumePlan, fence: Fence | None = None) -> None:
    """Carry out the plan before the fence closes; see Cluster.prepare."""
    for name, key in plan.binds:
        await _reserve(server, name, key, fence)
    for key in plan.selects:
        await _select(server, key, plan.node, fence)


async def _reserve(server: ApiServer, name: str, key: str, fence: Fence | None) -> None:
    path = f"/api/v1/persistentvolumes/{quote(name, safe='')}"
    for _ in range(_ATTEMPTS):
        found_claim, found = await _get(server, _claim_path(key)), await _get(server, path)
        claim, volume = _claim(found_claim), _volume(found)
        if claim.terminating or claim.volume not in ("", name):
            raise StorageChangedError(f"claim {key} is no longer free")
        if volume.terminating or not (volume.claim is None or volume.is_kept_for(claim)):
            raise StorageChangedError(f"volume {name} is no longer free")
        if volume.claim_uid:
            return
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": claim.uid}
        reference |= {"namespace": claim.namespace, "name": claim.name}
        # Who reserved it by hand keeps it when the claim goes.
        annotations = {_BOUND_BY_CONTROLLER: "yes"} if volume.claim is None else {}
        change = _metadata(found, annotations) | {"spec": {"claimRef": reference}}
        if await _changed(server, path, change, fence):
            return
    raise StorageChangedError(f"volume {name} changes all the time")


async def _select(server: ApiServer, key: str, node: str, fence: Fence | None) -> None:
    path = _claim_path(key)
    for _ in range(_ATTEMPTS):
        found = await _get(server, path)
        claim = _claim(found)
        if claim.selected_node == node:
            return
        if claim.terminating or claim.volume or claim.selected_node:
            raise StorageChangedError(f"claim {key} is no longer free")
        if await _changed(server, path, _metadata(found, {_SELECTED_NODE: node}), fence):
            return
    raise StorageChangedError(f"claim {key} changes all the time")


async def _get(server: ApiServer, path: str) -> Json:
    try:
        return await server.get(path)
    except NotFoundError as error:
        raise StorageChangedError(str(error)) from None


def _metadata(found: Json, annotations: dict[str, str]) -> Json:
    """The part of a change by which it is made to the object as it was found, or not at all."""
    exactly = {name: found["metadata"][name] for name in ("uid", "resourceVersion")}
    return {"metadata": {**exactly, "annotations": annotations}}


async def _changed(server: ApiServer, path: str, change: Json, fence: Fence | None) -> bool:
    """Change an object that is still as it was found. False when it is not."""
    try:
        await server.patch(path, change, fence)
    except ConflictError:  # 409
        return False
    except NotFoundError as error:
        raise StorageChangedError(str(error)) from None
    return True


def _claim(manifest: Json) -> Claim:
    try:
        return read_claim(manifest)
    except FieldError as error:
        raise StorageChangedError(str(error)) from None


def _volume(manifest: Json) -> Volume:
    try:
        return read_volume(manifest)
    except FieldError as error:
        raise StorageChangedError(str(error)) from None


def _claim_path(key: str) -> str:
    namespace, _, name = (quote(part, safe="") for part in key.partition("/"))
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
