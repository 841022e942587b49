"""The Lease on the API server, by which two controllers agree on which of them acts."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from leadline_controller.framework.ports import (
    ClusterError,
    ConflictError,
    LeaseChangedError,
    LeaseRecord,
    NotFoundError,
    UnavailableError,
)
from leadline_controller.kube.client import ApiServer, Json
from leadline_controller.kube.contact import Contact

NAMESPACE, NAME = "kube-system", "leadline-controller"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_LEASE = f"{_LEASES}/{NAME}"
_SILENCE_S = 15.0


class KubeLease:
    """See core.ports.LeaseStore.

    server: one of its own, so that neither a busy connection nor a Retry-After that was meant
    for other requests holds up a renewal; it has to give up within seconds.
    """

    def __init__(self, server: ApiServer, contact: Contact) -> None:
        self._server = server
        self._contact = contact

    async def read(self) -> LeaseRecord | None:
        """The Lease; None when there is none yet. Raises ClusterError's kinds."""
        try:
            lease = await self._server.get(_LEASE)
        except NotFoundError:
            self._contact.back(_LEASE)
            return None
        except ClusterError as error:
            self._contact.lost(_LEASE, error)
            raise
        self._contact.back(_LEASE)
        return _record(lease)

    async def write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        """Replace exactly `over`, or create the Lease. Raises LeaseChangedError and
        ClusterError's kinds."""
        body = _body(holder, duration_s, over)
        try:
            if over is None:
                lease = await self._server.post(_LEASES, body)
            else:
                lease = await self._server.patch(_LEASE, body)
        except (ConflictError, NotFoundError) as error:
            self._contact.back(_LEASE)
            raise LeaseChangedError(str(error)) from None
        except ClusterError as error:
            self._contact.lost(_LEASE, error)
            raise
        self._contact.back(_LEASE)
        return _record(lease)

    async def follow(self) -> AsyncGenerator[str, None]:
        """Who holds it, now and after each write, until the connection ends or is silent for
        longer than a Lease holds. Raises ClusterError's kinds."""
        query = {"watch": "1", "fieldSelector": f"metadata.name={NAME}"}
        async with self._server.stream(_LEASES, query, _SILENCE_S) as events:
            async for event in events:
                lease: Json = event.get("object") or {}
                if event.get("type") in ("ADDED", "MODIFIED"):
                    yield _record(lease).holder
                elif event.get("type") == "DELETED":
                    yield ""


def _body(holder: str, duration_s: int, over: LeaseRecord | None) -> Json:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec: Json = {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "renewTime": now}
    if over is None or holder != over.holder:
        spec["acquireTime"] = now
    if over is None:
        metadata = {"namespace": NAMESPACE, "name": NAME}
        spec["leaseTransitions"] = 0
    else:
        # Makes the server refuse to merge this into anything but what was read.
        metadata = {"resourceVersion": over.version}
        spec["leaseTransitions"] = over.transitions + bool(holder and holder != over.holder)
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**kind, "metadata": metadata, "spec": spec}


def _record(lease: Json) -> LeaseRecord:
    """Raises UnavailableError for what is no Lease: a proxy's answer, say."""
    metadata, spec = lease.get("metadata"), lease.get("spec", {})
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version or not isinstance(spec, dict):
        raise UnavailableError(f"{_LEASE}: the answer is no Lease")
    return LeaseRecord(
        holder=_text(spec.get("holderIdentity")),
        duration_s=_whole(spec.get("leaseDurationSeconds")),
        acquired=_text(spec.get("acquireTime")),
        renewed=_text(spec.get("renewTime")),
        transitions=_whole(spec.get("leaseTransitions")),
        version=version,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
