"""A map that listens on a loopback port of its own, with a page of two files."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from leadline_controller.map.journal import PlacementJournal
from leadline_controller.map.server import WebLimits, WebServer
from leadline_controller.map.settings import WebSettings

from tests.controller.inspect.harness import ControllerHarness

POLL_S = 0.02
PATIENCE_S = 60.0
DOCS = Path(__file__).parents[3] / "docs" / "web-api.md"
LOCAL = WebSettings("127.0.0.1:0")


@asynccontextmanager
async def answering(
    harness: ControllerHarness,
    settings: WebSettings = LOCAL,
    limits: WebLimits | None = None,
    folder: Path | None = None,
    journal: PlacementJournal | None = None,
) -> AsyncIterator[str]:
    """A map in this event loop; yields its address without the last slash."""
    journal = journal or PlacementJournal(lambda: harness.now_s, harness.source.scheduler_name)
    server = WebServer(
        settings, harness.source, journal, limits=limits, folder=folder, poll_s=POLL_S
    )
    harness.history.start()
    try:
        yield (await server.start()).removesuffix("/")
    finally:
        await server.stop()
        await harness.history.stop()


async def get(
    url: str, shown: ssl.SSLContext | None = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    """The status and the JSON of an answer."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=names, ssl=shown or True) as answer,
    ):
        assert answer.content_type == "application/json"
        return answer.status, json.loads(await answer.read())


def documented(heading: str) -> dict[str, object]:
    """The first example of this section of the page."""
    section = DOCS.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    example = section.split("```json\n", 1)[1].split("```", 1)[0]
    found: dict[str, object] = json.loads(example)
    return found


class Events:
    """The events of a stream, as a browser reads them. last_id: what it would send next time."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content
        self.last_id = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The next event with data: its name and its JSON."""
        name, data = "message", ""
        while True:
            line = (await self._content.readline()).decode()
            assert line, "the stream ended"
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data += value
            elif field == "id":
                self.last_id = value
            elif line == "\n":
                if data:
                    return name, json.loads(data)
                name = "message"

    async def until(self, name: str) -> dict[str, Any]:
        """The next event of this name."""
        while True:
            found, data = await self.next()
            if found == name:
                return data


@asynccontextmanager
async def streaming(address: str, after: str = "", last_id: str = "") -> AsyncIterator[Events]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=2**20) as session,
        session.get(f"{address}/api/stream", params={"after": after}, headers=headers) as answer,
    ):
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        yield Events(answer.content)
