"""The inspection service over gRPC, in the event loop of the scheduler.

Everything here reads; a caller can slow nobody down but itself. Answers over many nodes are
made in slices or in a thread, so that a decision never waits for a whole listing.
"""

# ruff: noqa: N802  # the methods are named by the schema

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc

from leadline_controller.serve import placements
from leadline_controller.serve.nodes import NodeReader
from leadline_controller.serve.settings import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    ServeError,
    ServeSettings,
)
from leadline_controller.serve.source import InspectionSource
from leadline_controller.serve.watch import Changes, Sight, sight

SERVICE = pb.DESCRIPTOR.services_by_name["Inspection"].full_name
Context = grpc.aio.ServicerContext[Any, Any]
_SLICE = 16
_POLL_S = 1.0
_GRACE_S = 2.0
_MAX_WATCHERS = 32
_MAX_CALLS = 128
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", MAX_ANSWER_BYTES),
    # Else a second controller on this machine would share the port and answer every other call.
    ("grpc.so_reuseport", 0),
)


class InspectionServer:
    """Offers Inspection, health checking and reflection at the settings' address.

    poll_s: seconds between two looks for changes on behalf of the watchers.
    """

    def __init__(
        self, settings: ServeSettings, source: InspectionSource, *, poll_s: float = _POLL_S
    ) -> None:
        self._settings = settings
        self._servicer = _Inspection(source, poll_s)
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> str:
        """Listen, and say where: the port is filled in. Raises ServeError."""
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS)
        control_pb2_grpc.add_InspectionServicer_to_server(self._servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        address = _listen(server, self._settings)
        await server.start()
        self._server = server
        return address

    async def stop(self) -> None:
        """End the watches, let calls finish for a moment, and stop listening."""
        if self._server is None:
            return
        self._servicer.stopping.set()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(_GRACE_S)
        self._server = None


class _Inspection(control_pb2_grpc.InspectionServicer):
    def __init__(self, source: InspectionSource, poll_s: float) -> None:
        self._source = source
        self._poll_s = poll_s
        self._watchers = 0
        self._looking = asyncio.Lock()
        self._looked_s = -math.inf
        self._sights: list[Sight] = []
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
        return pb.GetNodeResponse(
            node=reader.status(request.name),
            links=reader.link_statuses(request.name),
            placed_pods=reader.placed_pods(request.name),
        )

    async def GetMatrix(self, _: pb.GetMatrixRequest, __: Context) -> pb.GetMatrixResponse:
        return await asyncio.to_thread(NodeReader(self._source).matrix)

    async def ListPlacements(
        self, request: pb.ListPlacementsRequest, context: Context
    ) -> pb.ListPlacementsResponse:
        since_s = request.since_s
        if not math.isfinite(since_s) or since_s < 0:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "since_s: expected seconds, 0 for all"
            )
        told, truncated = await self._source.history.since(since_s or None)
        return await asyncio.to_thread(placements.listing, told, truncated=truncated)

    async def ExplainPod(
        self, request: pb.ExplainPodRequest, context: Context
    ) -> pb.ExplainPodResponse:
        key = placements.pod_key(request.pod)
        told = await placements.decisions_about(self._source, key)
        if not told:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, placements.why_unexplained(self._source, key)
            )
        # All of it is frozen, and a large cluster makes a long answer: no decision waits for it.
        return await asyncio.to_thread(placements.explanation, told)

    async def Watch(self, _: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchEvent]:
        if self._watchers >= _MAX_WATCHERS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{_MAX_WATCHERS} watch streams are open already; close one first",
            )
        self._watchers += 1
        try:
            changes = Changes()
            while not self.stopping.is_set():
                for event in changes.of_nodes(await self._look()):
                    yield event
                for event in changes.of_placements(self._source):
                    yield event
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopping.wait(), self._poll_s)
        finally:
            self._watchers -= 1

    async def _look(self) -> list[Sight]:
        """The nodes as all watchers see them: looked at once in each poll_s."""
        async with self._looking:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._looked_s >= self._poll_s:
                self._sights = [sight(status) for status in await self._statuses()]
                self._looked_s = now_s
            return self._sights

    async def _statuses(self) -> list[pb.NodeStatus]:
        reader = NodeReader(self._source)
        statuses = []
        for at, name in enumerate(reader.names):
            if at % _SLICE == 0:
                await asyncio.sleep(0)
            statuses.append(reader.status(name))
        return statuses


def _listen(server: grpc.aio.Server, settings: ServeSettings) -> str:
    """Take the port; the address with the port that was given."""
    address = settings.address
    try:
        if settings.tls is not None:
            port = server.add_secure_port(address, settings.tls.server_credentials())
        else:
            port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise ServeError(
            f"grpc address {address}: cannot listen there; is it in use by another program?"
        )
    if settings.unix_path is not None:
        settings.unix_path.chmod(0o660)
        return address
    return f"{address.rpartition(':')[0]}:{port}"
