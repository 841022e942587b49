"""What the controllers keep in a ConfigMap: moves in progress, the pause, and what was told.

It is not in the Lease, because each write there makes the leader's next renewal conflict.
"""

from collections.abc import Mapping

from msgspec import field

from leadline_controller.framework.ports import (
    ConflictError,
    Fence,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
)
from leadline_controller.kube.client import ApiServer
from leadline_controller.kubeobjects.schema import Part
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

NAMESPACE, NAME = "kube-system", "leadline-rescheduling"
_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class _ConfigMap(Part):
    data: dict[str, str] = field(default_factory=dict)


class Notes:
    """See framework.ports.Cluster.read_notes."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def read(self) -> Mapping[str, str]:
        """Key -> text; empty without the ConfigMap. Raises subclasses of ClusterError."""
        try:
            return decode(await self._server.get(f"{_MAPS}/{NAME}"), _ConfigMap, "").data
        except NotFoundError:
            return {}
        except FieldError as error:
            raise UnavailableError(f"{_MAPS}/{NAME} is not a ConfigMap: {error}") from None

    async def write(self, key: str, text: str | None, fence: Fence | None) -> None:
        """Replace one note, or remove it; the others stay. Raises subclasses of ClusterError."""
        body = {"data": {key: text}}
        try:
            await self._server.patch(f"{_MAPS}/{NAME}", body, fence)
        except NotFoundError:
            if text is None:
                return
            metadata = {"namespace": NAMESPACE, "name": NAME}
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **body}
            try:
                await self._server.post(_MAPS, made, fence)
            except ConflictError:  # somebody else was quicker
                await self._server.patch(f"{_MAPS}/{NAME}", body, fence)
            except ForbiddenError:  # the manifests have it, in place of the right to create any
                raise NotFoundError(
                    f"the ConfigMap {NAMESPACE}/{NAME} is missing: "
                    "apply what `leadline kube manifests --rescheduling` or `--notify` prints"
                ) from None
