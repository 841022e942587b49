"""A gRPC server behind the gate, with limited calls, health checking and reflection."""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # its stub leaves it out
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from leadline_controller.api import gate
from leadline_controller.api.calls import Calls, TextSafeServer
from leadline_controller.api.gate import Gate
from leadline_controller.api.listeners import cancel, file_id, listen, unlink_own
from leadline_controller.api.settings import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    ListenError,
    ServeError,
    ServeSettings,
)

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


class GrpcServer:
    """Serves services at the settings' address. services: their full names. register: adds them to
    a server behind a gate, of which there may be several, one after the other. stopping: called
    before the server waits for its calls, to end the streams. section: of the settings, for
    messages. port: 0 before it listens, and for a Unix socket."""

    def __init__(
        self,
        settings: ServeSettings,
        services: Sequence[str],
        register: Callable[[grpc.aio.Server, Gate], None],
        stopping: Callable[[], None],
        section: str,
    ) -> None:
        self._settings = settings
        self.port = 0
        self._services = services
        self._register = register
        self._stopping = stopping
        self._section = section
        self._health = health.aio.HealthServicer()
        self._cleanup = contextlib.AsyncExitStack()

    async def start(self) -> str:
        """Listen. Returns the address with the actual port; raises ServeError."""
        settings = self._settings
        # Before listening, to report unreadable certificates first.
        credentials = None if settings.tls is None else settings.tls.server_credentials()
        try:
            listeners, address = await listen(settings)
        except OSError:
            why = "; is it in use by another program?"
            raise ListenError(self._section, settings.address, why) from None
        if settings.unix_path is None:
            self.port = listeners[0].getsockname()[1]
        async with contextlib.AsyncExitStack() as cleanup:
            for listener in listeners:
                cleanup.callback(listener.close)
            if settings.unix_path is not None:
                made = file_id(settings.unix_path)
                cleanup.callback(unlink_own, settings.unix_path, made)
            for service in self._services:
                await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
            connection_gate = Gate()
            start_server = partial(self._started, connection_gate, credentials)
            cleanup.push_async_callback(connection_gate.close)
            serving = asyncio.create_task(_restart_failed(await start_server(), start_server))
            cleanup.push_async_callback(cancel, (serving,))
            connection_gate.start(listeners)
            cleanup.push_async_callback(self._health.enter_graceful_shutdown)
            cleanup.callback(self._stopping)
            cleanup.push_async_callback(connection_gate.stop_accepting)
            self._cleanup = cleanup.pop_all()
        return address

    async def stop(self) -> None:
        """End the streams, give calls two seconds to finish, and stop listening."""
        await self._cleanup.aclose()

    async def _started(self, connection_gate: Gate, credentials: Any) -> grpc.aio.Server:
        """Start a gRPC server that listens on a socket behind the gate."""
        server = grpc.aio.server(options=_OPTIONS, interceptors=(Calls(connection_gate),))
        self._register(server, connection_gate)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME), server
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
                    f"{self._section}: cannot listen at {socket_path}; is TMPDIR too long?"
                ) from None
            await server.start()
            connection_gate.relay_to(socket_path)
        return server


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
