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
from leadline_controller.kube.client import ApiServer
from leadline_controller.kubeobjects.manifest import controller_of
from leadline_controller.kubeobjects.schema import (
    Count,
    Generation,
    Named,
    Object,
    OwnerReference,
    Part,
)
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

EXTRA = "leadline.dev/extra-replica"


class _Strategy(Part):
    type: str = ""


class _DeploymentSpec(Part):
    replicas: Count = 1
    paused: bool = False
    strategy: _Strategy = _Strategy()


class _DeploymentStatus(Part):
    observed_generation: Generation = 0
    replicas: Count = 0
    updated_replicas: Count = 0
    available_replicas: Count = 0


class _Deployment(Object[_DeploymentSpec]):
    status: _DeploymentStatus = _DeploymentStatus()


class _ScalerSpec(Part):
    scale_target_ref: OwnerReference


class _Scalers(Part):
    items: tuple[Object[_ScalerSpec], ...] = ()


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
                above = controller_of(decode(made, Named, "replicaset").metadata)
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
        targets = [each.spec.scale_target_ref for each in decode(found, _Scalers, path).items]
        return any((each.kind, each.name) == ("Deployment", name) for each in targets)


def _path(namespace: str, kind: str, name: str) -> str:
    space, name = quote(namespace, safe=""), quote(name, safe="")
    return f"/apis/apps/v1/namespaces/{space}/{kind}/{name}"


def _read(answer: bytes, *, autoscaled: bool) -> Workload:
    made = decode(answer, _Deployment, "deployment")
    metadata, spec, status = made.metadata, made.spec, made.status
    counts = status.replicas, status.updated_replicas, status.available_replicas
    return Workload(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        replicas=spec.replicas,
        rolled_out=status.observed_generation >= metadata.generation
        and counts == (spec.replicas,) * 3
        and not spec.paused,
        autoscaled=autoscaled,
        extra=metadata.annotations.get(EXTRA),
        recreates=spec.strategy.type == "Recreate",
    )
