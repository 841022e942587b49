"""The Lease on the API server, which the controllers compete for."""

import logging
from collections.abc import AsyncGenerator, Awaitable
from typing import Annotated

from msgspec import Meta, field

from leadline_controller.framework.ports import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    LeaseChangedError,
    LeaseRecord,
    NotFoundError,
    UnavailableError,
)
from leadline_controller.kube.client import ApiServer, Json, micro_time
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.kubeobjects.schema import Part
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

log = logging.getLogger(__name__)

NAMESPACE, NAME = "kube-system", "leadline-controller"
_STRATEGY = "leadline.dev/strategy"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_LEASE = f"{_LEASES}/{NAME}"
# Requests show before that whether the connection is alive.
_FOLLOW_S = 300
_LATE_S = 15.0


class _LeaseMetadata(Part):
    resource_version: Annotated[str, Meta(min_length=1, description="text")]
    annotations: dict[str, str] = field(default_factory=dict)


class _LeaseSpec(Part):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class _Lease(Part):
    metadata: _LeaseMetadata
    spec: _LeaseSpec = _LeaseSpec()


class KubeLease:
    """See framework.ports.LeaseStore.

    server: not shared, so that neither a busy connection nor the Retry-After of another request
    delays a renewal. Its timeout must be a few seconds. strategy: noted in the Lease when it is
    acquired, so that whoever leads next, on whatever machine, can go on with it.
    """

    def __init__(self, server: ApiServer, reachability: ReachabilityLog) -> None:
        self._server = server
        self._reachability = reachability
        self.strategy = ""

    async def read(self) -> LeaseRecord | None:
        """The Lease; None when there is none yet. Raises subclasses of ClusterError."""
        try:
            return await self._answer(self._server.get(_LEASE))
        except NotFoundError:
            return None

    async def write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        """Replace exactly `over`, or create the Lease for None. Raises LeaseChangedError and
        other subclasses of ClusterError."""
        body = _body(holder, duration_s, over)
        acquires = holder and (over is None or holder != over.holder)
        try:
            if not (acquires and self.strategy):
                return await self._send(body, over)
            note = {"annotations": {_STRATEGY: self.strategy}}
            try:
                noted = {**body, "metadata": {**body["metadata"], **note}}
                return await self._send(noted, over)
            except ForbiddenError as error:  # the account's policy is of an older release
                record = await self._send(body, over)
                log.warning(
                    "the Lease does not tell that this installation runs %s (%s): apply what "
                    "`leadline kube manifests` prints",
                    *(self.strategy, error),
                )
                return record
        except (ConflictError, NotFoundError) as error:
            raise LeaseChangedError(str(error)) from None

    async def _send(self, body: Json, over: LeaseRecord | None) -> LeaseRecord:
        server = self._server
        return await self._answer(
            server.post(_LEASES, body) if over is None else server.patch(_LEASE, body)
        )

    async def _answer(self, request: Awaitable[bytes]) -> LeaseRecord:
        """The Lease that answers a request. That it is missing or changed is an answer, too."""
        try:
            lease = await request
        except ClusterError as error:
            if isinstance(error, ConflictError | NotFoundError):
                self._reachability.succeeded(_LEASE)
            else:
                self._reachability.failed(_LEASE, error)
            raise
        self._reachability.succeeded(_LEASE)
        return _record(lease)

    async def follow(self) -> AsyncGenerator[str, None]:
        """The holder, now and after each write, for some minutes at most. Raises subclasses of
        ClusterError."""
        query = {"watch": "1", "fieldSelector": f"metadata.name={NAME}"}
        query["timeoutSeconds"] = str(_FOLLOW_S)
        async with self._server.stream(_LEASES, query, _FOLLOW_S + _LATE_S) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    yield _record(event.object).holder
                elif event.type == "DELETED":
                    yield ""


def _body(holder: str, duration_s: int, over: LeaseRecord | None) -> Json:
    now = micro_time()
    spec: Json = {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "renewTime": now}
    if over is None or holder != over.holder:
        spec["acquireTime"] = now
    if over is None:
        metadata = {"namespace": NAMESPACE, "name": NAME}
        spec["leaseTransitions"] = 0
    else:
        # The server refuses the change if the Lease has another version by now.
        metadata = {"resourceVersion": over.version}
        spec["leaseTransitions"] = over.transitions + bool(holder and holder != over.holder)
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**kind, "metadata": metadata, "spec": spec}


def _record(answer: object) -> LeaseRecord:
    """Raises UnavailableError when the answer is not a Lease but, say, a proxy's."""
    try:
        lease = decode(answer, _Lease, "lease")
    except FieldError as error:
        raise UnavailableError(f"{_LEASE}: the answer is not a Lease: {error}") from None
    spec = lease.spec
    return LeaseRecord(
        holder=spec.holder_identity,
        duration_s=spec.lease_duration_seconds,
        acquired=spec.acquire_time,
        renewed=spec.renew_time,
        transitions=spec.lease_transitions,
        version=lease.metadata.resource_version,
        strategy=lease.metadata.annotations.get(_STRATEGY, ""),
    )
