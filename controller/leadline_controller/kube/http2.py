"""One HTTP/2 connection (RFC 9113) that carries many small requests at a time, and watches.

A burst of bindings is hundreds of requests of 300 bytes. Over HTTP/1.1 each of those under way
needs a connection, and both ends make a TLS record and a system call of their own for each request
and each answer; each watch takes a connection as well, with buffers of 300 KB at this end. Here all
share one, and requests that are ready together leave together, and so do answers.

The client needs little of the protocol: a request is one frame of headers and one of data, headers
are sent as literals, and the server is asked for headers without a dynamic table (RFC 7541), of
which only the status and Retry-After are read.
"""

import asyncio
import math
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable
from struct import Struct
from typing import NamedTuple

from leadline_controller.kube.header_fields import read_response_head

# What fits into one frame, and into the windows of any server, without waiting.
MAX_BODY_BYTES = 16_384
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = (
    *(0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8, 0x9),
)
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _MAX_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE = 1, 2, 3, 4
_REFUSED_STREAM, _CANCEL = 0x7, 0x8
_MAX_FRAME_BYTES = 16_384  # a server sends no longer ones unless it is asked to
_MAX_ANSWER_BYTES = 2**20
_WINDOW_BYTES = 2**24
_FIRST_WINDOW_BYTES = 65_535
_LAST_STREAM = 2**31 - 1
# Until the server says how many requests it takes at a time.
_FIRST_STREAMS = 100
_GOING = "the server closes the connection"
# The length and the type share the first four bytes of a frame.
_HEAD = Struct(">IBI")
_SETTING = Struct(">HI")
_UINT = Struct(">I")


class NotOfferedError(Exception):
    """The server does not speak HTTP/2."""


class TooManyStreamsError(Exception):
    """Watches would take most of the requests that the server takes at a time."""


class RefusedError(ConnectionError):
    """The server has certainly not looked at the request, so it can be sent again."""


class Response(NamedTuple):
    """An answer. retry_after: the header of this name, if it is a number."""

    status: int
    retry_after: str
    body: bytes


class Exchange:
    """A request and its answer. head: makes its header block, right before it is written; what it
    raises ends the request."""

    __slots__ = ("answer", "body", "done", "head", "response", "sent_s", "stream")

    def __init__(self, head: Callable[[], bytes], body: bytes) -> None:
        self.head, self.body = head, body
        self.done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.sent_s = math.inf
        self.stream = 0  # none before it is sent
        self.response: tuple[int, str] | None = None
        self.answer: list[bytes] = []

    def begin(self, response: tuple[int, str]) -> None:
        """The status came, and Retry-After."""
        self.response = response

    def take(self, data: bytes, _frame_bytes: int) -> None:
        """A piece of the body came."""
        self.answer.append(data)

    def finish(self) -> None:
        """The answer is complete. Raises _BrokenProtocolError."""
        if self.response is None:
            raise _BrokenProtocolError("an answer without a status")
        if not self.done.done():
            self.done.set_result(Response(*self.response, b"".join(self.answer)))

    def fail(self, error: Exception) -> None:
        """End it, unless it has ended."""
        if not self.done.done():
            self.done.set_exception(error)


class Stream(Exchange):
    """A request without a body, whose answer is read as it comes. done: its head, without a body.
    Close it when nobody reads it any more."""

    __slots__ = ("_changed", "_connection", "_ended", "_unreported_bytes")

    def __init__(self, head: Callable[[], bytes], connection: "Connection") -> None:
        super().__init__(head, b"")
        self._connection = connection
        self._changed = asyncio.Event()
        self._ended: Exception | bool = False
        self._unreported_bytes = 0

    def begin(self, response: tuple[int, str]) -> None:
        """The status came, and Retry-After."""
        super().begin(response)
        if response[0] >= 200 and not self.done.done():
            self.done.set_result(Response(*response, b""))

    def take(self, data: bytes, frame_bytes: int) -> None:
        """A piece of the body came."""
        super().take(data, frame_bytes)
        self._unreported_bytes += frame_bytes
        self._changed.set()

    def finish(self) -> None:
        """The answer is complete. Raises _BrokenProtocolError."""
        super().finish()
        self._ended = True
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """End it, unless it has ended."""
        super().fail(error)
        self._ended = self._ended or error
        self._changed.set()

    async def chunks(self, silence_s: float) -> AsyncIterator[bytes]:
        """The body as it comes, until its end. Raises TimeoutError after `silence_s` without a
        byte, and ConnectionErrors."""
        while True:
            if self.answer:
                data = b"".join(self.answer)
                self.answer.clear()
                if self._unreported_bytes > _MAX_ANSWER_BYTES // 2:
                    self._connection.grant(self, self._unreported_bytes)
                    self._unreported_bytes = 0
                yield data
            elif isinstance(self._ended, Exception):
                raise self._ended
            elif self._ended:
                return
            else:
                self._changed.clear()
                try:
                    async with asyncio.timeout(silence_s):
                        await self._changed.wait()
                except TimeoutError:
                    self._connection.close_if_silent(silence_s)
                    raise

    def close(self) -> None:
        """The rest of the answer is of no use."""
        self._connection.abandon(self)


class Connection(asyncio.Protocol):
    """A connection after its TLS handshake. is_open: whether it takes more requests. on_leaving:
    called when the server says that it closes the connection."""

    def __init__(self, on_leaving: Callable[[], object]) -> None:
        self.is_open = True
        self._on_leaving = on_leaving
        self._loop = asyncio.get_running_loop()
        self._left = b""
        self._waiting: deque[Exchange] = deque()
        self._streams: dict[int, Exchange] = {}
        self._next_stream = 1
        self._most_streams = _FIRST_STREAMS
        self._window_bytes = _FIRST_WINDOW_BYTES
        self._unreported_bytes = 0
        self._is_paused = self._is_flush_due = False
        self._open_headers: tuple[int, int, bytes] | None = None
        self._takes: dict[int, Callable[[int, int, bytes], None]] = {
            _DATA: self._take_data,
            _HEADERS: self._take_headers,
            _RST_STREAM: self._take_reset,
            _SETTINGS: self._take_settings,
            _PING: self._take_ping,
            _GOAWAY: self._take_goaway,
            _WINDOW_UPDATE: self._take_window_update,
            _CONTINUATION: self._take_continuation,
        }
        self._heard_s = self._loop.time()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        tls: ssl.SSLContext,
        server_hostname: str | None,
        on_leaving: Callable[[], object],
    ) -> "Connection":
        """Connect. Raises OSError, ssl.SSLError, and NotOfferedError."""
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: cls(on_leaving), host, port, ssl=tls, server_hostname=server_hostname
        )
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            transport.abort()
            raise NotOfferedError
        return connection

    async def request(self, head: Callable[[], bytes], body: bytes, until_s: float) -> Response:
        """Send a request and wait for its answer, until this loop time. head: called right before
        it is written, for what `request_head` makes; what it raises ends the request. Raises
        TimeoutError; RefusedError, and other ConnectionErrors if it may have taken effect."""
        exchange = Exchange(head, body)
        self._waiting.append(exchange)
        self._flush_soon()
        timer = self._loop.call_at(until_s, self._expire, exchange)
        try:
            return await exchange.done
        finally:
            timer.cancel()
            self.abandon(exchange)

    async def stream(self, head: Callable[[], bytes], until_s: float) -> Stream:
        """Send a request without a body, and wait for the head of its answer; as `request`. Raises
        TooManyStreamsError as well, before anything is sent."""
        exchanges = (*self._streams.values(), *self._waiting)
        open_ = sum(isinstance(each, Stream) for each in exchanges)
        if open_ >= self._most_streams // 2:
            raise TooManyStreamsError
        stream = Stream(head, self)
        self._waiting.append(stream)
        self._flush_soon()
        timer = self._loop.call_at(until_s, self._expire, stream)
        try:
            await stream.done
        except BaseException:
            self.abandon(stream)
            raise
        finally:
            timer.cancel()
        return stream

    def abandon(self, exchange: Exchange) -> None:
        """Nobody waits for the answer any more."""
        if self._streams.pop(exchange.stream, None) is not None:
            if not self._transport.is_closing():
                reset = _frame(_RST_STREAM, 0, exchange.stream, _UINT.pack(_CANCEL))
                self._transport.write(reset)
            self._flush_soon()
            self._close_if_done()

    def grant(self, stream: Stream, read_bytes: int) -> None:
        """The server may send so many bytes more of a stream."""
        if stream.stream in self._streams and not self._transport.is_closing():
            self._transport.write(_frame(_WINDOW_UPDATE, 0, stream.stream, _UINT.pack(read_bytes)))

    def close_if_silent(self, silence_s: float) -> None:
        """End the connection if nothing at all came for so long: its peer is gone."""
        if self._loop.time() - self._heard_s >= silence_s:
            self.close("the server is silent")

    def close(self, reason: str = "the connection was closed") -> None:
        """End the connection, and all requests with it."""
        self._end(reason)
        self._transport.abort()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with our settings."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of a stream protocol
        self._transport = transport
        # What waits in the transport could be sent after its fence has closed. This bounds what TLS
        # has not encrypted; the socket's own 64 KiB remain.
        transport.set_write_buffer_limits(high=1)  # with 0, asyncio pauses an empty one
        settings = {_HEADER_TABLE_SIZE: 0, _ENABLE_PUSH: 0, _INITIAL_WINDOW_SIZE: _MAX_ANSWER_BYTES}
        sent = b"".join(_SETTING.pack(*each) for each in settings.items())
        more = _UINT.pack(_WINDOW_BYTES - _FIRST_WINDOW_BYTES)
        transport.write(
            _PREFACE + _frame(_SETTINGS, 0, 0, sent) + _frame(_WINDOW_UPDATE, 0, 0, more)
        )

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The socket took all."""
        self._is_paused = False
        self._flush_soon()

    def connection_lost(self, error: Exception | None) -> None:
        """End all requests."""
        self._end(f"the connection broke: {error}" if error else _GOING)

    def _end(self, reason: str) -> None:
        self.is_open = False
        for exchange in self._streams.values():
            exchange.fail(ConnectionResetError(reason))
        self._refuse_waiting(reason)
        self._streams.clear()

    def data_received(self, data: bytes) -> None:
        """Handle the frames that are complete."""
        self._heard_s = self._loop.time()
        data = self._left + data if self._left else data
        at, size = 0, len(data)
        try:
            while size - at >= _HEAD.size:
                length, flags, stream = _HEAD.unpack_from(data, at)
                kind, length = length & 0xFF, length >> 8
                if length > _MAX_FRAME_BYTES:
                    raise _BrokenProtocolError("a frame is too long")
                if size - at - _HEAD.size < length:
                    break
                at += _HEAD.size
                if self._open_headers is not None and kind != _CONTINUATION:
                    raise _BrokenProtocolError("headers are not continued")
                if (take := self._takes.get(kind)) is not None:
                    take(flags, stream & _LAST_STREAM, data[at : at + length])
                at += length
        except (_BrokenProtocolError, IndexError, ValueError, struct.error) as error:
            self.close(f"the server's HTTP/2 is broken: {error}")
        self._left = data[at:]

    # Sending.

    def _flush_soon(self) -> None:
        """Write after all that is ready now, so that it leaves together."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if not self.is_open:
            self._refuse_waiting(_GOING)
            return
        frames: list[bytes] = []
        while self._waiting and not self._is_paused and len(self._streams) < self._most_streams:
            exchange = self._waiting[0]
            if len(exchange.body) > self._window_bytes:
                break
            self._waiting.popleft()
            if exchange.done.done():
                continue
            try:
                head = exchange.head()
            except Exception as error:  # noqa: BLE001  # the caller of this request gets it
                exchange.fail(error)
                continue
            stream, self._next_stream = self._next_stream, self._next_stream + 2
            self._streams[stream], exchange.stream = exchange, stream
            exchange.sent_s = self._loop.time()
            self._window_bytes -= len(exchange.body)
            if isinstance(exchange, Stream):
                frames.append(_frame(_HEADERS, _END_HEADERS | _END_STREAM, stream, head))
            else:
                frames += (
                    _frame(_HEADERS, _END_HEADERS, stream, head),
                    _frame(_DATA, _END_STREAM, stream, exchange.body),
                )
        if frames:
            self._transport.write(b"".join(frames))
            if self._next_stream > _LAST_STREAM:
                self.is_open = False

    def _expire(self, exchange: Exchange) -> None:
        exchange.fail(TimeoutError())
        unanswered = (each for each in self._streams.values() if each.response is None)
        oldest = next(unanswered, None)
        if exchange.stream and oldest is not None and self._heard_s < oldest.sent_s:
            # Nothing came since then, so the peer may be gone; later requests need another one.
            self.close("the server does not answer")

    def _refuse_waiting(self, reason: str) -> None:
        while self._waiting:
            self._waiting.popleft().fail(RefusedError(reason))

    # Receiving.

    def _take_settings(self, flags: int, _stream: int, payload: bytes) -> None:
        if flags & _ACK:
            return
        for name, value in _SETTING.iter_unpack(payload):
            if name == _MAX_CONCURRENT_STREAMS:
                self._most_streams = value
        self._transport.write(_frame(_SETTINGS, _ACK, 0, b""))
        self._flush_soon()

    def _take_ping(self, flags: int, _stream: int, payload: bytes) -> None:
        if not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, payload))

    def _take_window_update(self, _flags: int, stream: int, payload: bytes) -> None:
        if not stream:  # that of a request fits without more
            self._window_bytes += _UINT.unpack(payload)[0]
            self._flush_soon()

    def _take_reset(self, _flags: int, stream: int, payload: bytes) -> None:
        exchange = self._streams.pop(stream, None)
        if exchange is not None:
            refused = _UINT.unpack(payload)[0] == _REFUSED_STREAM
            error = RefusedError if refused else ConnectionResetError
            exchange.fail(error("the server reset the request"))
            self._flush_soon()
            self._close_if_done()

    def _take_goaway(self, _flags: int, _stream: int, payload: bytes) -> None:
        last = _UINT.unpack_from(payload)[0] & _LAST_STREAM
        self.is_open = False
        self._on_leaving()
        for late in [each for each in self._streams if each > last]:
            self._streams.pop(late).fail(RefusedError(_GOING))
        self._refuse_waiting(_GOING)
        self._close_if_done()

    def _take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        payload = _unpadded(flags, payload)
        block = payload[5:] if flags & _PRIORITY else payload
        if flags & _END_HEADERS:
            self._read_headers(flags, stream, block)
        else:
            self._open_headers = flags, stream, block

    def _take_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._open_headers is None or self._open_headers[1] != stream:
            raise _BrokenProtocolError("a continuation without headers")
        first_flags, _, block = self._open_headers
        block += payload
        if len(block) > _MAX_ANSWER_BYTES:
            raise _BrokenProtocolError("headers are too long")
        if flags & _END_HEADERS:
            self._open_headers = None
            self._read_headers(first_flags, stream, block)
        else:
            self._open_headers = first_flags, stream, block

    def _read_headers(self, flags: int, stream: int, block: bytes) -> None:
        exchange = self._streams.get(stream)
        if exchange is None:
            return  # nobody waits for the answer any more
        if exchange.response is None or exchange.response[0] < 200:  # else they are trailers
            exchange.begin(read_response_head(block))
        if flags & _END_STREAM:
            self._finish(stream, exchange)

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._unreported_bytes += len(payload)
        if self._unreported_bytes > _WINDOW_BYTES // 2:
            read, self._unreported_bytes = self._unreported_bytes, 0
            self._transport.write(_frame(_WINDOW_UPDATE, 0, 0, _UINT.pack(read)))
        exchange = self._streams.get(stream)
        if exchange is not None:
            exchange.take(_unpadded(flags, payload), len(payload))
            if flags & _END_STREAM:
                self._finish(stream, exchange)

    def _finish(self, stream: int, exchange: Exchange) -> None:
        exchange.finish()
        del self._streams[stream]
        if self._waiting:
            self._flush_soon()
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not (self.is_open or self._streams or self._transport.is_closing()):
            self._transport.close()


class _BrokenProtocolError(Exception):
    """What the server sends is no HTTP/2."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def _unpadded(flags: int, payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
