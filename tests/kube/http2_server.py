"""An HTTP/2 server whose every frame a test decides, for what a real one does rarely: refuse a
request that it has not looked at, take few requests at a time, or fall silent.

It is written apart from the client's code: frames as RFC 9113 has them, headers as RFC 7541."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.connection import Login

from tests.kube.wire import kubeconfig
from tests.support.certificates import Authority, Certificate

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    *(0, 1, 3, 4, 6, 7, 8, 9),
)
END_STREAM = ACK = 1
END_HEADERS, PADDED = 4, 8
MAX_CONCURRENT_STREAMS = 3
DONE = {"kind": "Status", "status": "Success"}


@dataclass
class Request:
    """A whole request."""

    connection: ServedConnection
    stream: int
    path: str
    body: bytes

    def answer(self, status: int = 201, body: object = DONE, *, retry_after: str = "") -> None:
        """Answer with JSON; the header fields as plain literals."""
        more = literal(53, retry_after) if retry_after else b""
        self.connection.send(HEADERS, END_HEADERS, self.stream, literal(8, str(status)) + more)
        self.connection.send(DATA, END_STREAM, self.stream, json.dumps(body).encode())

    def begin(self, *pieces: bytes) -> None:
        """Begin an answer that has no end yet."""
        self.connection.send(HEADERS, END_HEADERS, self.stream, literal(8, "200"))
        for piece in pieces:
            self.connection.send(DATA, 0, self.stream, piece)


@dataclass
class ServedConnection:
    """One connection, and the frames that came besides requests."""

    writer: asyncio.StreamWriter
    others: list[tuple[int, int, int, bytes]] = field(default_factory=list)

    def send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self.writer.write(frame(kind, flags, stream, payload))

    def abort(self) -> None:
        self.writer.transport.abort()

    def kinds(self) -> list[int]:
        return [kind for kind, *_ in self.others]


class Http2Server:
    """answer: called for each request. streams: how many requests it takes at a time."""

    def __init__(self, answer: Callable[[Request], None], streams: int = 100) -> None:
        self.requests: list[Request] = []
        self.connections: list[ServedConnection] = []
        self._answer = answer
        self._streams = streams

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ServedConnection(writer)
        self.connections.append(connection)
        try:
            assert await reader.readexactly(len(PREFACE)) == PREFACE
            limit = MAX_CONCURRENT_STREAMS.to_bytes(2) + self._streams.to_bytes(4)
            connection.send(SETTINGS, 0, 0, limit)
            open_: dict[int, str] = {}
            while True:
                head = await reader.readexactly(9)
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
                payload = await reader.readexactly(int.from_bytes(head[:3]))
                if kind == HEADERS:
                    assert payload[0] == 4, "the path comes first"
                    assert payload[1] < 127
                    open_[stream] = payload[2 : 2 + payload[1]].decode()
                if kind in (HEADERS, DATA):
                    if flags & END_STREAM:
                        body = payload if kind == DATA else b""
                        request = Request(connection, stream, open_.pop(stream), body)
                        self.requests.append(request)
                        self._answer(request)
                else:
                    connection.others.append((kind, flags, stream, payload))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def literal(index: int, value: str) -> bytes:
    """A header field with an indexed name, not indexed itself."""
    name = bytes((index,)) if index < 15 else bytes((15, index - 15))
    return name + bytes((len(value),)) + value.encode()


def server_tls(certificate: Certificate, *protocols: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert_file, certificate.key_file)
    context.set_alpn_protocols(list(protocols))
    return context


def client_tls(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate.ca_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def certificate_in(folder: Path) -> Certificate:
    return Authority(folder / "pki").server("127.0.0.1")


@asynccontextmanager
async def serving(server: Http2Server, tls: ssl.SSLContext) -> AsyncIterator[str]:
    """Serve on a free loopback port; yields the URL."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    try:
        port = listening.sockets[0].getsockname()[1]
        yield f"https://127.0.0.1:{port}"
    finally:
        listening.close()
        for connection in server.connections:
            connection.abort()
        await listening.wait_closed()


@asynccontextmanager
async def api_of(
    server: Http2Server, certificate: Certificate, folder: Path, user: dict[str, Any] | None = None
) -> AsyncIterator[ApiServer]:
    """The API client, of a user's login."""
    async with serving(server, server_tls(certificate, "h2")) as url:
        authority = {"certificate-authority": str(certificate.ca_file)}
        file = kubeconfig(folder / "kubeconfig", url, user=user, **authority)
        async with ApiServer.connect(Login(file)) as api:
            yield api
