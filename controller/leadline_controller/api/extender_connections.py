"""The extender's connections: bounded in number, and whoever does least gives way to who comes.

An attacker can open connections faster than they time out. So where there are too many, nobody
new is refused. Of those over which no request has come the oldest goes: kube-scheduler's request
comes within milliseconds. Of the others the one goes that has been idle longest: Go asks again
where that was kube-scheduler's. They are counted apart, so neither kind crowds the other out.
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

# Of those that come at once so many are let in before the others are served again, and so many
# wait in the kernel. The first is far less than the silent connections there may be: one that has
# just come must not give way before it could shake hands and send its request.
_LET_IN_AT_ONCE = 4
_BACKLOG = 512


class Stage(IntEnum):
    """What a connection is at. Of all but silent ones the first gives way first."""

    SILENT = 0  # no request has come, or not even a TLS handshake
    IDLE = 1  # between two requests
    RECEIVING = 2  # a request's body is still to come, or to find room
    WORKING = 3


class Connections:
    """Accepts connections and hands them to aiohttp.

    most: at once, beside as many silent ones. most_of_a_peer: of one address, unless that is this
    machine, where all are of one address. head_s: until a connection must have brought its first
    request's head.
    """

    def __init__(self, most: int, most_of_a_peer: int, head_s: float) -> None:
        self._most = most
        self._most_of_a_peer = most_of_a_peer
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
        """Accept connections at this address, port 0 being any that is free. Returns the port;
        raises OSError."""

        def accept() -> asyncio.Protocol:
            return _Connection(self, make_handler(), tls)

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(accept, host, port, backlog=_LET_IN_AT_ONCE)
        for each in self._server.sockets:
            with socket.socket(fileno=socket.dup(each.fileno())) as listening:
                listening.listen(_BACKLOG)
        bound_port: int = self._server.sockets[0].getsockname()[1]
        return bound_port

    def stop_listening(self) -> None:
        """Let nobody in any more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        """Close them all at once."""
        for connection in list(self._open):
            connection.abort()

    @contextmanager
    def at_work(self, request: web.Request) -> Iterator[None]:
        """A request has come, and its connection is idle once this context is left."""
        connection = self._of_handler.get(request.protocol)
        if connection is None:
            yield
            return
        if connection.stage is Stage.SILENT:
            self._make_room([each for each in self._open if each.stage is not Stage.SILENT])
        connection.enter(Stage.RECEIVING)
        try:
            yield
        finally:
            connection.enter(Stage.IDLE)

    def received(self, request: web.Request) -> None:
        """All of the request is here."""
        connection = self._of_handler.get(request.protocol)
        if connection is not None:
            connection.enter(Stage.WORKING)

    def opened(self, connection: "_Connection") -> None:
        """Count it, and have another one go where they are too many."""
        if not _is_this_machine(connection.peer):
            same = [each for each in self._open if each.peer == connection.peer]
            self._make_room(same, self._most_of_a_peer)
        self._make_room([each for each in self._open if each.stage is Stage.SILENT])
        self._open[connection] = None
        self._of_handler[connection.handler] = connection
        connection.enter(Stage.SILENT)
        loop = asyncio.get_running_loop()
        loop.call_later(self._head_s, connection.close_if_silent)

    def closed(self, connection: "_Connection") -> None:
        """It is gone."""
        self._open.pop(connection, None)
        self._of_handler.pop(connection.handler, None)

    def _make_room(self, among: "list[_Connection]", most: int | None = None) -> None:
        """Have one of these go where there are no fewer than may be."""
        if len(among) >= (self._most if most is None else most):
            least = min(among, key=lambda each: (each.stage, each.since_s))
            self.closed(least)
            least.abort()


class _Connection(asyncio.Protocol):
    """Between the transport and aiohttp's handler: knows when a connection begins, before its
    TLS handshake, and when it ends."""

    def __init__(
        self,
        connections: Connections,
        handler: web.RequestHandler,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.handler = handler
        self.peer = ""
        self.stage = Stage.SILENT
        self.since_s = 0.0
        self._connections = connections
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._handed_over = False
        self._early: list[bytes] = []
        self._lost = False
        self._handshake: asyncio.Task[None] | None = None

    def enter(self, stage: Stage) -> None:
        """Note its stage from now on."""
        self.stage = stage
        self.since_s = asyncio.get_running_loop().time()

    def abort(self) -> None:
        """Close it at once."""
        if self._handshake is not None:
            self._handshake.cancel()
        if self._transport is not None:
            self._transport.abort()

    def close_if_silent(self) -> None:
        """Close it where no request has come."""
        if self.stage is Stage.SILENT and not self._lost:
            self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected by TCP."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # what a server has
        self._transport = transport
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        self._connections.opened(self)
        if self._tls is None:
            self._hand_over(transport)
        else:
            transport.pause_reading()
            self._handshake = asyncio.get_running_loop().create_task(self._shake_hands())

    def data_received(self, data: bytes) -> None:
        """Some bytes, which may come in the moment before the handler is connected."""
        if self._handed_over:
            self.handler.data_received(data)
        else:
            self._early.append(data)

    def eof_received(self) -> bool | None:
        """The other side sends no more."""
        if self._handed_over:
            self.handler.eof_received()
        return None

    def pause_writing(self) -> None:
        """The other side is slow to take what is sent."""
        if self._handed_over:
            self.handler.pause_writing()

    def resume_writing(self) -> None:
        """It has taken it."""
        if self._handed_over:
            self.handler.resume_writing()

    def connection_lost(self, error: BaseException | None) -> None:
        """It is closed."""
        self._lost = True
        self._connections.closed(self)
        if self._handed_over:
            self.handler.connection_lost(error)

    async def _shake_hands(self) -> None:
        assert self._transport is not None and self._tls is not None  # noqa: S101, PT018
        plain, loop = self._transport, asyncio.get_running_loop()
        try:
            # `close_if_silent` is what ends a handshake that takes too long.
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
