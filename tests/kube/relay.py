"""A relay in front of a server, as a router is, which may lose the way without a word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Relay:
    """url: of the relay. called: that somebody has connected. is_open: whether what comes is
    passed on; until then it waits. lost: the connections of which nothing is passed on, although
    the relay still acknowledges all that comes."""

    url: str = ""
    called: asyncio.Event = field(default_factory=asyncio.Event)
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    connections: list[asyncio.StreamWriter] = field(default_factory=list)
    lost: set[asyncio.StreamWriter] = field(default_factory=set)

    def lose_all(self) -> None:
        """Lose the connections that there are; later ones are passed on."""
        self.lost.update(self.connections)

    async def _pump(
        self, caller: asyncio.StreamWriter, way: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        reader, writer = way
        with suppress(OSError):
            while data := await reader.read(65_536):
                if caller not in self.lost:
                    writer.write(data)
        if caller not in self.lost:
            writer.close()


@asynccontextmanager
async def relay(host: str, port: int) -> AsyncIterator[Relay]:
    """Relay from a free port of loopback."""
    made = Relay()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections.append(writer)
        made.called.set()
        await made.is_open.wait()
        there, to_there = await asyncio.open_connection(host, port)
        try:
            await asyncio.gather(
                made._pump(writer, (reader, to_there)), made._pump(writer, (there, writer))
            )
        finally:
            to_there.transport.abort()

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    made.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        listening.close()
        for writer in made.connections:
            writer.transport.abort()
        await asyncio.sleep(0)
