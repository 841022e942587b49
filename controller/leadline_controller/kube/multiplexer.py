"""The HTTP/2 connection to an API server: opened when it is needed, and again after it has ended.

Servers end connections that were idle for a while, or that they want to move to another server. The
next one is opened at once, so that no pod waits for its handshake, and a request that the server
has not looked at is sent again over it.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit

from leadline_controller.kube.http2 import Connection, RefusedError, Response, Stream

_CONNECT_S = 10.0
_CLOSED = "the connection was closed"
T = TypeVar("T")


class Multiplexer:
    """One connection for all requests. make_tls: called for each new connection, as certificates
    are renewed. server_hostname: in the server's certificate, if not the URL's."""

    def __init__(
        self, url: str, make_tls: Callable[[], ssl.SSLContext], server_hostname: str | None
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._make_tls, self._server_hostname = make_tls, server_hostname
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._is_closed = False

    async def request(self, head: Callable[[], bytes], body: bytes, until_s: float) -> Response:
        """Send a request and wait for its answer; see Connection. Raises OSError, and
        NotOfferedError if the server does not speak HTTP/2."""
        return await self._sent(until_s, lambda each: each.request(head, body, until_s))

    async def stream(self, head: Callable[[], bytes], until_s: float) -> Stream:
        """Send a request without a body and wait for the head of its answer; see Connection. Raises
        as `request`, and TooManyStreamsError."""
        return await self._sent(until_s, lambda each: each.stream(head, until_s))

    def close(self) -> None:
        """End the connection, and all requests with it. No other one is opened."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _sent(self, until_s: float, send: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            return await send(await self._open_connection(until_s))
        except RefusedError:
            return await send(await self._open_connection(until_s))

    async def _open_connection(self, until_s: float) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._is_closed:
            raise ConnectionAbortedError(_CLOSED)
        async with asyncio.timeout_at(until_s):
            opening = self._open()
            # A request that ends must not end the connection, nor the other way round.
            await asyncio.wait([opening])
        if opening.cancelled():
            raise ConnectionAbortedError(_CLOSED)
        return opening.result()

    def _open(self) -> "asyncio.Task[Connection]":
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
            # Nobody may be waiting for it; the next request tries again.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._opening

    def _open_next(self) -> None:
        if self._connection is None or not self._connection.is_open:
            self._open()

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(_CONNECT_S):
                self._connection = await Connection.open(
                    *(self._host, self._port, self._make_tls(), self._server_hostname),
                    on_leaving=self._open_next,
                )
            return self._connection
        finally:
            self._opening = None
