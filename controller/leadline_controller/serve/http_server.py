"""What the HTTP servers share: aiohttp behind bounded connections, in the scheduler's event loop.

aiohttp's own sites would accept as many connections as there are, as fast as they come.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

from leadline_controller.serve.http_connections import Connections
from leadline_controller.serve.listeners import listen, peer_of
from leadline_controller.serve.settings import ListenAddress, ListenError

# aiohttp answers requests that are not HTTP; its traceback for each would fill the log.
_log = logging.getLogger(f"{__name__}.aiohttp")
_log.setLevel(logging.CRITICAL)

_LINGER_S = 1.0
_SHUTDOWN_S = 2.0


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a server bears of connections."""

    head_s: float = 5.0  # from a new connection to the head of its first request
    # Between two requests, longer than the 90 s of Go, so that Go closes the connection first.
    idle_s: float = 120.0
    connections: int = 16  # at once, and as many again without a request yet
    peer_connections: int = 8  # from one address, except this machine's
    # Until a client that is out of reach, such as a phone that left, is given up; None for the
    # kernel's default of minutes.
    gone_s: float | None = None


class HttpServer:
    """Serves at the address of a section of the settings. listener: a socket that listens already,
    in place of the address."""

    def __init__(
        self,
        section: str,
        settings: ListenAddress,
        limits: HttpLimits,
        listener: socket.socket | None = None,
    ) -> None:
        self._section, self._settings, self._listener = section, settings, listener
        self._connections = Connections(limits.connections, limits.peer_connections, limits.head_s)
        self._idle_s, self._gone_s = limits.idle_s, limits.gone_s
        self._runner: web.AppRunner | None = None

    async def start(
        self,
        routes: Iterable[web.RouteDef],
        tls: ssl.SSLContext | None,
        middlewares: Iterable[Middleware] = (),
    ) -> str:
        """Listen. Returns the address with the actual port; raises ListenError."""
        application = web.Application(middlewares=[self._connections.track, *middlewares])
        application.add_routes(routes)
        self._runner = runner = web.AppRunner(
            application,
            access_log=None,
            logger=_log,
            auto_decompress=False,  # no client compresses, and little can become much
            keepalive_timeout=self._idle_s,
            lingering_time=_LINGER_S,
            shutdown_timeout=_SHUTDOWN_S,
            handler_cancellation=True,
        )
        await runner.setup()
        assert runner.server is not None  # noqa: S101  # set up above
        try:
            listeners, address = await self._listen()
        except OSError as error:
            await runner.cleanup()
            self._runner = None
            why = f": {str(error.strerror).partition(' (while')[0]}"  # where is said already
            raise ListenError(self._section, self._settings.address, why) from None
        self._connections.start(listeners, tls, runner.server)
        return address

    async def _listen(self) -> tuple[list[socket.socket], str]:
        if self._listener is None:
            listeners, address = await listen(self._settings)
        else:
            self._listener.setblocking(False)
            listeners = [self._listener]
            address = "{}:{}".format(*self._listener.getsockname())
        if self._gone_s is not None:
            for each in listeners:  # connections inherit it
                gone_ms = round(self._gone_s * 1000)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, gone_ms)
        return listeners, address

    def received(self, request: web.Request) -> None:
        """The whole body of a request is here."""
        self._connections.received(request)

    async def stop(self, *, at_once: bool = False) -> None:
        """Stop listening, and give requests in progress two seconds, or no time at all."""
        await self._connections.stop_accepting()
        if at_once:
            self._connections.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._connections.close()


def peer(request: web.Request) -> str:
    """Who shares the limits of the request's connection."""
    transport = request.transport
    return peer_of(None if transport is None else transport.get_extra_info("peername"))


async def send(
    request: web.Request, response: web.StreamResponse, body: Iterable[bytes], limit_s: float
) -> web.StreamResponse:
    """Send the whole answer within so many seconds, else close the connection. The response has
    its length already; to HEAD it goes without the body."""
    with leaving(request):
        async with asyncio.timeout(limit_s):
            await response.prepare(request)
            if request.method != "HEAD":
                for chunk in body:
                    await response.write(chunk)
            await response.write_eof()
    return response


@contextmanager
def leaving(request: web.Request) -> Iterator[None]:
    """A client that reads too slowly loses its connection, and one that is gone is no error."""
    try:
        yield
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:
        pass
