"""The scheduler extender over HTTP, in the event loop of the scheduler.

kube-scheduler waits for every answer before it goes on to the next pod, so each request has a
limit of time and size, and there is a limit on how many there are. Errors go into the protocol's
Error field where it has one, because kube-scheduler shows only the number of a status other
than 200.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from leadline_controller.extender import protocol
from leadline_controller.extender.service import (
    ExtenderArgs,
    ExtenderError,
    ExtenderService,
)
from leadline_controller.serve.http_server import HttpLimits, HttpServer, send
from leadline_controller.serve.settings import ExtenderSettings

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Body = bytes | bytearray
Chunks = list[bytes | memoryview]
Handler = Callable[[Body], Awaitable[Chunks]]
_CHUNK_BYTES = 64 * 1024
_NO_BIND = "binding is off; set bind = true in [extender], beside certificates in [extender.tls]"


@dataclass(frozen=True, slots=True)
class Limits(HttpLimits):
    """What the server bears of its clients."""

    answer_s: float = 4.0  # to receive and answer a request; kube-scheduler waits 5 s
    body_bytes: int = 32 * 1024 * 1024  # of one request, enough for 5,000 nodes of 6.5 kB
    # A larger body is parsed in a thread, one at a time; so many as large_at_once are received.
    large_bytes: int = 128 * 1024
    large_at_once: int = 2
    connections: int = 64
    peer_connections: int = 32


class ExtenderServer:
    """Serves filter, prioritize, bind and healthz at the settings' address. observe: told of each
    answer's verb, how many seconds it took, and whether it is an error."""

    def __init__(
        self,
        settings: ExtenderSettings,
        extender_service: ExtenderService,
        limits: Limits | None = None,
        observe: Callable[[str, float, bool], None] = lambda _verb, _s, _failed: None,
    ) -> None:
        self._observe = observe
        self._settings = settings
        self._service = extender_service
        self._limits = limits = limits or Limits()
        self._received = asyncio.Semaphore(limits.large_at_once)
        self._large = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "extender")
        self._server = HttpServer("extender", settings, limits)
        self._last: protocol.ReadPod | None = None

    async def start(self) -> str:
        """Listen. Returns the address with the actual port; raises ServeError."""
        settings = self._settings
        tls = settings.tls.server_context() if settings.tls else None
        # HostPriorityList has no Error field, so an error can only be a status.
        prioritize = partial(self._answer, self._prioritize, error_status=400)
        bind = partial(self._answer, self._bind) if settings.bind else self._refuse_bind
        routes = (
            web.get("/healthz", self._healthz),
            web.post("/filter", partial(self._answer, self._filter)),
            web.post("/prioritize", prioritize),
            web.post("/bind", bind),
        )
        return await self._server.start(routes, tls)

    async def stop(self) -> None:
        """Stop listening, and give requests in progress two seconds."""
        await self._server.stop()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        waiting = self._service.not_ready_reason()
        return web.Response(status=503 if waiting else 200, text=f"{waiting or 'ok'}\n")

    async def _filter(self, body: Body) -> Chunks:
        await self._service.wait_until_ready()
        async with self._turn(body):
            args = await self._args(body)
            await self._service.wait_for_bandwidth(args)
            passing, failed = self._service.filter(args)
        # Runs once the answer is sent, which takes this task no turn more.
        asyncio.get_running_loop().call_soon(self._service.prepare)
        return protocol.filter_result(args, passing, failed)

    async def _prioritize(self, body: Body) -> Chunks:
        await self._service.wait_until_ready()
        async with self._turn(body):
            args = await self._args(body)
            priorities = self._service.prioritize(args)
        return [protocol.host_priorities(args, priorities)]

    async def _bind(self, body: Body) -> Chunks:
        await self._service.bind(protocol.read_binding_args(body))
        return [protocol.error_result("")]

    async def _refuse_bind(self, _: web.Request) -> web.StreamResponse:
        log.warning("bind: %s", _NO_BIND)
        body = protocol.error_result(f"leadline: {_NO_BIND}")
        return web.Response(status=404, body=body, content_type="application/json")

    async def _args(self, body: Body) -> ExtenderArgs:
        nodes = self._service.nodes()
        args = await self._parse(protocol.read_extender_args, body, nodes, self._last)
        self._last = protocol.ReadPod(args.pod_json, args.pod)
        return args

    async def _parse(self, parse: Callable[..., Result], body: Body, *others: object) -> Result:
        """Parse the body, in a thread if it is large. If the request ends, so does the thread's
        work, soon after."""
        if not self._is_large(body):
            return parse(body, *others)
        stop = threading.Event()
        call = partial(parse, body, *others, stopped=stop.is_set)
        parsing = asyncio.get_running_loop().run_in_executor(self._thread, call)
        try:
            return await asyncio.shield(parsing)
        except asyncio.CancelledError:
            stop.set()
            # Its memory is in use until it ends.
            await asyncio.wait((parsing,))
            if not parsing.cancelled() and (error := parsing.exception()) is not None:
                log.debug("parsing ended with its request: %r", error)
            raise

    def _turn(self, body: Body) -> AbstractAsyncContextManager[None]:
        """Handle one large body at a time, because what is parsed from it takes more memory than
        the body."""
        return self._large if self._is_large(body) else nullcontext()

    def _is_large(self, body: Body) -> bool:
        return len(body) > self._limits.large_bytes

    async def _answer(
        self, handle: Handler, request: web.Request, error_status: int = 200
    ) -> web.StreamResponse:
        """Handle the body and send the answer; on an error send its message."""
        limit_s, now_s = self._limits.answer_s, asyncio.get_running_loop().time
        problem, begun_s = None, now_s()
        async with AsyncExitStack() as resources:
            try:
                async with asyncio.timeout(limit_s):
                    self._check_length(request.content_length or 0)
                    await resources.enter_async_context(self._room(request))
                    body = await self._body(request)
                    self._server.received(request)
                    answer = await handle(body)
            except TimeoutError:
                problem = self._service.not_ready_reason() or self._too_slow(request)
            except (protocol.ProtocolError, ExtenderError) as error:
                problem = str(error)
            except (web.RequestPayloadError, HttpProcessingError, ConnectionError) as error:
                problem = f"the request broke off: {' '.join(str(error).split())}"
            except Exception as error:
                log.exception("answering %s", request.path)
                problem = f"internal error, please report it: {error!r}"
            self._observe(request.path[1:], now_s() - begun_s, problem is not None)
            if problem is not None:
                log.warning("%s: %s", request.path.removeprefix("/"), problem)
                answer = [protocol.error_result(f"leadline: {problem}")]
            response = web.StreamResponse(status=200 if problem is None else error_status)
            response.content_type = "application/json"
            response.content_length = sum(map(len, answer))
            return await send(request, response, _larger_chunks(answer), limit_s)

    async def _body(self, request: web.Request) -> Body:
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
            self._check_length(len(body))
        return body

    def _check_length(self, length: int) -> None:
        if length > self._limits.body_bytes:
            raise protocol.ProtocolError(
                f"the request is longer than {self._limits.body_bytes} bytes; "
                "set nodeCacheCapable: true"
            )

    def _room(self, request: web.Request) -> AbstractAsyncContextManager[None]:
        """Bound the memory of large requests, and of those of unknown length; the number of
        connections bounds that of the others."""
        length = request.content_length
        is_large = length is None or length > self._limits.large_bytes
        return self._received if is_large else nullcontext()

    def _too_slow(self, request: web.Request) -> str:
        length = request.content_length
        problem = f"not answered within {self._limits.answer_s:g} s"
        if length is None or length > self._limits.large_bytes:
            problem += (
                f" with {'many' if length is None else length} bytes; set nodeCacheCapable: true"
            )
        return problem


def _larger_chunks(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Join chunks to about 64 kB, for fewer calls without a copy of the whole."""
    joined: Chunks = []
    size = 0
    for chunk in chunks:
        joined.append(chunk)
        size += len(chunk)
        if size >= _CHUNK_BYTES:
            yield b"".join(joined)
            joined, size = [], 0
    yield b"".join(joined)
