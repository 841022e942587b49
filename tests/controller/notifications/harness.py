"""A receiver on a local port that answers as a webhook, ntfy or Gotify does, and problems."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from leadline_controller.notifications.told import Message
from leadline_wire.v1 import status_pb2 as pb

TOKEN = "tk-do-not-tell"
MESSAGE = Message(
    "Leadline home: broker away", "error: é", "error", frozenset([("broker-away", "b")])
)


@dataclass
class LocalReceiver:
    """Keeps what it accepts: URL's path, headers and body. status: of other answers. login: the
    header without which it answers 401."""

    login: tuple[str, str] | None = None
    status: int = 200
    hangs: bool = False
    url: str = ""
    asked: int = 0
    got: list[tuple[str, Any, dict[str, Any]]] = field(default_factory=list)

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.login is not None and request.headers.get(self.login[0]) != self.login[1]:
            return web.json_response({"error": "unauthorized"}, status=401)
        if self.status != 200:
            return web.Response(status=self.status, headers={"Location": f"{self.url}/stolen"})
        self.got.append((request.path, request.headers, await request.json()))
        return web.json_response({"id": 1})

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["LocalReceiver"]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.url = site.name
        try:
            yield self
        finally:
            await runner.cleanup()


def problem(kind: str, subjects: Sequence[str], severity: str = "warning") -> pb.Problem:
    where = f"boards {', '.join(subjects[:8])}"
    where += f" and {len(subjects) - 8} more" if len(subjects) > 8 else ""
    said = {"where": where, "what": "the agent is offline", "remedy": "see whether it is on"}
    return pb.Problem(kind=kind, severity=severity, subjects=subjects, **said)
