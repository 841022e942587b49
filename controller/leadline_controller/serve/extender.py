"""The scheduler extender over HTTP, in the event loop of the scheduler.

kube-scheduler waits for every answer, one pod after the other, so whatever comes is answered or
cut off in time: there is a limit to how long, how much and how many. What goes wrong is said in
the protocol's own Error field where there is one, because of any other status than 200
kube-scheduler shows nothing but the number.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from leadline_controller.serve import extender_protocol as protocol
from leadline_controller.serve.extender_adviser import AdviceError, Adviser
from leadline_controller.serve.settings import ExtenderSettings, ServeError

log = logging.getLogger(__name__)
# What is no HTTP is answered as such; a traceback for each would fill the log.
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.setLevel(logging.CRITICAL)

Done = TypeVar("Done")
Work = Callable[[bytes], Awaitable[bytes]]
_LINGER_S = 1.0
_SHUTDOWN_S = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """answer_s: for a request to arrive and be answered, less than the 5 s that kube-scheduler
    waits. head_s: for a connection to bring its first request's head. idle_s: between two
    requests, longer than Go keeps a connection (90 s), so that it closes first.
    body_bytes: 10,000 nodes of 13 kB. large_bytes: what is read in a thread; large_at_once: how
    many such requests are held in memory. connections: at once."""

    answer_s: float = 4.0
    head_s: float = 5.0
    idle_s: float = 120.0
    body_bytes: int = 128 * 1024 * 1024
    large_bytes: int = 256 * 1024
    large_at_once: int = 2
    connections: int = 64


class ExtenderServer:
    """Offers filter, prioritize, bind and healthz at the settings' address."""

    def __init__(
        self, settings: ExtenderSettings, adviser: Adviser, limits: Limits | None = None
    ) -> None:
        self._settings = settings
        self._adviser = adviser
        self._limits = limits or Limits()
        self._large = asyncio.Semaphore(self._limits.large_at_once)
        self._thread = ThreadPoolExecutor(1, "extender")
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._silent: set[web.RequestHandler] = set()
        self._last_told = ""

    async def start(self) -> str:
        """Listen, and say where: the port is filled in. Raises ServeError."""
        settings, limits = self._settings, self._limits
        tls = settings.tls.server_context() if settings.tls else None
        application = web.Application(client_max_size=limits.body_bytes)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_post("/filter", self._filter)
        application.router.add_post("/prioritize", self._prioritize)
        application.router.add_post("/bind", self._bind)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=_http_log,
            auto_decompress=False,  # nobody who should ask does that
            keepalive_timeout=limits.idle_s,
            lingering_time=_LINGER_S,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await self._runner.setup()
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._accept,
                settings.host,
                settings.port,
                ssl=tls,
                ssl_handshake_timeout=limits.head_s if tls else None,
            )
        except OSError as error:
            raise ServeError(
                f"extender address {settings.address}: cannot listen there: {error.strerror}"
            ) from None
        port = self._server.sockets[0].getsockname()[1]
        return f"{settings.address.rpartition(':')[0]}:{port}"

    async def stop(self) -> None:
        """Stop listening, and let requests finish for a moment."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _accept(self) -> asyncio.BaseProtocol:
        server = self._runner.server if self._runner else None
        if server is None or len(server.connections) >= self._limits.connections:
            return _Refused()
        handler: web.RequestHandler = server()
        self._silent.add(handler)
        asyncio.get_running_loop().call_later(self._limits.head_s, self._cut_off, handler)
        return handler

    def _cut_off(self, handler: web.RequestHandler) -> None:
        """Close a connection over which no request has come."""
        if handler in self._silent:
            self._silent.discard(handler)
            handler.force_close()

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        self._silent.discard(request.protocol)
        waiting = self._adviser.not_ready()
        return web.Response(status=503 if waiting else 200, text=f"{waiting or 'ok'}\n")

    async def _filter(self, request: web.Request) -> web.StreamResponse:
        async def work(body: bytes) -> bytes:
            question = await self._computed(body, protocol.read_question, body)
            await self._adviser.ready()
            await self._adviser.settled(question)
            passing, failed = self._adviser.filter(question)
            return await self._computed(body, protocol.filter_answer, question, passing, failed)

        return await self._answer(request, work)

    async def _prioritize(self, request: web.Request) -> web.StreamResponse:
        async def work(body: bytes) -> bytes:
            question = await self._computed(body, protocol.read_question, body)
            await self._adviser.ready()
            priorities = self._adviser.prioritize(question)
            return protocol.prioritize_answer(question, priorities)

        # The answer is a bare list, so an error can only be a status.
        return await self._answer(request, work, status=400)

    async def _bind(self, request: web.Request) -> web.StreamResponse:
        async def work(body: bytes) -> bytes:
            await self._adviser.bind(await self._computed(body, protocol.read_binding, body))
            return protocol.bind_answer()

        return await self._answer(request, work)

    async def _computed(
        self, body: bytes, compute: Callable[..., Done], *arguments: object
    ) -> Done:
        """The result of a pure function, in a thread where the body is large."""
        if len(body) <= self._limits.large_bytes:
            return compute(*arguments)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, compute, *arguments)

    async def _answer(
        self, request: web.Request, work: Work, status: int = 200
    ) -> web.StreamResponse:
        """Do the work on the body and send its result, or why there is none with `status`."""
        self._silent.discard(request.protocol)
        limit_s = self._limits.answer_s
        told = None
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(limit_s):
                    await held.enter_async_context(self._room(request))
                    answer = await work(await self._body(request))
            except TimeoutError:
                told = self._adviser.not_ready() or f"not answered within {limit_s:g} s"
            except (protocol.ProtocolError, AdviceError) as error:
                told = str(error)
            except (web.RequestPayloadError, HttpProcessingError, ConnectionError) as error:
                told = f"the request broke off: {' '.join(str(error).split())}"
            except Exception as error:
                log.exception("answering %s", request.path)
                told = f"internal error, please report it: {error!r}"
            if told is not None:
                self._say(request.path, told)
                answer = protocol.error_answer(f"leadline: {told}")
            response = web.Response(
                body=answer, status=200 if told is None else status, content_type="application/json"
            )
            return await self._sent(request, response)

    async def _sent(self, request: web.Request, response: web.Response) -> web.Response:
        """Send it to a client that may be slow to take it, or gone."""
        try:
            async with asyncio.timeout(self._limits.answer_s):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        return response

    async def _body(self, request: web.Request) -> bytes:
        limit = self._limits.body_bytes
        if (request.content_length or 0) <= limit:
            try:
                return await request.read()
            except web.HTTPRequestEntityTooLarge:
                pass
        raise protocol.ProtocolError(
            f"the request is longer than {limit} bytes; set nodeCacheCapable: true"
        )

    @asynccontextmanager
    async def _room(self, request: web.Request) -> AsyncIterator[None]:
        """Keep what is held in memory within bounds."""
        length = request.content_length
        if length is not None and length <= self._limits.large_bytes:
            yield
        else:
            async with self._large:
                yield

    def _say(self, path: str, told: str) -> None:
        """Log what went wrong; kube-scheduler asks again and again, which is said once."""
        if told != self._last_told:
            self._last_told = told
            log.warning("%s: %s", path.removeprefix("/"), told)


class _Refused(asyncio.Protocol):
    """Hangs up on a connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it at once."""
        if isinstance(transport, asyncio.Transport):
            transport.abort()
