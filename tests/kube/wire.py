"""A fake API server whose answers a test sets, for what the real one can't be made to do: refuse
for a while, expire on command, fall silent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.connection import Login

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeServer:
    """The requests to the server and its answers: those of a path in turn, then the last one for
    ever. A path may be given as "METHOD path", and a watch as "watch path"."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], float]] = []
        self.bodies: list[Any] = []
        self._answers: dict[str, list[Answer]] = {}

    def answer(self, path: str, *answers: Answer) -> None:
        self._answers[path] = list(answers)

    def queries(self, path: str) -> list[dict[str, str]]:
        """The queries of all requests for a path."""
        return [query for asked, query, _ in self.requests if asked == path]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        now_s = asyncio.get_running_loop().time()
        self.requests.append((request.path, dict(request.query), now_s))
        kind = f"watch {request.path}" if "watch" in request.query else request.path
        by_method = f"{request.method} {request.path}"
        self.bodies.append(json.loads(text) if (text := await request.text()) else None)
        answers = self._answers[by_method if by_method in self._answers else kind]
        return await (answers.pop(0) if len(answers) > 1 else answers[0])(request)


def listing(*items: dict[str, Any], version: str = "1", more: str = "") -> Answer:
    """A list, or one page of a list that continues with `more`."""
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "List", "metadata": metadata, "items": items})

    return answer


def refusal(code: int, message: str = "not now", **headers: str) -> Answer:
    """A Status object of an error."""

    async def answer(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "message": message}
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=code, headers=names)

    return answer


def json_answer(body: Any, status: int = 200) -> Answer:
    """A JSON body."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return answer


def made(kind: str, status: int = 200) -> Answer:
    """An object of this kind, as short as can be."""
    return json_answer({"kind": kind, "metadata": {}}, status)


def no_answer() -> Answer:
    """No answer."""

    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError("the client should have given up")

    return answer


NO_ANSWER = no_answer()


def broken_connection() -> Answer:
    """A connection that breaks before the answer."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        await asyncio.sleep(3600)
        raise AssertionError("the client should have given up")

    return answer


def stream(*events: dict[str, Any] | str, then_silence: bool = True) -> Answer:
    """A watch that sends events, then nothing or its end. A string is sent unchanged."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            line = event if isinstance(event, str) else json.dumps(event) + "\n"
            await response.write(line.encode())
        if then_silence:
            await asyncio.sleep(3600)
        return response

    return answer


def event(kind: str, thing: dict[str, Any], version: str) -> dict[str, Any]:
    """An event of a watch."""
    metadata = {**thing.get("metadata", {}), "resourceVersion": version}
    return {"type": kind, "object": {**thing, "metadata": metadata}}


def expired() -> dict[str, Any]:
    """The event of a server that no longer keeps the changes."""
    status = {"kind": "Status", "code": 410, "message": "too old resource version: 1 (9)"}
    return {"type": "ERROR", "object": status}


@asynccontextmanager
async def served(wire: FakeServer, folder: Path) -> AsyncIterator[Path]:
    """Serve on a free loopback port; yields a kubeconfig for it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", wire.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield kubeconfig(folder / "kubeconfig", f"http://{host}:{port}")
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(
    wire: FakeServer, folder: Path, answer: Answer | None = None
) -> AsyncIterator[ApiServer]:
    """Serve, and yield a client, with a short timeout if the answer is NO_ANSWER."""
    async with (
        served(wire, folder) as login,
        ApiServer.connect(Login(login), 0.5 if answer is NO_ANSWER else 30) as server,
    ):
        yield server


def kubeconfig(
    file: Path, server: str, *, user: dict[str, Any] | None = None, **cluster: Any
) -> Path:
    """Write a kubeconfig of one cluster and one user."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
    }
    file.write_text(json.dumps(config))
    return file
