"""The inspection service over gRPC, in the event loop of the scheduler.

It only reads the controller's state. It builds answers about many nodes in slices or in a thread,
so that a decision never waits for a whole listing.
"""

# ruff: noqa: N802  # the methods are named by the schema

import asyncio
import contextlib
import logging
import math
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # its stub leaves it out
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc, rescheduling_pb2_grpc
from leadline_wire.v1 import images_pb2 as pb_images

from leadline_controller.api import budget, gate, history, images, placements, rescheduling
from leadline_controller.api.callers import why_refused
from leadline_controller.api.calls import Calls, TextSafeServer
from leadline_controller.api.gate import Gate
from leadline_controller.api.listeners import cancel, listen
from leadline_controller.api.nodes import InspectionSource, NodeReader
from leadline_controller.api.settings import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    ServeError,
    ServeSettings,
)

SERVICE = pb.DESCRIPTOR.services_by_name["Inspection"].full_name
Context = grpc.aio.ServicerContext[Any, Any]
_SLICE = 16
_POLL_S = 1.0
_GRACE_S = 2.0
_RESTART_S = 1.0
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", MAX_ANSWER_BYTES),
    # For each connection, streams without a request included.
    ("grpc.max_concurrent_streams", 32),
    ("grpc.max_metadata_size", 8 * 1024),
    ("grpc.server_handshake_timeout_ms", int(gate.FIRST_CALL_S * 1000)),
    # Shortly before the gate would close it, to close it properly.
    ("grpc.max_connection_idle_ms", int((gate.IDLE_S - 10) * 1000)),
    # Without an answer to a ping in this time the client is gone.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    # How often clients may send pings.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 2),
)
log = logging.getLogger(__name__)
cygrpc.AioServer = TextSafeServer


class InspectionServer:
    """Serves Inspection, health checking and reflection at the settings' address. poll_s: how
    often watches look for changes."""

    def __init__(
        self, settings: ServeSettings, source: InspectionSource, *, poll_s: float = _POLL_S
    ) -> None:
        self._settings = settings
        self._source = source
        self._port = 0
        self._servicer = _Inspection(source, poll_s)
        self._health = health.aio.HealthServicer()
        self._cleanup = contextlib.AsyncExitStack()

    async def start(self) -> str:
        """Listen. Returns the address with the actual port; raises ServeError."""
        settings = self._settings
        # Before listening, to report unreadable certificates first.
        credentials = None if settings.tls is None else settings.tls.server_credentials()
        try:
            listeners, address = listen(settings)
        except OSError:
            raise ServeError(
                f"grpc address {settings.address}: cannot listen there; is it in use by another "
                "program?"
            ) from None
        if settings.unix_path is None:
            self._port = listeners[0].getsockname()[1]
        async with contextlib.AsyncExitStack() as cleanup:
            for listener in listeners:
                cleanup.callback(listener.close)
            if settings.unix_path is not None:
                cleanup.callback(settings.unix_path.unlink, missing_ok=True)
            await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
            connection_gate = Gate()
            start_server = partial(self._started, connection_gate, credentials)
            cleanup.push_async_callback(connection_gate.close)
            serving = asyncio.create_task(_restart_failed(await start_server(), start_server))
            cleanup.push_async_callback(cancel, (serving,))
            connection_gate.start(listeners)
            cleanup.push_async_callback(self._health.enter_graceful_shutdown)
            cleanup.callback(self._servicer.stopping.set)
            cleanup.push_async_callback(connection_gate.stop_accepting)
            self._cleanup = cleanup.pop_all()
        return address

    async def stop(self) -> None:
        """End the watches, give calls two seconds to finish, and stop listening."""
        await self._cleanup.aclose()

    async def _refusal(
        self, connection_gate: Gate, context: Context, admins: tuple[str, ...]
    ) -> str:
        """Why a caller may not change the cluster; empty if it may."""
        connection = connection_gate.by_name.get(context.peer())
        if connection is None:
            return "the connection is closed"
        certificate = context.auth_context()
        return await asyncio.to_thread(
            why_refused, connection.address, self._port, certificate, admins
        )

    async def _started(self, connection_gate: Gate, credentials: Any) -> grpc.aio.Server:
        """Start a gRPC server that listens on a socket behind the gate."""
        server = grpc.aio.server(options=_OPTIONS, interceptors=(Calls(connection_gate),))
        control_pb2_grpc.add_InspectionServicer_to_server(self._servicer, server)
        rescheduling_pb2_grpc.add_ReschedulingServicer_to_server(
            rescheduling.service(self._source, partial(self._refusal, connection_gate)), server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (SERVICE, rescheduling.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        # Only this user may enter the folder, so all connections come through the gate.
        with tempfile.TemporaryDirectory(prefix="leadline-grpc-") as folder:
            socket_path = Path(folder) / "server"
            try:
                if credentials is None:
                    server.add_insecure_port(f"unix:{socket_path}")
                else:
                    server.add_secure_port(f"unix:{socket_path}", credentials)
            except RuntimeError:
                raise ServeError(
                    f"grpc: cannot listen at {socket_path}; is TMPDIR too long?"
                ) from None
            await server.start()
            connection_gate.relay_to(socket_path)
        return server


class _Inspection(control_pb2_grpc.InspectionServicer):
    def __init__(self, source: InspectionSource, poll_s: float) -> None:
        self._source = source
        self._poll_s = poll_s
        self._nodes_lock = asyncio.Lock()
        self._nodes_at_s = -math.inf
        self._nodes: list[tuple[pb.NodeStatus, bytes]] = []
        self.stopping = asyncio.Event()

    async def GetVersion(self, _: pb.GetVersionRequest, __: Context) -> pb.GetVersionResponse:
        source = self._source
        return pb.GetVersionResponse(
            version=source.version,
            cluster=source.cluster_name,
            strategy=source.strategy,
            leader=source.leadership.leads(),
            lease_holder=source.leadership.holder(),
        )

    async def ListNodes(self, _: pb.ListNodesRequest, __: Context) -> pb.ListNodesResponse:
        return pb.ListNodesResponse(nodes=await self._statuses())

    async def GetNode(self, request: pb.GetNodeRequest, context: Context) -> pb.GetNodeResponse:
        reader = NodeReader(self._source)
        if request.name not in reader.names:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"no node {request.name[:200]!r}: the cluster has none and no agent of that name "
                "was heard",
            )
        answer = pb.GetNodeResponse(
            node=reader.status(request.name),
            links=await asyncio.to_thread(reader.links_of, request.name),
            placed_pods=reader.placed_pods(request.name),
        )
        if request.HasField("history"):
            request.history.name = request.name
            answer.history.CopyFrom(await self.GetHistory(request.history, context))
        return answer

    async def GetHistory(
        self, request: pb.GetHistoryRequest, context: Context
    ) -> pb.GetHistoryResponse:
        source, now = self._source, self._source.decisions.now()
        now_unix_s = now.unix_s(now)
        if now_unix_s is None:  # nothing is recorded without a clock
            return pb.GetHistoryResponse()
        try:
            shown = history.span(request, now_unix_s)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        blocks = await history.blocks_of(source, request.name, shown, now_unix_s)
        if not blocks and request.name not in NodeReader(source).names:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"no node {request.name[:200]!r}: the cluster has none, and none of that name was "
                "measured then",
            )
        return await asyncio.to_thread(history.response, blocks, shown, request.series, now_unix_s)

    async def GetMatrix(self, _: pb.GetMatrixRequest, __: Context) -> pb.GetMatrixResponse:
        return await asyncio.to_thread(NodeReader(self._source).matrix)

    async def GetBudget(self, _: pb.GetBudgetRequest, __: Context) -> pb.GetBudgetResponse:
        source = self._source
        answer = await asyncio.to_thread(lambda: budget.response(source.budget()))
        answer.leader, answer.lease_holder = source.leadership.leads(), source.leadership.holder()
        return answer

    async def ListImages(
        self, _: pb_images.ListImagesRequest, __: Context
    ) -> pb_images.ListImagesResponse:
        source = self._source
        readings = list(source.cluster.images.readings(source.cluster.table))
        registries = source.registries()
        return await asyncio.to_thread(images.response, readings, registries)

    async def ListPlacements(
        self, request: pb.ListPlacementsRequest, context: Context
    ) -> pb.ListPlacementsResponse:
        since_s = request.since_s
        if not math.isfinite(since_s) or since_s < 0:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "since_s: expected seconds, 0 for all"
            )
        records, truncated = await self._source.history.since(since_s or None)
        now = self._source.decisions.now()
        return await asyncio.to_thread(placements.listing, records, now, truncated=truncated)

    async def ExplainPod(
        self, request: pb.ExplainPodRequest, context: Context
    ) -> pb.ExplainPodResponse:
        key = request.pod if "/" in request.pod else f"default/{request.pod}"
        records = await placements.decisions_about(self._source, key)
        if not records:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, placements.why_unexplained(self._source, key)
            )
        # Records are immutable, and an explanation over a large cluster takes long to make.
        now = self._source.decisions.now()
        return await asyncio.to_thread(placements.explanation, records, now)

    async def Watch(self, _: pb.WatchRequest, __: Context) -> AsyncIterator[pb.WatchEvent]:
        # It sends states and not every step between them: all changes that happen while its client
        # is slow become one event. So it needs no queue, and the cluster's size bounds its memory.
        sent: dict[str, bytes] = {}
        number = 0
        while not self.stopping.is_set():
            nodes = await self._fingerprinted()
            for status, fingerprint in nodes:
                if sent.get(status.name) != fingerprint:
                    sent[status.name] = fingerprint
                    yield pb.WatchEvent(node=status)
            for name in sent.keys() - {status.name for status, _ in nodes}:
                del sent[name]
                yield pb.WatchEvent(node_gone=name)
            now = self._source.decisions.now()
            changed = [x for x in self._source.decisions.all() if x.number > number]
            for record in sorted(changed, key=lambda x: x.number):
                number = record.number
                yield pb.WatchEvent(placement=placements.placement(record, now))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), self._poll_s)

    async def _fingerprinted(self) -> list[tuple[pb.NodeStatus, bytes]]:
        """The nodes with their fingerprints, updated every poll_s for all watches together."""
        async with self._nodes_lock:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._nodes_at_s >= self._poll_s:
                self._nodes = [(status, _fingerprint(status)) for status in await self._statuses()]
                self._nodes_at_s = now_s
            return self._nodes

    async def _statuses(self) -> list[pb.NodeStatus]:
        reader = NodeReader(self._source)
        statuses = []
        for at, name in enumerate(reader.names):
            if at % _SLICE == 0:
                await asyncio.sleep(0)
            statuses.append(reader.status(name))
        return statuses


def _fingerprint(status: pb.NodeStatus) -> bytes:
    """Everything about a node but the ages: watches send it when this has changed."""
    bare = pb.NodeStatus()
    bare.CopyFrom(status)
    bare.ClearField("report_age_s")
    for metric in bare.metrics:
        metric.ClearField("age_s")
        metric.ClearField("confidence")
    return bare.SerializeToString(deterministic=True)


async def _restart_failed(
    server: grpc.aio.Server, start_server: Callable[[], Awaitable[grpc.aio.Server]]
) -> None:
    """Replace the gRPC server when it fails, until cancelled."""
    try:
        while True:
            try:
                await server.wait_for_termination()
            except Exception as error:  # noqa: BLE001  # nothing else reports it
                log.error("the gRPC server failed, starting another one: %r", error)
            await asyncio.sleep(_RESTART_S)
            server = await start_server()
    finally:
        await server.stop(_GRACE_S)
