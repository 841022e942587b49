"""A client of HTTP/2 that sends and reads only what its caller asks for."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
Header = tuple[bytes, bytes]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """A SETTINGS frame; the only setting known is `initial_window`, in bytes."""
    payload = b""
    if "initial_window" in values:
        payload = struct.pack(">HI", INITIAL_WINDOW_SIZE, values["initial_window"])
    return frame(SETTINGS, 0, 0, payload)


def headers(stream: int, path: bytes, more: Sequence[Header] = ()) -> bytes:
    """The HEADERS frame that begins a call of the method at this path."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *more,
    ]
    return frame(HEADERS, END_HEADERS, stream, b"".join(map(_literal, fields)))


def message(stream: int, content: bytes, *, compressed: int = 0, size: int | None = None) -> bytes:
    """The DATA frame with the only message of a call. size: what its prefix claims, in bytes."""
    prefix = struct.pack(">BI", compressed, len(content) if size is None else size)
    return frame(DATA, END_STREAM, stream, prefix + content)


def call(stream: int, path: bytes, content: bytes = b"") -> bytes:
    """A whole call with one message."""
    return headers(stream, path) + message(stream, content)


@contextmanager
def connection(
    address: tuple[str, int], tls: ssl.SSLContext | None = None, initial_window: int = 65_535
) -> Iterator[socket.socket]:
    """A connection that has sent its preface."""
    with socket.create_connection(address, timeout=10) as plain:
        wrapped = tls.wrap_socket(plain, server_hostname=address[0]) if tls else plain
        with wrapped as connected:
            connected.sendall(PREFACE + settings(initial_window=initial_window))
            connected.sendall(frame(SETTINGS, ACK, 0))
            yield connected


def is_open(connected: socket.socket) -> bool:
    """Whether the other side has not closed it; throws away what it sent."""
    connected.setblocking(False)
    with suppress(BlockingIOError, ssl.SSLWantReadError):
        try:
            while connected.recv(1 << 16):
                pass
        except ConnectionError:
            return False
        return False
    return True


def _literal(field: Header) -> bytes:
    """A header field as it is, without Huffman's code and without an index."""
    return b"\0" + b"".join(_text(part) for part in field)


def _text(part: bytes) -> bytes:
    if len(part) < 127:
        return bytes([len(part)]) + part
    rest, encoded = len(part) - 127, b"\x7f"
    while rest > 127:
        encoded += bytes([rest % 128 + 128])
        rest //= 128
    return encoded + bytes([rest]) + part
