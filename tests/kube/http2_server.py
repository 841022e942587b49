"""An HTTP/2 server whose every answer a test decides, for what a real one does rarely: refuse a
request that it has not looked at, take few requests at a time, grant small windows, fall silent.

The library h2 makes and reads the frames.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.connection import Login

from tests.kube.wire import kubeconfig
from tests.support.certificates import Authority, Certificate

DONE = {"kind": "Status", "status": "Success"}


@dataclass
class Request:
    """A request, which is whole when it is answered."""

    connection: ServedConnection
    stream: int
    fields: dict[str, str]
    body: bytes = b""
    was_reset: bool = False

    @property
    def path(self) -> str:
        return self.fields[":path"]

    def answer(self, status: int = 201, body: object = DONE, **fields: str) -> None:
        """Answer with JSON."""
        self.begin(status, **fields)
        self.send(json.dumps(body).encode())
        self.end()

    def begin(self, status: int = 200, **fields: str) -> None:
        """Begin an answer that has no end yet."""
        names = {name.replace("_", "-"): value for name, value in fields.items()}
        head = [(":status", str(status)), *names.items()]
        self.connection.h2.send_headers(self.stream, head)
        self.connection.flush()

    def send(self, text: bytes) -> None:
        self.connection.send(self.stream, text)

    def end(self) -> None:
        self.connection.send(self.stream, None)

    def reset(self, code: ErrorCodes) -> None:
        self.connection.h2.reset_stream(self.stream, code)
        self.connection.flush()


@dataclass
class ServedConnection:
    """One connection. What does not fit into the client's windows waits in `_later`."""

    writer: asyncio.StreamWriter
    h2: H2Connection
    _later: dict[int, list[memoryview | None]] = field(default_factory=dict)

    def send(self, stream: int, text: bytes | None) -> None:
        """Send, or, with None, end."""
        self._later.setdefault(stream, []).append(None if text is None else memoryview(text))
        self.send_waiting()

    def send_waiting(self) -> None:
        for stream, texts in self._later.items():
            while texts:
                text = texts.pop(0)
                if text is None:
                    self.h2.end_stream(stream)
                    continue
                room = min(
                    self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size
                )
                if text[room:]:
                    texts.insert(0, text[room:])
                if not room:
                    break
                self.h2.send_data(stream, bytes(text[:room]))
        self.flush()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def leave(self, last: int) -> None:
        """GOAWAY: the server has looked at the requests up to `last`, and at no others."""
        self.writer.write(GoAwayFrame(0, last_stream_id=last).serialize())

    def abort(self) -> None:
        self.writer.transport.abort()


class Http2Server:
    """answer: called for each whole request. streams: how many requests it takes at a time.
    window_bytes: how much of a body it takes before it has read some of it."""

    def __init__(
        self, answer: Callable[[Request], None], streams: int = 100, window_bytes: int = 65_535
    ) -> None:
        self.requests: list[Request] = []
        self.connections: list[ServedConnection] = []
        self._answer = answer
        self._settings: dict[SettingCodes | int, int] = {
            SettingCodes.MAX_CONCURRENT_STREAMS: streams,
            SettingCodes.INITIAL_WINDOW_SIZE: window_bytes,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection = ServedConnection(writer, h2)
        self.connections.append(connection)
        open_: dict[int, Request] = {}
        try:
            h2.initiate_connection()
            h2.update_settings(self._settings)  # which hold once the client has seen them
            connection.flush()
            while data := await reader.read(65_536):
                for event in h2.receive_data(data):
                    match event:
                        case RequestReceived(stream_id=int(stream)):
                            fields = dict(event.headers or ())
                            open_[stream] = Request(connection, stream, fields)  # type: ignore[arg-type]  # header_encoding makes texts
                        case DataReceived(stream_id=int(stream), data=bytes(piece)):
                            open_[stream].body += piece
                            h2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                        case StreamEnded(stream_id=int(stream)):
                            self.requests.append(open_[stream])
                            self._answer(open_[stream])
                        case StreamReset(stream_id=int(stream)):
                            open_[stream].was_reset = True
                        case WindowUpdated():
                            connection.send_waiting()
                connection.flush()
        except (ConnectionError, ProtocolError, ssl.SSLError):
            pass
        finally:
            writer.close()


def server_tls(certificate: Certificate, *protocols: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert_file, certificate.key_file)
    context.set_alpn_protocols(list(protocols))
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
    server: Http2Server,
    certificate: Certificate,
    folder: Path,
    user: dict[str, Any] | None = None,
    timeout_s: float = 30.0,
) -> AsyncIterator[ApiServer]:
    """The API client, of a user's login."""
    async with serving(server, server_tls(certificate, "h2")) as url:
        authority = {"certificate-authority": str(certificate.ca_file)}
        file = kubeconfig(folder / "kubeconfig", url, user=user, **authority)
        async with ApiServer.connect(Login(file), timeout_s) as api:
            yield api
