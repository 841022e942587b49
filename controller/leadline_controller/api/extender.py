"""The scheduler extender over HTTP, in the event loop of the scheduler.

kube-scheduler waits for every answer, one pod after the other, so whatever comes is answered or
cut off in time: there is a limit to how long, how much and how many. What goes wrong is said in
the protocol's own Error field where there is one, because of any other status than 200
kube-scheduler shows nothing but the number.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from leadline_controller.api import extender_protocol as protocol
from leadline_controller.api.extender_connections import Connections
from leadline_controller.api.extender_room import ByteBudget
from leadline_controller.api.settings import ExtenderSettings, ServeError
from leadline_controller.scheduling.extender_args import ExtenderArgs
from leadline_controller.scheduling.extender_service import ExtenderError, ExtenderService

log = logging.getLogger(__name__)
# What is no HTTP is answered as such; a traceback for each would fill the log.
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.setLevel(logging.CRITICAL)

Done = TypeVar("Done")
Body = bytes | bytearray
Pieces = list[bytes | memoryview]
Work = Callable[[Body], Awaitable[Pieces]]
_LINGER_S = 1.0
_SHUTDOWN_S = 2.0
_PIECE_BYTES = 64 * 1024
_LINES_A_MINUTE = 20
_NO_BIND = "binding is off; set bind = true in [extender], beside certificates in [extender.tls]"


@dataclass(frozen=True, slots=True)
class Limits:
    """answer_s: for a request to arrive and be answered, less than the 5 s that kube-scheduler
    waits. head_s: for a connection to bring its first request's head. idle_s: between two
    requests, longer than Go keeps a connection (90 s), so that it closes first.

    body_bytes: 5,000 nodes of 6.5 kB. held_bytes: of all long requests together. large_bytes: what
    is longer is long, and is read in a thread, one after the other. connections: at once, beside
    as many over which no request has come; peer_connections: from one address that is not this
    machine's.
    """

    answer_s: float = 4.0
    head_s: float = 5.0
    idle_s: float = 120.0
    body_bytes: int = 32 * 1024 * 1024
    held_bytes: int = 64 * 1024 * 1024
    large_bytes: int = 128 * 1024
    connections: int = 64
    peer_connections: int = 32


class ExtenderServer:
    """Offers filter, prioritize, bind and healthz at the settings' address."""

    def __init__(
        self,
        settings: ExtenderSettings,
        extender_service: ExtenderService,
        limits: Limits | None = None,
    ) -> None:
        self._settings = settings
        self._extender_service = extender_service
        self._limits = limits = limits or Limits()
        self._room = ByteBudget(limits.held_bytes)
        self._reading = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "extender")
        self._connections = Connections(limits.connections, limits.peer_connections, limits.head_s)
        self._runner: web.AppRunner | None = None
        self._log = _RationedLog()

    async def start(self) -> str:
        """Listen, and say where: the port is filled in. Raises ServeError."""
        settings, limits = self._settings, self._limits
        tls = settings.tls.server_context() if settings.tls else None
        application = web.Application(middlewares=[self._noted])
        application.router.add_get("/healthz", self._healthz)
        application.router.add_post("/filter", self._filter)
        application.router.add_post("/prioritize", self._prioritize)
        application.router.add_post("/bind", self._bind if settings.bind else self._refuse_bind)
        self._runner = runner = web.AppRunner(
            application,
            access_log=None,
            logger=_http_log,
            auto_decompress=False,  # nobody who should ask does that
            keepalive_timeout=limits.idle_s,
            lingering_time=_LINGER_S,
            shutdown_timeout=_SHUTDOWN_S,
            handler_cancellation=True,
        )
        await runner.setup()
        server = runner.server
        assert server is not None  # noqa: S101  # since it was set up
        try:
            port = await self._connections.listen(settings.host, settings.port, tls, server)
        except OSError as error:
            raise ServeError(
                f"extender address {settings.address}: cannot listen there: {error.strerror}"
            ) from None
        return f"{settings.address.rpartition(':')[0]}:{port}"

    async def stop(self) -> None:
        """Stop listening, and let requests finish for a moment."""
        self._connections.stop_listening()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._connections.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @web.middleware
    async def _noted(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        with self._connections.at_work(request):
            return await handler(request)

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        waiting = self._extender_service.not_ready_reason()
        return web.Response(status=503 if waiting else 200, text=f"{waiting or 'ok'}\n")

    async def _filter(self, request: web.Request) -> web.StreamResponse:
        async def work(body: Body) -> Pieces:
            await self._extender_service.wait_until_ready()
            async with self._turn(body):
                question = await self._question(body)
                await self._extender_service.wait_for_bandwidth(question)
                passing, failed = self._extender_service.filter(question)
            return protocol.filter_answer(question, passing, failed)

        return await self._answer(request, work)

    async def _prioritize(self, request: web.Request) -> web.StreamResponse:
        async def work(body: Body) -> Pieces:
            await self._extender_service.wait_until_ready()
            async with self._turn(body):
                question = await self._question(body)
                priorities = self._extender_service.prioritize(question)
            return [protocol.prioritize_answer(question, priorities)]

        # The answer is a bare list, so an error can only be a status.
        return await self._answer(request, work, status=400)

    async def _bind(self, request: web.Request) -> web.StreamResponse:
        async def work(body: Body) -> Pieces:
            async with self._turn(body):
                binding = await self._read(body, protocol.read_binding_args, body)
            await self._extender_service.bind(binding)
            return [protocol.bind_answer()]

        return await self._answer(request, work)

    async def _refuse_bind(self, _: web.Request) -> web.StreamResponse:
        self._log.put("bind", _NO_BIND)
        told = protocol.error_answer(f"leadline: {_NO_BIND}")
        return web.Response(status=404, body=told, content_type="application/json")

    async def _question(self, body: Body) -> ExtenderArgs:
        nodes = self._extender_service.nodes() if self._is_large(body) else None
        return await self._read(body, protocol.read_extender_args, body, nodes)

    async def _read(self, body: Body, read: Callable[..., Done], *arguments: object) -> Done:
        """What is read of the body, in a thread where it is large. Reading ends, soon, with the
        request."""
        if not self._is_large(body):
            return read(*arguments)
        stop = threading.Event()
        call = partial(read, *arguments, stopped=stop.is_set)
        work = asyncio.get_running_loop().run_in_executor(self._thread, call)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            # What it holds is not free before it has ended.
            await asyncio.wait((work,))
            if not work.cancelled() and (error := work.exception()) is not None:
                log.debug("reading ended with its request: %r", error)
            raise

    @asynccontextmanager
    async def _turn(self, body: Body) -> AsyncIterator[None]:
        """What is made of a body weighs more than the body, so only one large one is read and
        judged at a time."""
        if self._is_large(body):
            async with self._reading:
                yield
        else:
            yield

    def _is_large(self, body: Body) -> bool:
        return len(body) > self._limits.large_bytes

    async def _answer(
        self, request: web.Request, work: Work, status: int = 200
    ) -> web.StreamResponse:
        """Do the work on the body and send its result, or why there is none with `status`."""
        limit_s = self._limits.answer_s
        told = None
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(limit_s):
                    self._check_length(request.content_length or 0)
                    await held.enter_async_context(self._held(request))
                    body = await self._body(request)
                    self._connections.received(request)
                    answer = await work(body)
            except TimeoutError:
                told = self._extender_service.not_ready_reason() or self._too_slow(request)
            except (protocol.ProtocolError, ExtenderError) as error:
                told = str(error)
            except (web.RequestPayloadError, HttpProcessingError, ConnectionError) as error:
                told = f"the request broke off: {' '.join(str(error).split())}"
            except Exception as error:
                log.exception("answering %s", request.path)
                told = f"internal error, please report it: {error!r}"
            if told is not None:
                self._log.put(request.path.removeprefix("/"), told)
                answer = [protocol.error_answer(f"leadline: {told}")]
            return await self._sent(request, answer, 200 if told is None else status)

    async def _sent(self, request: web.Request, answer: Pieces, status: int) -> web.StreamResponse:
        """Send it to a client that may be slow to take it, or gone."""
        response = web.StreamResponse(status=status)
        response.content_type = "application/json"
        response.content_length = sum(map(len, answer))
        try:
            async with asyncio.timeout(self._limits.answer_s):
                await response.prepare(request)
                for piece in _joined(answer):
                    await response.write(piece)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        return response

    async def _body(self, request: web.Request) -> Body:
        body = bytearray()
        async for piece in request.content.iter_any():
            body += piece
            self._check_length(len(body))
        return body

    def _check_length(self, length: int) -> None:
        if length > self._limits.body_bytes:
            raise protocol.ProtocolError(
                f"the request is longer than {self._limits.body_bytes} bytes; "
                "set nodeCacheCapable: true"
            )

    @asynccontextmanager
    async def _held(self, request: web.Request) -> AsyncIterator[None]:
        """Keep what is held in memory within bounds. Short requests are bounded by the number of
        connections; one of unknown length counts as the longest there may be."""
        length = request.content_length
        length = self._limits.body_bytes if length is None else length
        if length <= self._limits.large_bytes:
            yield
        else:
            async with self._room.taken(length):
                yield

    def _too_slow(self, request: web.Request) -> str:
        length = request.content_length
        told = f"not answered within {self._limits.answer_s:g} s"
        if length is None or length > self._limits.large_bytes:
            told += (
                f" with {'many' if length is None else length} bytes; set nodeCacheCapable: true"
            )
        return told


class _RationedLog:
    """Logs what went wrong; kube-scheduler asks again and again, which is said once, and others
    may think of ever new mistakes."""

    def __init__(self) -> None:
        self._last = ""
        self._minute = 0.0
        self._left = 0
        self._left_out = 0

    def put(self, verb: str, told: str) -> None:
        """Log it, unless it was the last line or there are many."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._minute >= 60:
            self._minute, self._left = now_s, _LINES_A_MINUTE
        if told == self._last:
            return
        if not self._left:
            self._left_out += 1
            return
        self._last = told
        self._left -= 1
        more = f" ({self._left_out} more were left out)" if self._left_out else ""
        self._left_out = 0
        log.warning("%s: %s%s", verb, told, more)


def _joined(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The same in fewer pieces, so that each takes one call and none much memory."""
    some: Pieces = []
    size = 0
    for piece in pieces:
        some.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            yield b"".join(some)
            some, size = [], 0
    yield b"".join(some)
