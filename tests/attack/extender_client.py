"""One HTTP/1.1 connection, used as by kube-scheduler or as by an attacker."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass, field

PATIENCE_S = 30.0
_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Address:
    """Where the extender answers. tls: what a client shows; None is plaintext."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, text: str, tls: ssl.SSLContext | None = None) -> Address:
        """From host:port."""
        host, _, port = text.rpartition(":")
        return cls(host, int(port), tls)

    async def connect(self) -> Connection:
        """A connection that is ready for requests. Raises OSError."""
        return Connection(*await asyncio.open_connection(self.host, self.port, ssl=self.tls))

    async def ask(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer over a connection of its own. Raises as `post`."""
        connection = await self.connect()
        try:
            return await connection.post(path, body)
        finally:
            connection.close()

    async def touch(self) -> Connection:
        """A TCP connection that sends nothing, not even a handshake. Raises OSError."""
        return Connection(*await asyncio.open_connection(self.host, self.port))


@dataclass(slots=True)
class Connection:
    """Requests one after the other; after an OSError or EOFError it is of no more use."""

    reader: asyncio.StreamReader = field(repr=False)
    writer: asyncio.StreamWriter = field(repr=False)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises OSError, EOFError or TimeoutError."""
        async with asyncio.timeout(PATIENCE_S):
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            self.writer.write(head.encode())
            # An answer may come before all of the body was taken.
            answer = asyncio.create_task(self.answer())
            try:
                await self._send(body, answer)
                return await answer
            finally:
                answer.cancel()
                await asyncio.wait([answer])

    async def get(self, path: str) -> tuple[int, bytes]:
        """As `post`."""
        async with asyncio.timeout(PATIENCE_S):
            self.writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return await self.answer()

    async def answer(self) -> tuple[int, bytes]:
        """The next answer. Raises OSError or EOFError."""
        status = int((await self.reader.readuntil(b"\r\n")).split()[1])
        length = 0
        while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, await self.reader.readexactly(length)

    async def _send(self, body: bytes, answer: asyncio.Task[tuple[int, bytes]]) -> None:
        with suppress(ConnectionError):
            for start in range(0, len(body), _CHUNK_BYTES):
                if answer.done():
                    return
                self.writer.write(body[start : start + _CHUNK_BYTES])
                await self.writer.drain()

    async def is_closed(self, within_s: float) -> bool:
        """Whether the other side closes it within that time."""
        try:
            async with asyncio.timeout(within_s):
                return await self.reader.read(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Hang up at once."""
        self.writer.transport.abort()
