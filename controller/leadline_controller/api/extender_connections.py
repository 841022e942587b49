"""Bounds the number of the extender's connections by closing the least useful one.

An attacker can open connections faster than they time out, so at the limit a new connection is
accepted and an old one closed. Among connections without a request this is the oldest, because
kube-scheduler sends its request within milliseconds. Among the others it is the one that has been
idle for the longest, because Go repeats a request when its idle connection was closed. The two
kinds have separate limits, so neither can displace the other.
"""

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum

from aiohttp import web

log = logging.getLogger(__name__)

# How many new connections are accepted before the others are served again, and how many wait in
# the kernel. The first is far below the limit of silent connections: a new one must not be closed
# before it could complete its handshake and send a request.
_ACCEPTED_AT_ONCE = 4
_BACKLOG = 512


class State(IntEnum):
    """What a connection is doing. Of all but silent ones, the lowest is closed first."""

    SILENT = 0  # no request has come, or not even a TLS handshake
    IDLE = 1  # between two requests
    RECEIVING = 2  # a request's body is incomplete, or waits for free bytes
    WORKING = 3


class Connections:
    """Accepts connections and hands them to aiohttp.

    limit: of connections at once, and of silent ones as well. peer_limit: from one address, except
    this machine, whose users share one. head_s: until the head of the first request must be here.
    """

    def __init__(self, limit: int, peer_limit: int, head_s: float) -> None:
        self._limit = limit
        self._peer_limit = peer_limit
        self._head_s = head_s
        self._open: dict[_Connection, None] = {}
        self._of_handler: dict[web.RequestHandler, _Connection] = {}
        self._server: asyncio.Server | None = None

    async def listen(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        make_handler: Callable[[], web.RequestHandler],
    ) -> int:
        """Accept connections at this address; port 0 takes a free one. Returns the port; raises
        OSError."""

        def accept() -> asyncio.Protocol:
            return _Connection(self, make_handler(), tls)

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(accept, host, port, backlog=_ACCEPTED_AT_ONCE)
        for each in self._server.sockets:
            with socket.socket(fileno=socket.dup(each.fileno())) as listening:
                listening.listen(_BACKLOG)
        bound_port: int = self._server.sockets[0].getsockname()[1]
        return bound_port

    def stop_listening(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._open):
            connection.abort()

    @contextmanager
    def request_in_progress(self, request: web.Request) -> Iterator[None]:
        """Track the state of the request's connection for as long as the context lasts."""
        connection = self._of_handler.get(request.protocol)
        if connection is None:
            yield
            return
        if connection.state is State.SILENT:
            self._close_one([each for each in self._open if each.state is not State.SILENT])
        connection.enter(State.RECEIVING)
        try:
            yield
        finally:
            connection.enter(State.IDLE)

    def received(self, request: web.Request) -> None:
        """The whole request is here."""
        connection = self._of_handler.get(request.protocol)
        if connection is not None:
            connection.enter(State.WORKING)

    def opened(self, connection: "_Connection") -> None:
        """Count a new connection, and close another one at the limit."""
        if not _is_this_machine(connection.peer):
            same = [each for each in self._open if each.peer == connection.peer]
            self._close_one(same, self._peer_limit)
        self._close_one([each for each in self._open if each.state is State.SILENT])
        self._open[connection] = None
        self._of_handler[connection.handler] = connection
        connection.enter(State.SILENT)
        loop = asyncio.get_running_loop()
        loop.call_later(self._head_s, connection.close_if_silent)

    def closed(self, connection: "_Connection") -> None:
        """Count a closed connection no more."""
        self._open.pop(connection, None)
        self._of_handler.pop(connection.handler, None)

    def _close_one(self, among: "list[_Connection]", limit: int | None = None) -> None:
        """Close the least useful of these, if their number has reached the limit."""
        if len(among) >= (self._limit if limit is None else limit):
            least = min(among, key=lambda each: (each.state, each.since_s))
            self.closed(least)
            least.abort()


class _Connection(asyncio.Protocol):
    """Relays between the transport and aiohttp's handler, which does not see a connection before
    its TLS handshake."""

    def __init__(
        self,
        connections: Connections,
        handler: web.RequestHandler,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.handler = handler
        self.peer = ""
        self.state = State.SILENT
        self.since_s = 0.0
        self._connections = connections
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._handed_over = False
        self._early: list[bytes] = []
        self._lost = False
        self._handshake: asyncio.Task[None] | None = None

    def enter(self, state: State) -> None:
        """Change the state."""
        self.state = state
        self.since_s = asyncio.get_running_loop().time()

    def abort(self) -> None:
        """Close it at once."""
        if self._handshake is not None:
            self._handshake.cancel()
        if self._transport is not None:
            self._transport.abort()

    def close_if_silent(self) -> None:
        """Close it if no request has arrived."""
        if self.state is State.SILENT and not self._lost:
            self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # what a server has
        self._transport = transport
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        self._connections.opened(self)
        if self._tls is None:
            self._hand_over(transport)
        else:
            transport.pause_reading()
            self._handshake = asyncio.get_running_loop().create_task(self._handshake_tls())

    def data_received(self, data: bytes) -> None:
        """Relay bytes; keep those that arrive before the handler is connected."""
        if self._handed_over:
            self.handler.data_received(data)
        else:
            self._early.append(data)

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        if self._handed_over:
            self.handler.eof_received()
        return None

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        if self._handed_over:
            self.handler.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._handed_over:
            self.handler.resume_writing()

    def connection_lost(self, error: BaseException | None) -> None:
        """The connection is closed."""
        self._lost = True
        self._connections.closed(self)
        if self._handed_over:
            self.handler.connection_lost(error)

    async def _handshake_tls(self) -> None:
        # `connection_made` starts this, and only with TLS.
        assert self._transport is not None and self._tls is not None  # noqa: S101, PT018
        plain, loop = self._transport, asyncio.get_running_loop()
        try:
            # `close_if_silent` ends a handshake that takes too long.
            secured = await loop.start_tls(plain, self, self._tls, server_side=True)
        except (OSError, asyncio.CancelledError):
            self._connections.closed(self)
            plain.abort()
            return
        if secured is None or self._lost:
            plain.abort()
            return
        self._transport = secured
        self._hand_over(secured)

    def _hand_over(self, transport: asyncio.Transport) -> None:
        self._handed_over = True
        self.handler.connection_made(transport)
        early, self._early = self._early, []
        for data in early:
            self.handler.data_received(data)


def _is_this_machine(peer: str) -> bool:
    with suppress(ValueError):
        address = ipaddress.ip_address(peer.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback
    return False
