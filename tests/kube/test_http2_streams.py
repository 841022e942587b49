"""Watches and lists over the HTTP/2 connection that carries all other requests too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.framework.ports import ForbiddenError, UnavailableError
from leadline_controller.kube.client import ApiServer, ExpiredError

from tests.contracts.harnesses import PATIENCE_S
from tests.kube.http2_server import (
    DATA,
    END_STREAM,
    PING,
    RST_STREAM,
    WINDOW_UPDATE,
    Http2Server,
    Request,
    api_of,
    certificate_in,
)
from tests.support.certificates import Certificate

PODS = "/api/v1/pods"
WATCH = {"watch": "1", "resourceVersion": "7"}
WINDOW_BYTES = 2**20
FRAME_BYTES = 16_384
LONG_S = 60.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_in(tmp_path_factory.mktemp("streams"))


def line(number: int) -> bytes:
    return b'{"n": %d}\n' % number


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)


async def read(events: AsyncIterator[dict[str, Any]], count: int) -> list[int]:
    async with asyncio.timeout(PATIENCE_S):
        return [(await anext(events))["n"] for _ in range(count)]


async def rest(events: AsyncIterator[dict[str, Any]]) -> list[int]:
    async with asyncio.timeout(PATIENCE_S):
        return [event["n"] async for event in events]


class Watches:
    """Answers requests that create something, and holds the watches."""

    def __init__(self) -> None:
        self.held: list[Request] = []

    def answer(self, request: Request) -> None:
        if request.body:
            request.answer()
        else:
            request.begin()
            self.held.append(request)


def updates(request: Request) -> list[int]:
    """The windows that the client granted for a stream, in bytes."""
    return [
        int.from_bytes(payload)
        for kind, _, stream, payload in request.connection.others
        if (kind, stream) == (WINDOW_UPDATE, request.stream)
    ]


async def test_watches_and_bindings_share_one_connection(
    certificate: Certificate, tmp_path: Path
) -> None:
    watches = Watches()
    server = Http2Server(watches.answer)
    async with (
        api_of(server, certificate, tmp_path) as api,
        api.stream(PODS, WATCH, LONG_S) as pods,
        api.stream("/api/v1/nodes", WATCH, LONG_S) as nodes,
    ):
        first, second = watches.held
        first.connection.send(DATA, 0, first.stream, line(1) + line(2)[:3])
        second.connection.send(DATA, 0, second.stream, line(10))
        first.connection.send(DATA, 0, first.stream, line(2)[3:])
        assert await read(pods, 2) == [1, 2]
        await api.post("/x", {})
        assert await read(nodes, 1) == [10]
    assert len(server.connections) == 1
    assert [each.path for each in server.requests] == [
        f"{PODS}?watch=1&resourceVersion=7",
        "/api/v1/nodes?watch=1&resourceVersion=7",
        "/x",
    ]


async def test_a_watch_ends_when_the_server_ends_it(
    certificate: Certificate, tmp_path: Path
) -> None:
    def answer(request: Request) -> None:
        request.begin(line(1))
        request.connection.send(DATA, END_STREAM, request.stream, line(2))

    async with (
        api_of(Http2Server(answer), certificate, tmp_path) as api,
        api.stream(PODS, WATCH, LONG_S) as events,
    ):
        assert await rest(events) == [1, 2]


@pytest.mark.parametrize("ending", ["abort", "reset"])
async def test_a_watch_ends_with_its_connection_and_the_next_begins_another(
    certificate: Certificate, tmp_path: Path, ending: str
) -> None:
    watches = Watches()
    server = Http2Server(watches.answer)
    async with api_of(server, certificate, tmp_path) as api:
        async with api.stream(PODS, WATCH, LONG_S) as events:
            held = watches.held[0]
            held.connection.send(DATA, 0, held.stream, line(1) + line(2)[:3])
            assert await read(events, 1) == [1]
            if ending == "abort":
                held.connection.abort()
            else:
                held.connection.send(RST_STREAM, 0, held.stream, (2).to_bytes(4))
            assert await rest(events) == []
        async with api.stream(PODS, WATCH, LONG_S) as events:
            watches.held[1].connection.send(DATA, 0, watches.held[1].stream, line(3))
            assert await read(events, 1) == [3]
    assert len(server.connections) == (2 if ending == "abort" else 1)


async def test_a_closed_watch_is_cancelled_and_the_others_go_on(
    certificate: Certificate, tmp_path: Path
) -> None:
    watches = Watches()
    async with (
        api_of(Http2Server(watches.answer), certificate, tmp_path) as api,
        api.stream(PODS, WATCH, LONG_S) as pods,
    ):
        async with api.stream("/api/v1/nodes", WATCH, LONG_S):
            pass
        first, second = watches.held
        cancelled = (RST_STREAM, 0, second.stream, (8).to_bytes(4))
        await until(lambda: cancelled in second.connection.others)
        second.connection.send(DATA, 0, second.stream, line(7))  # too late
        first.connection.send(DATA, 0, first.stream, line(1))
        assert await read(pods, 1) == [1]


async def test_a_silent_server_loses_the_connection_with_all_watches(
    certificate: Certificate, tmp_path: Path
) -> None:
    watches = Watches()
    server = Http2Server(watches.answer)
    async with api_of(server, certificate, tmp_path) as api:
        async with (
            api.stream("/api/v1/nodes", WATCH, LONG_S) as nodes,
            api.stream(PODS, WATCH, 0.2) as pods,
        ):
            assert await rest(pods) == []
            assert await rest(nodes) == []
        await api.post("/x", {})
    assert len(server.connections) == 2


async def test_a_watch_that_alone_is_silent_ends_alone(
    certificate: Certificate, tmp_path: Path
) -> None:
    watches = Watches()
    server = Http2Server(watches.answer)
    async with api_of(server, certificate, tmp_path) as api:
        async with (
            api.stream("/api/v1/nodes", WATCH, LONG_S) as nodes,
            api.stream(PODS, WATCH, 0.5) as pods,
        ):
            first, silent = watches.held
            ended = asyncio.create_task(rest(pods))
            while not ended.done():
                first.connection.send(PING, 0, 0, b"12345678")
                await asyncio.sleep(0.05)
            assert await ended == []
            first.connection.send(DATA, 0, first.stream, line(1))
            assert await read(nodes, 1) == [1]
        await until(lambda: RST_STREAM in silent.connection.kinds())
    assert len(server.connections) == 1


async def test_the_window_is_granted_again_for_what_was_read_and_for_no_more(
    certificate: Certificate, tmp_path: Path
) -> None:
    watches = Watches()
    events_of_a_frame = FRAME_BYTES // len(line(0))
    frame = events_of_a_frame * line(0)

    async with (
        api_of(Http2Server(watches.answer), certificate, tmp_path) as api,
        api.stream(PODS, WATCH, LONG_S) as events,
    ):
        held = watches.held[0]
        sent = 0
        while sent + len(frame) <= WINDOW_BYTES:
            held.connection.send(DATA, 0, held.stream, frame)
            sent += len(frame)
        await api.post("/x", {})  # its answer comes after all of that
        assert updates(held) == []
        await read(events, events_of_a_frame)
        await until(lambda: updates(held))
        assert sum(updates(held)) == sent


async def test_a_list_may_be_longer_than_the_window(
    certificate: Certificate, tmp_path: Path
) -> None:
    text = json.dumps({"items": ["x" * 1000] * 5000}).encode()

    def answer(request: Request) -> None:
        request.begin()
        asyncio.get_running_loop().create_task(send(request))

    async def send(request: Request) -> None:
        sent = 0
        while sent < len(text):
            while sent + FRAME_BYTES > WINDOW_BYTES + sum(updates(request)):  # noqa: ASYNC110  # a poll
                await asyncio.sleep(0.01)
            piece = text[sent : sent + FRAME_BYTES]
            request.connection.send(DATA, 0, request.stream, piece)
            sent += len(piece)
        request.connection.send(DATA, END_STREAM, request.stream, b"")

    server = Http2Server(answer)
    async with api_of(server, certificate, tmp_path) as api:
        found = await api.get(PODS, limit="5000")
    assert len(found["items"]) == 5000
    assert [each.path for each in server.requests] == [f"{PODS}?limit=5000"]


@pytest.mark.parametrize(
    ("status", "error"), [(403, ForbiddenError), (410, ExpiredError), (503, UnavailableError)]
)
async def test_a_refused_watch_or_list_says_why(
    certificate: Certificate, tmp_path: Path, status: int, error: type[Exception]
) -> None:
    said = {"kind": "Status", "message": "for this reason"}
    server = Http2Server(lambda request: request.answer(status, said))
    expected = rf"{status}: for this reason \(GET {PODS}\)"
    async with api_of(server, certificate, tmp_path) as api:
        with pytest.raises(error, match=expected):
            async with api.stream(PODS, WATCH, LONG_S):
                pass
    async with api_of(server, certificate, tmp_path) as api:
        with pytest.raises(error, match=expected):
            await api.get(PODS)


async def test_watches_leave_half_of_the_servers_requests_to_others(
    certificate: Certificate, tmp_path: Path
) -> None:
    watches = Watches()
    server = Http2Server(watches.answer, streams=4)
    async with api_of(server, certificate, tmp_path) as api:
        await api.post("/first", {})  # the server's settings come with the first answer
        async with api.stream(PODS, WATCH, LONG_S), api.stream(PODS, WATCH, LONG_S):
            # The third goes the other way, which this server does not know.
            with pytest.raises(UnavailableError):
                async with api.stream(PODS, WATCH, LONG_S):
                    pass
            await asyncio.gather(*(api.post("/x", {}) for _ in range(10)))
    assert len(watches.held) == 2


async def test_a_watch_is_cancelled_with_the_task_that_opens_it(
    certificate: Certificate, tmp_path: Path
) -> None:
    held: list[Request] = []
    server = Http2Server(held.append)
    async with api_of(server, certificate, tmp_path) as api:

        async def follow() -> None:
            async with api.stream(PODS, WATCH, LONG_S) as events, aclosing(events):  # type: ignore[type-var]  # a generator
                await rest(events)

        following = asyncio.create_task(follow())
        await until(lambda: held)
        following.cancel()
        await asyncio.wait({following})
        await until(lambda: RST_STREAM in held[0].connection.kinds())


async def test_after_a_401_the_next_connection_shows_the_present_certificate(
    certificate: Certificate, tmp_path: Path
) -> None:
    def answer(request: Request) -> None:
        request.answer(401 if len(server.connections) == 1 else 201)

    server = Http2Server(answer)
    files = {
        "client-certificate": str(certificate.cert_file),
        "client-key": str(certificate.key_file),
    }
    async with api_of(server, certificate, tmp_path, files) as api:
        await refused(api)
        await api.post("/x", {})
    assert len(server.connections) == 2


async def refused(api: ApiServer) -> None:
    with pytest.raises(UnavailableError, match="401"):
        await api.post("/x", {})
