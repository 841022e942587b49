"""Bounds the number of an HTTP server's connections by closing the least useful one.

An attacker can open connections faster than they time out, so at the limit a new connection is
accepted and an old one closed. Among connections without a request this is the oldest, because
kube-scheduler sends its request within milliseconds. Among the others it is the one that has been
idle for the longest, because Go repeats a request when its idle connection was closed. The two
kinds have separate limits, so neither can displace the other.
"""

import asyncio
import socket
import ssl
import traceback
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from aiohttp import web

from leadline_controller.serve.listeners import THIS_MACHINE, accept, cancel, peer_of
from leadline_controller.serve.turns import of_the_fullest

# Far below the limit of silent connections: a new one must not be closed before it could complete
# its handshake and send a request.
_ACCEPTED_AT_ONCE = 4
_TLS_HANDSHAKE = b"\x16"  # the type of the first record, RFC 8446, section 5.1


class State(IntEnum):
    """What a connection is doing. Of all but silent ones, the lowest is closed first."""

    SILENT = 0  # no request has come, or not even a TLS handshake
    IDLE = 1  # between two requests
    RECEIVING = 2  # a request's body is incomplete, or waits for free bytes
    WORKING = 3


@dataclass(eq=False, slots=True)
class _Connection:
    """A client's connection."""

    client: socket.socket
    peer: str  # as peer_of says
    handler: web.RequestHandler  # aiohttp's, which does not see it before its TLS handshake
    opening: asyncio.Task[None]  # until then
    since_s: float  # when its state began
    state: State = State.SILENT

    def enter(self, state: State) -> None:
        """Change the state."""
        self.state, self.since_s = state, asyncio.get_running_loop().time()

    def is_open(self) -> bool:
        """Whether it is not closed yet."""
        return not self.opening.done() or self.handler.transport is not None

    def abort(self) -> None:
        """Close it at once. A handshake fails, as its socket ends."""
        if self.handler.transport is not None:
            self.handler.transport.abort()
        elif not self.opening.done():
            with suppress(OSError):
                self.client.shutdown(socket.SHUT_RDWR)


class Connections:
    """Accepts connections and hands them to aiohttp.

    limit: of connections at once, and of silent ones as well. peer_limit: from one address, except
    this machine, whose users share one. head_s: until the head of the first request must be here.
    """

    def __init__(self, limit: int, peer_limit: int, head_s: float) -> None:
        self._limit = limit
        self._peer_limit = peer_limit
        self._head_s = head_s
        # Those that are closed stay until the next one comes.
        self._connections: dict[web.RequestHandler, _Connection] = {}
        self._accepting: list[asyncio.Task[None]] = []

    def start(
        self,
        listeners: Iterable[socket.socket],
        tls: ssl.SSLContext | None,
        make_handler: Callable[[], web.RequestHandler],
    ) -> None:
        """Accept from these sockets, and close them in the end."""
        admit = partial(self._admit, tls, make_handler)
        self._accepting = [
            asyncio.create_task(accept(each, admit, _ACCEPTED_AT_ONCE)) for each in listeners
        ]

    async def stop_accepting(self) -> None:
        """Accept no more connections."""
        await cancel(self._accepting)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.abort()

    @web.middleware
    async def track(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Keep the state of a connection while its request is handled."""
        connection = self._connections.get(request.protocol)
        if connection is None:
            return await handler(request)
        if connection.state is State.SILENT:
            self._make_room(lambda each: each.state is not State.SILENT, self._limit)
        connection.enter(State.RECEIVING if request.can_read_body else State.WORKING)
        try:
            return await handler(request)
        finally:
            connection.enter(State.IDLE)

    def received(self, request: web.Request) -> None:
        """The whole request is here."""
        connection = self._connections.get(request.protocol)
        if connection is not None:
            connection.enter(State.WORKING)

    async def _admit(
        self,
        tls: ssl.SSLContext | None,
        make_handler: Callable[[], web.RequestHandler],
        client: socket.socket,
        address: object,
    ) -> None:
        """Count a new connection, and close another one at the limit."""
        if (peer := peer_of(address)) != THIS_MACHINE:
            self._make_room(lambda each: each.peer == peer, self._peer_limit)
        self._make_room(lambda each: each.state is State.SILENT, self._limit)
        handler, loop = make_handler(), asyncio.get_running_loop()
        opening = loop.create_task(_hand_over(client, tls, handler))
        connection = _Connection(client, peer, handler, opening, loop.time())
        self._connections[handler] = connection
        loop.call_later(self._head_s, self._close_if_silent, connection)

    def _close_if_silent(self, connection: _Connection) -> None:
        if connection.state is State.SILENT:
            connection.abort()

    def _make_room(self, counts: Callable[[_Connection], bool], limit: int) -> None:
        """Close the least useful of the connections that count, if their number has reached the
        limit: of those, one of the peer that has the most."""
        self._connections = {x.handler: x for x in self._connections.values() if x.is_open()}
        among = [each for each in self._connections.values() if counts(each)]
        if len(among) >= limit:
            state = min(each.state for each in among)
            useless = (each for each in among if each.state is state)
            least = min(of_the_fullest(useless, _peer), key=lambda each: each.since_s)
            del self._connections[least.handler]
            least.abort()


def _peer(connection: _Connection) -> str:
    return connection.peer


async def _hand_over(
    client: socket.socket, tls: ssl.SSLContext | None, handler: web.RequestHandler
) -> None:
    """Have aiohttp serve the connection, after its handshake; Connections bounds its time."""
    if tls is not None and not await _begins_handshake(client):
        client.close()
        return
    try:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: handler, client, ssl=tls)
    except OSError as error:
        # They hold each other: the error these frames, and a frame the future with the error. The
        # collector of such cycles comes seldom, and asyncio has 256 KiB for each handshake.
        traceback.clear_frames(error.__traceback__)


async def _begins_handshake(client: socket.socket) -> bool:
    """Whether the client begins a handshake of TLS, once it sends anything; it need not, and TLS
    takes a quarter of a MiB."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(client, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(client)
    with suppress(OSError):
        return client.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE
    return False
