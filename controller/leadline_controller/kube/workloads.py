"""Deployments, as a replacement that comes first needs them: read, and scaled with a note."""

from urllib.parse import quote

from leadline_controller.framework.model import Owner
from leadline_controller.framework.ports import (
    ClusterError,
    Fence,
    NotFoundError,
    UnavailableError,
    Workload,
)
from leadline_controller.kube.client import ApiServer, Json
from leadline_controller.kubeobjects.manifest import read_owner
from leadline_controller.parsing.fields import FieldError, Fields

EXTRA = "leadline.dev/extra-replica"
_MAX_REPLICAS = 2**31 - 1


class Workloads:
    """See framework.ports.Cluster.deployment and scale."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def deployment(self, namespace: str, owner: Owner) -> Workload | None:
        """The Deployment of a ReplicaSet, or of that name; None if the owner is something else.
        Raises subclasses of ClusterError."""
        above: Owner | None = owner
        try:
            if owner.kind == "ReplicaSet":
                made = await self._server.get(_path(namespace, "replicasets", owner.name))
                above = read_owner(Fields(made, "replicaset").object("metadata"))
            if above is None or above.kind != "Deployment":
                return None
            found = await self._server.get(_path(namespace, "deployments", above.name))
            return _read(found, autoscaled=await self._is_autoscaled(namespace, above.name))
        except NotFoundError:
            return None
        except FieldError as error:
            raise UnavailableError(f"the answer is not a Deployment: {error}") from None

    async def scale(
        self, over: Workload, replicas: int, extra: str | None, fence: Fence | None
    ) -> Workload:
        """Set replicas and annotation, if the Deployment is still as in `over`. Raises
        ConflictError if it is not, and other subclasses of ClusterError."""
        metadata = {"uid": over.uid, "resourceVersion": over.version, "annotations": {EXTRA: extra}}
        body = {"metadata": metadata, "spec": {"replicas": replicas}}
        path = _path(over.namespace, "deployments", over.name)
        try:
            return _read(await self._server.patch(path, body, fence), autoscaled=over.autoscaled)
        except FieldError as error:
            raise UnavailableError(f"the answer is not a Deployment: {error}") from None

    async def _is_autoscaled(self, namespace: str, name: str) -> bool:
        """Also true when Leadline may not find out: it then leaves the replicas alone."""
        space = quote(namespace, safe="")
        path = f"/apis/autoscaling/v2/namespaces/{space}/horizontalpodautoscalers"
        try:
            found = await self._server.get(path)
        except ClusterError:
            return True
        return any(
            target.text("kind", "") == "Deployment" and target.text("name", "") == name
            for scaler in Fields(found, "").objects("items")
            for target in [scaler.object("spec").object("scaleTargetRef")]
        )


def _path(namespace: str, kind: str, name: str) -> str:
    space, name = quote(namespace, safe=""), quote(name, safe="")
    return f"/apis/apps/v1/namespaces/{space}/{kind}/{name}"


def _read(manifest: Json, *, autoscaled: bool) -> Workload:
    made = Fields(manifest, "deployment")
    metadata, spec, status = made.object("metadata"), made.object("spec"), made.object("status")
    replicas = spec.integer("replicas", 0, _MAX_REPLICAS)
    replicas = 1 if replicas is None else replicas
    counts = [
        status.integer(name, 0, _MAX_REPLICAS) or 0
        for name in ("replicas", "updatedReplicas", "availableReplicas")
    ]
    observed = status.integer("observedGeneration", 0, 2**62) or 0
    generation = metadata.integer("generation", 0, 2**62) or 0
    return Workload(
        namespace=metadata.name("namespace"),
        name=metadata.name("name"),
        uid=metadata.name("uid"),
        version=metadata.text("resourceVersion"),
        replicas=replicas,
        settled=observed >= generation
        and counts == [replicas] * 3
        and not spec.flag("paused", default=False),
        autoscaled=autoscaled,
        extra=metadata.text_map("annotations").get(EXTRA),
        recreates=spec.object("strategy").text("type", "") == "Recreate",
    )
