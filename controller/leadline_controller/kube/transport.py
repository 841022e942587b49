"""Requests to one server over libcurl: one HTTP/2 connection that all of them share, or, with a
server that has only HTTP/1.1, a connection for each that is under way.

libcurl speaks the protocols, and opens, keeps and leaves connections. What it does not notice is
a connection whose other end has gone without a word; `Transport` does.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pycurl

# Options of libcurl that pycurl has no name for.
_CA_CACHE_TIMEOUT = 321
_CONNECT_S = 10
_KEEPALIVE_S = 15
_MAX_CONNECTIONS = 100
_MAX_ANSWER_BYTES = 2**28
_MAX_REFUSAL_BYTES = 2**20
_MAX_IDLE_TRANSFERS = 256
# A server from which nothing came for so long, although an answer was due, is gone.
_SILENCE_S = 15.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Server:
    """Where the server is, and how to log in by TLS."""

    url: str
    ca_file: str | None = None  # None for the system's authorities
    cert_file: str | None = None
    key_file: str | None = None
    name: str | None = None  # in the server's certificate, if not the URL's host
    proxy: str | None = None  # its URL, if there is one


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of the server."""

    status: int
    body: bytes
    retry_after_s: float  # how long it asks to wait, 0 if it does not


class Transport:
    """Sends requests; no redirect is followed. Each raises OSError, which TimeoutError is too.

    If an answer is not there, or not complete, when it is due, and nothing else came from the
    server in the same time, 15 s at most, all connections are given up with what is under
    way: otherwise later requests would go the same dead way. So a watch that the server has to end
    in time shows that the connection is alive, whether or not there is anything to report.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._multi = _new_multi()
        self._idle: dict[str, list[_Request]] = {}
        self._heard_s = 0.0
        self._is_shared = server.url.startswith("https:")
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def request(
        self,
        method: str,
        target: str,
        headers: Sequence[str],
        body: bytes = b"",
        *,
        limit_s: float,
        may_send: Callable[[], None] | None = None,
    ) -> Response:
        """Send a request and read its whole answer. target: path and query.

        may_send: called right before the body leaves. If it raises, the body stays, and the error
        is raised here. A body is sent once only, whatever becomes of the connection.
        """
        idle = self._idle.setdefault(method, [])
        request = idle.pop() if idle else _Request(self._server, self._is_shared, method)
        request.prepare(target, headers, body, may_send)
        future = self._start(request.curl)
        timer = asyncio.get_running_loop().call_later(limit_s, self._expire, future, limit_s)
        try:
            await future
        except BaseException as error:
            request.curl.close()
            if isinstance(error, pycurl.error):
                raise request.refused or _connection_error(error) from None
            raise
        finally:
            timer.cancel()
        self._heard(request.curl)
        response = request.response()
        if len(idle) < _MAX_IDLE_TRANSFERS:
            idle.append(request)
        return response

    @asynccontextmanager
    async def stream(
        self, target: str, headers: Sequence[str], *, opening_s: float, limit_s: float
    ) -> AsyncIterator["Stream"]:
        """Send a GET whose answer is read as it comes. opening_s: for the head of the answer.
        limit_s: for all of it."""
        stream = Stream(self._server, self._is_shared, target, headers, self._heard)
        future = self._start(stream.curl)
        future.add_done_callback(stream.end)
        loop = asyncio.get_running_loop()
        opening = loop.call_later(opening_s, self._expire, future, opening_s)
        whole = loop.call_later(limit_s, self._expire, future, limit_s)
        try:
            await stream.open()
            opening.cancel()
            yield stream
        finally:
            opening.cancel()
            whole.cancel()
            future.cancel()  # if it is still under way; then its handle is free in the next round
            loop.call_soon(stream.curl.close)

    async def close(self) -> None:
        """End all that is under way."""
        self._is_closed = True
        self.reconnect("the connection was closed")
        await asyncio.gather(self._multi.aclose(), *self._leaving)

    def reconnect(self, reason: str) -> None:
        """End all that is under way; what comes later gets a new connection."""
        left, self._multi = self._multi, _new_multi()
        for future in left.futures():
            if not future.done():
                future.set_exception(ConnectionAbortedError(reason))
        leaving = asyncio.get_running_loop().create_task(left.aclose())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def _start(self, curl: pycurl.Curl) -> "asyncio.Future[pycurl.Curl]":
        if self._is_closed:
            raise ConnectionAbortedError("the connection was closed")
        future: asyncio.Future[pycurl.Curl] = self._multi.add_handle(curl)
        return future

    def _expire(self, future: "asyncio.Future[pycurl.Curl]", limit_s: float) -> None:
        if future.done():
            return
        future.set_exception(TimeoutError())
        due_s = min(limit_s, _SILENCE_S)
        if asyncio.get_running_loop().time() - self._heard_s >= due_s:
            _log.info("%s: nothing came for %.1f s, connecting again", self._server.url, due_s)
            self.reconnect("the server does not answer")

    def _heard(self, curl: pycurl.Curl) -> None:
        """Something came from the server."""
        self._heard_s = asyncio.get_running_loop().time()
        version = curl.getinfo(pycurl.INFO_HTTP_VERSION)
        is_shared = version == pycurl.CURL_HTTP_VERSION_2_0
        if version and is_shared != self._is_shared:
            self._is_shared = is_shared
            self._idle.clear()


class _Request:
    """A request on a handle of libcurl, which the next one of the same method takes over."""

    def __init__(self, server: Server, is_shared: bool, method: str) -> None:
        self.curl = curl = _new_handle(server, is_shared)
        self.refused: Exception | None = None
        self._url = _url(server)
        self._headers: Sequence[str] = ()
        self._body = b""
        self._may_send: Callable[[], None] | None = None
        self._chunks: list[bytes] = []
        curl.setopt(pycurl.WRITEFUNCTION, self._chunks.append)
        curl.setopt(pycurl.MAXFILESIZE_LARGE, _MAX_ANSWER_BYTES)
        if method != "GET":
            curl.setopt(pycurl.POST, 1)
            curl.setopt(pycurl.CUSTOMREQUEST, method)
            # Without a function to seek, libcurl can't begin again when a connection breaks.
            curl.setopt(pycurl.READFUNCTION, self._read)

    def prepare(
        self,
        target: str,
        headers: Sequence[str],
        body: bytes,
        may_send: Callable[[], None] | None,
    ) -> None:
        self.curl.setopt(pycurl.URL, self._url + target)
        if headers is not self._headers:
            self._headers = headers
            self.curl.setopt(pycurl.HTTPHEADER, headers)
        if body:
            self.curl.setopt(pycurl.POSTFIELDSIZE, len(body))
        self._body, self._may_send, self.refused = body, may_send, None

    def response(self) -> Response:
        status = self.curl.getinfo(pycurl.RESPONSE_CODE)
        retry_after_s = self.curl.getinfo(pycurl.RETRY_AFTER) if status >= 300 else 0
        body = b"".join(self._chunks)
        self._chunks.clear()
        return Response(status, body, float(retry_after_s))

    def _read(self, most: int) -> bytes | int:
        if self._may_send is not None:
            try:
                self._may_send()
            except Exception as error:  # noqa: BLE001  # whoever waits for the answer gets it
                self.refused = error
                return int(pycurl.READFUNC_ABORT)
        piece, self._body = self._body[:most], self._body[most:]
        return piece


class Stream:
    """An answer that is read as it comes."""

    def __init__(
        self,
        server: Server,
        is_shared: bool,
        target: str,
        headers: Sequence[str],
        heard: Callable[[pycurl.Curl], None],
    ) -> None:
        self.curl = curl = _new_handle(server, is_shared)
        self._heard = heard
        self._chunks: list[bytes] = []
        self._news = asyncio.Event()
        self._ended: asyncio.Future[pycurl.Curl] | None = None
        curl.setopt(pycurl.URL, _url(server) + target)
        curl.setopt(pycurl.HTTPHEADER, headers)
        curl.setopt(pycurl.HEADERFUNCTION, self._take_header)
        curl.setopt(pycurl.WRITEFUNCTION, self._take_chunk)

    async def open(self) -> None:
        """Wait for the head of the answer."""
        while self.status < 200 and not self._has_ended():
            await self._next_news()

    @property
    def status(self) -> int:
        """The status of the answer, once it is open."""
        return int(self.curl.getinfo(pycurl.RESPONSE_CODE))

    async def response(self) -> Response:
        """The whole answer; the body is cut off at 1 MiB."""
        body = b""
        async for chunk in self.chunks():
            body += chunk
            if len(body) >= _MAX_REFUSAL_BYTES:
                break
        return Response(self.status, body, float(self.curl.getinfo(pycurl.RETRY_AFTER)))

    async def chunks(self) -> AsyncIterator[bytes]:
        """What comes, until the answer has ended."""
        while True:
            if self._chunks:
                chunk = b"".join(self._chunks)
                self._chunks.clear()
                yield chunk
            elif self._has_ended():
                return
            else:
                await self._next_news()

    def end(self, future: "asyncio.Future[pycurl.Curl]") -> None:
        """The answer has ended."""
        if not future.cancelled():
            future.exception()  # or asyncio complains if nobody reads on
        self._ended = future
        self._news.set()

    def _has_ended(self) -> bool:
        """Raises OSError if it has ended too early."""
        if self._ended is None:
            return False
        try:
            self._ended.result()
        except pycurl.error as error:
            raise _connection_error(error) from None
        return True

    async def _next_news(self) -> None:
        await self._news.wait()
        self._news.clear()
        if self._ended is None or not self._ended.exception():
            self._heard(self.curl)

    def _take_header(self, line: bytes) -> None:
        if line == b"\r\n":
            self._news.set()

    def _take_chunk(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._news.set()


def _new_multi() -> pycurl.AsyncCurlMulti:
    multi = pycurl.AsyncCurlMulti()
    multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
    multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, _MAX_CONNECTIONS)
    return multi


def _new_handle(server: Server, is_shared: bool) -> pycurl.Curl:
    """is_shared: whether the server has HTTP/2."""
    curl = pycurl.Curl()
    system = ssl.get_default_verify_paths()
    options: dict[int, Any] = {
        pycurl.NOSIGNAL: 1,
        pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_2TLS,
        # Wait for the one connection while it opens. (Where there are several, none must wait.)
        pycurl.PIPEWAIT: int(is_shared),
        pycurl.CONNECTTIMEOUT: _CONNECT_S,
        pycurl.TCP_KEEPALIVE: 1,
        pycurl.TCP_KEEPIDLE: _KEEPALIVE_S,
        pycurl.TCP_KEEPINTVL: _KEEPALIVE_S,
        pycurl.FOLLOWLOCATION: 0,
        pycurl.SSL_VERIFYPEER: 1,
        pycurl.SSL_VERIFYHOST: 2,
        # Each connection reads the present files and shows the present certificate.
        pycurl.SSL_SESSIONID_CACHE: 0,
        _CA_CACHE_TIMEOUT: 0,
        pycurl.CAINFO: server.ca_file or system.cafile,
        pycurl.CAPATH: None if server.ca_file else system.capath,
        pycurl.PROXY_CAINFO: system.cafile,
        pycurl.PROXY_CAPATH: system.capath,
        # Empty, so that libcurl does not read the environment itself. As with kubectl, it is a
        # SOCKS proxy that looks up the name.
        pycurl.PROXY: (server.proxy or "").replace("socks5://", "socks5h://", 1),
        pycurl.NOPROXY: "",
    }
    if server.cert_file:
        options |= {pycurl.SSLCERT: server.cert_file, pycurl.SSLKEY: server.key_file}
    if server.name:
        parts = urlsplit(server.url)
        options[pycurl.CONNECT_TO] = [f"::{parts.netloc}" + ("" if parts.port else ":443")]
    for option, value in options.items():
        curl.unsetopt(option) if value is None else curl.setopt(option, value)
    return curl


def _url(server: Server) -> str:
    if not server.name:
        return server.url
    parts = urlsplit(server.url)
    port = f":{parts.port}" if parts.port else ""
    return parts._replace(netloc=server.name + port).geturl()


def _connection_error(error: pycurl.error) -> ConnectionError:
    code, message = (*error.args, "")[:2]
    return ConnectionError(message or f"the connection broke (libcurl's error {code})")
