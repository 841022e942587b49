"""A gRPC server at each of its addresses, with health checking and reflection.

gRPC's own limits bound what callers can take. Each address has them for itself, so whoever fills a
TCP port leaves the socket of this machine alone.

Private names of grpcio are patched here, so pyproject.toml bounds its version, and the tests of
unknown methods fail when they move.
"""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # its stub leaves it out
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from leadline_controller.serve.settings import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    UNIX_PREFIX,
    ListenError,
    ServeSettings,
)

Context = grpc.aio.ServicerContext[Any, Any]
MAX_CALLS = 64
MAX_UNREAD_BYTES = 2 * MAX_ANSWER_BYTES
HANDSHAKE_S = 2.0
# Of one address; in its TLS handshake each takes 22 kB.
MAX_CONNECTIONS, _MIN_CONNECTIONS = 1536, 8
# For the API server, the broker, the database and the extender.
_RESERVED_DESCRIPTORS = 512
_MADE_AT_ONCE = 4
_GRACE_S = 2.0
_OPTIONS = (
    # Another program must not take a share of the port's connections.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", MAX_ANSWER_BYTES),
    # For each connection, streams without a request included.
    ("grpc.max_concurrent_streams", 32),
    ("grpc.max_metadata_size", 8 * 1024),
    # Until the client's first frame, after TLS.
    ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),
    ("grpc.max_connection_idle_ms", 60_000),
    # Nothing else ends the calls of a client that does not read its answers.
    ("grpc.max_connection_age_ms", 3_600_000),
    ("grpc.max_connection_age_grace_ms", 10_000),
    # Without an answer to a ping in this time the client is gone.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    # How often clients may send pings.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 2),
)


class GrpcServer:
    """Serves services at the settings' addresses. services: their full names. register: adds them
    to the server of an address. stopping: called before the servers wait for their calls, to end
    the streams. section: of the settings, for messages."""

    def __init__(
        self,
        settings: ServeSettings,
        services: Sequence[str],
        register: Callable[[grpc.aio.Server], None],
        stopping: Callable[[], None],
        section: str,
    ) -> None:
        self._settings = settings
        self._services = services
        self._register = register
        self._stopping = stopping
        self._section = section
        self._health = health.aio.HealthServicer()
        self._cleanup = contextlib.AsyncExitStack()

    async def start(self) -> str:
        """Listen. Returns the addresses with the actual ports; raises ServeError."""
        for service in self._services:
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        async with contextlib.AsyncExitStack() as cleanup:
            addresses = [await self._listen(place, cleanup) for place in self._settings.each]
            cleanup.push_async_callback(self._health.enter_graceful_shutdown)
            cleanup.callback(self._stopping)
            self._cleanup = cleanup.pop_all()
        return ",".join(addresses)

    async def stop(self) -> None:
        """End the streams, give calls two seconds to finish, and stop listening."""
        await self._cleanup.aclose()

    async def _listen(self, place: ServeSettings, cleanup: contextlib.AsyncExitStack) -> str:
        """Serve at one address, which is returned with the actual port. Raises ServeError."""
        options = (*_OPTIONS, ("grpc.max_allowed_incoming_connections", affordable_connections()))
        server = grpc.aio.server(
            options=options, interceptors=(_Guard(),), maximum_concurrent_rpcs=MAX_CALLS
        )
        self._register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        try:
            with contextlib.ExitStack() as binding:
                path, bound = place.unix_path, place.address
                if path is not None:
                    bound = binding.enter_context(_moved_to(path))
                if place.tls is None:
                    port = server.add_insecure_port(bound)
                else:
                    port = server.add_secure_port(bound, place.tls.server_credentials())
                await server.start()
                cleanup.push_async_callback(server.stop, _GRACE_S)
        except (OSError, RuntimeError) as error:
            why = "; is it in use by another program?"
            if isinstance(error, OSError) and error.errno != errno.EADDRINUSE:
                why = f": {error.strerror}"
            raise ListenError(self._section, place.address, why) from None
        if path is None:
            return f"{place.address.rpartition(':')[0]}:{port}"
        cleanup.callback(_remove, path, path.stat().st_ino)
        return place.address


class _TextSafeServer(cygrpc.AioServer):  # type: ignore[misc]  # the library leaves it untyped
    """gRPC's server, protected from method names that are not UTF-8, one of which would end it, and
    then the process by a segmentation fault (1.85).

    gRPC handles the calls of registered methods itself, so only calls of unknown methods arrive
    here. They are refused without decoding the name.
    """

    async def _request_call(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        answering: set[asyncio.Task[None]] = set()
        while True:
            state = await super()._request_call()
            context = cygrpc._ServicerContext(state, None, None, loop)
            task = loop.create_task(_refuse_unknown(context))
            answering.add(task)
            task.add_done_callback(answering.discard)


async def _refuse_unknown(context: Context) -> None:
    try:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")
    except Exception as error:  # noqa: BLE001  # also if the caller is gone, or gRPC about to stop
        # The call holds the error, and the error's frames hold the call. The collector of such
        # cycles comes seldom, and until then the call counts against its connection's streams.
        error.__traceback__ = None


cygrpc.AioServer = _TextSafeServer


class _Guard(grpc.aio.ServerInterceptor):
    """Refuses requests that cannot be read, for which gRPC may print a traceback each, and bounds
    the memory of answers: few are made at once, and none is sent while too many bytes of others are
    not read."""

    def __init__(self) -> None:
        self._making = asyncio.Semaphore(_MADE_AT_ONCE)
        self._unread_bytes = 0

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Wrap the handler of a method."""
        handler = await continuation(details)
        if handler is None:
            return None
        read = _none_if_unreadable(handler.request_deserializer)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._answering(handler), read)

        async def streamed(request: Any, context: Context) -> AsyncIterator[Any]:
            request = await _checked(request, context)
            async with contextlib.aclosing(handle(request, context)) as events:
                async for event in events:
                    yield event

        async def written(request: Any, context: Context) -> None:
            await handle(await _checked(request, context), context)

        if (handle := handler.stream_stream) is not None:
            return grpc.stream_stream_rpc_method_handler(
                streamed, read, handler.response_serializer
            )
        handle = handler.unary_stream
        return grpc.unary_stream_rpc_method_handler(
            written if asyncio.iscoroutinefunction(handle) else streamed,
            read,
            handler.response_serializer,
        )

    def _answering(self, handler: Any) -> Callable[[Any, Context], Awaitable[bytes]]:
        async def answer(request: Any, context: Context) -> bytes:
            request = await _checked(request, context)
            async with self._making:
                made = handler.response_serializer(await handler.unary_unary(request, context))
            content: bytes = made
            if self._unread_bytes and self._unread_bytes + len(content) > MAX_UNREAD_BYTES:
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    "other answers are not read yet; try again later",
                )
            self._unread_bytes += len(content)
            context.add_done_callback(lambda _: self._read(len(content)))  # type: ignore[arg-type]  # a stub's mistake
            return content

        return answer

    def _read(self, size: int) -> None:
        self._unread_bytes -= size


def _none_if_unreadable(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(content: bytes) -> Any:
        try:
            return deserialize(content)
        except Exception:  # noqa: BLE001  # each version of protobuf raises another one
            return None

    return read


async def _checked(request: Any, context: Context) -> Any:
    """The request, or the requests of a stream. Aborts the call at one that cannot be read."""
    if isinstance(request, AsyncIterator):
        return _each_checked(request, context)
    if request is None:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request can't be read")
    return request


async def _each_checked(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
    async for request in requests:
        yield await _checked(request, context)


def affordable_connections() -> int:
    """How many connections of one address the process's file descriptors allow."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(_MIN_CONNECTIONS, (files - _RESERVED_DESCRIPTORS) // 2))


@contextlib.contextmanager
def _moved_to(path: Path) -> Iterator[str]:
    """The address where gRPC binds the socket of this path: in a folder that only this user enters,
    because until the end anyone may connect whom the umask lets. Raises OSError."""
    path.parent.mkdir(exist_ok=True)
    if path.exists() and not _is_abandoned(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as folder:
        bound = Path(folder) / "s"
        yield f"{UNIX_PREFIX}{bound}"
        bound.chmod(0o660)
        bound.replace(path)


def _is_abandoned(path: Path) -> bool:
    """Whether it is a socket and the kernel refuses connections, as nobody listens. A server that
    is stopped or has a full queue serves it, too."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        return (
            stat.S_ISSOCK(path.stat().st_mode)
            and asking.connect_ex(str(path)) == errno.ECONNREFUSED
        )


def _remove(path: Path, inode: int) -> None:
    """Remove our socket, unless another program has put its own there."""
    with contextlib.suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()
