"""Requests and watches over HTTP/2, for what a server may do with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from h2.errors import ErrorCodes
from leadline_controller.framework.ports import (
    ForbiddenError,
    NodeChanged,
    NodeDeleted,
    NotLeadingError,
    UnavailableError,
)
from leadline_controller.kube import client, transport
from leadline_controller.kube.client import ApiServer, ExpiredError
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.kube.connection import Login
from leadline_controller.kube.convert import Converter
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.kube.reflector import Reflector
from leadline_controller.kubeobjects.manifest import read_pod

from tests.contracts.harnesses import PATIENCE_S
from tests.kube.http2_server import (
    Http2Server,
    Request,
    api_of,
    certificate_in,
    server_tls,
    serving,
)
from tests.kube.objects import node, pod
from tests.kube.relay import Relay, relay
from tests.kube.wire import kubeconfig
from tests.support.certificates import Certificate
from tests.support.tasks import until

PODS = "/api/v1/pods"
POD_PATH = "/api/v1/namespaces/default/pods/p"
BINDING = f"{POD_PATH}/binding"
WATCH = {"watch": "1", "resourceVersion": "7"}
LONG_S = 60.0
BIND = {"kind": "Binding"}
MADE = pod("p")
POD = read_pod({**MADE, "metadata": {**MADE["metadata"], "namespace": "default", "uid": "u-1"}})


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_in(tmp_path_factory.mktemp("transport"))


async def read(events: AsyncIterator[client.WatchEvent], count: int) -> list[int]:
    async with asyncio.timeout(PATIENCE_S):
        return [int(bytes((await anext(events)).object)) for _ in range(count)]


async def rest(events: AsyncIterator[client.WatchEvent]) -> list[int]:
    async with asyncio.timeout(PATIENCE_S):
        return [int(bytes(event.object)) async for event in events]


def line(number: int) -> bytes:
    return b'{"type": "ADDED", "object": %d}\n' % number


def bind(api: ApiServer) -> asyncio.Task[Any]:
    return asyncio.create_task(api.post(BINDING, BIND))


class Watches:
    """Answers bindings, and holds the watches."""

    def __init__(self) -> None:
        self.held: list[Request] = []

    def answer(self, request: Request) -> None:
        if request.body:
            request.answer()
        else:
            request.begin()
            self.held.append(request)


async def test_watches_and_requests_share_one_connection(
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
        first.send(line(1) + line(2)[:3])
        second.send(line(10))
        first.send(line(2)[3:])
        assert await read(pods, 2) == [1, 2]
        await asyncio.gather(*(bind(api) for _ in range(80)))
        assert await read(nodes, 1) == [10]
        second.end()
        assert await rest(nodes) == []
    assert len(server.connections) == 1
    assert [each.path for each in server.requests[:3]] == [
        f"{PODS}?watch=1&resourceVersion=7",
        "/api/v1/nodes?watch=1&resourceVersion=7",
        BINDING,
    ]
    assert server.requests[2].fields["authorization"] == "Bearer secret"


VERBS: dict[str, Callable[[ApiServer], Any]] = {
    "GET": lambda api: api.get(POD_PATH),
    "POST": lambda api: api.post("/api/v1/namespaces/default/pods", {"kind": "Pod"}),
    "PATCH": lambda api: api.patch(POD_PATH, {}),
    "DELETE": lambda api: api.delete(POD_PATH, "u"),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_an_answer_to_any_verb_may_be_thirty_megabytes_long(
    certificate: Certificate, tmp_path: Path, verb: str
) -> None:
    text = "x" * 30_000_000
    whole = {"kind": "Pod", "metadata": {"name": "p", "annotations": {"long": text}}}
    server = Http2Server(lambda request: request.answer(200, whole))
    async with api_of(server, certificate, tmp_path) as api, asyncio.timeout(PATIENCE_S):
        await VERBS[verb](api)
    assert [each.fields[":method"] for each in server.requests] == [verb]


async def test_a_pod_of_more_than_a_megabyte_is_preempted(
    certificate: Certificate, tmp_path: Path
) -> None:
    """The server answers a deletion with the object, which etcd lets be 1.5 MiB long."""
    annotations = {"long": "x" * 2 * 2**20}
    whole = {**MADE, "kind": "Pod", "metadata": {"name": "p", "annotations": annotations}}
    server = Http2Server(lambda request: request.answer(200, whole))
    async with api_of(server, certificate, tmp_path) as api, asyncio.timeout(PATIENCE_S):
        await KubeCluster(api, api).preempt(POD, "makes room")
    assert [each.fields[":method"] for each in server.requests] == ["PATCH", "DELETE"]


async def test_bodies_fit_into_small_windows(certificate: Certificate, tmp_path: Path) -> None:
    server = Http2Server(lambda request: request.answer(), window_bytes=1000)
    body = {**BIND, "metadata": {"name": "x" * 100_000}}
    async with api_of(server, certificate, tmp_path) as api, asyncio.timeout(PATIENCE_S):
        await bind(api)
        await asyncio.gather(*(api.post(BINDING, body) for _ in range(3)))
    assert [len(each.body) > 100_000 for each in server.requests[1:]] == [True] * 3


async def test_a_server_that_takes_one_request_at_a_time_gets_one(
    certificate: Certificate, tmp_path: Path
) -> None:
    watches = Watches()
    server = Http2Server(watches.answer, streams=1)
    async with api_of(server, certificate, tmp_path) as api:
        await bind(api)  # the server's settings come with the first answer
        async with api.stream(PODS, WATCH, LONG_S) as events:
            await asyncio.gather(*(bind(api) for _ in range(20)))
            watches.held[0].send(line(1))
            assert await read(events, 1) == [1]
    assert len(server.requests) == 22


# Connections that end.


@pytest.mark.parametrize("ending", ["abort", "reset"])
async def test_a_watch_ends_with_its_connection_and_the_next_begins_another(
    certificate: Certificate, tmp_path: Path, ending: str
) -> None:
    watches = Watches()
    server = Http2Server(watches.answer)
    async with api_of(server, certificate, tmp_path) as api:
        async with api.stream(PODS, WATCH, LONG_S) as events:
            held = watches.held[0]
            held.send(line(1) + line(2)[:3])
            assert await read(events, 1) == [1]
            if ending == "abort":
                held.connection.abort()
            else:
                held.reset(ErrorCodes.INTERNAL_ERROR)
            assert await rest(events) == []
        async with api.stream(PODS, WATCH, LONG_S) as events:
            watches.held[1].send(line(3))
            assert await read(events, 1) == [3]
    assert len(server.connections) == (2 if ending == "abort" else 1)


async def test_a_leaving_server_ends_what_it_began_and_the_rest_takes_another_connection(
    certificate: Certificate, tmp_path: Path
) -> None:
    held: list[Request] = []
    server = Http2Server(held.append)
    async with api_of(server, certificate, tmp_path) as api:
        first = bind(api)
        await until(lambda: held)
        held[0].connection.leave(2**31 - 1)
        second = bind(api)
        await until(lambda: len(held) == 2)
        held[1].answer()
        await second
        held[0].answer()
        await first
    assert len(server.connections) == 2


@pytest.mark.parametrize("trouble", ["leaves", "refuses", "cancels", "aborts"])
@pytest.mark.parametrize("warm", [False, True])
async def test_a_body_is_never_sent_twice(
    certificate: Certificate, tmp_path: Path, trouble: str, *, warm: bool
) -> None:
    """Also where the server says that it has not looked at it: libcurl does not tell these apart.
    warm: over a used connection, on which many clients repeat a failed request."""

    def answer(request: Request) -> None:
        if "first" in request.path:
            request.answer()
        elif trouble == "leaves":
            request.connection.leave(0)
            request.connection.writer.close()
        elif trouble == "aborts":
            request.connection.abort()
        else:
            refused = trouble == "refuses"
            request.reset(ErrorCodes.REFUSED_STREAM if refused else ErrorCodes.CANCEL)

    server = Http2Server(answer)
    async with api_of(server, certificate, tmp_path) as api, asyncio.timeout(PATIENCE_S):
        if warm:
            await api.post(f"{POD_PATH}-first/binding", BIND)
        with pytest.raises(UnavailableError, match=rf"POST https://127.*{BINDING}: "):
            await api.post(BINDING, BIND)
    assert [each.path for each in server.requests if "first" not in each.path] == [BINDING]


async def test_a_server_that_always_leaves_is_not_asked_without_end(
    certificate: Certificate, tmp_path: Path
) -> None:
    server = Http2Server(lambda request: request.connection.leave(0))
    async with api_of(server, certificate, tmp_path, timeout_s=0.5) as api:
        for _ in range(3):
            with pytest.raises(UnavailableError):
                await api.get(PODS)
    assert len(server.connections) <= 3 * 6


# Silence.


async def test_a_silent_server_loses_the_connection_with_all_watches(
    certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_SILENCE_S", 0.05)
    watches = Watches()
    server = Http2Server(watches.answer)
    async with api_of(server, certificate, tmp_path) as api:
        async with (
            api.stream("/api/v1/nodes", WATCH, 2 * PATIENCE_S) as nodes,
            api.stream(PODS, WATCH, 0.2) as pods,
        ):
            assert await rest(pods) == []
            assert await rest(nodes) == []
        await api.post(BINDING, BIND)
    assert len(server.connections) == 2


async def test_a_request_without_an_answer_loses_the_connection_if_nothing_else_came(
    certificate: Certificate, tmp_path: Path
) -> None:
    server = Http2Server(lambda request: request.answer() if "first" in request.path else None)
    async with api_of(server, certificate, tmp_path, timeout_s=0.2) as api:
        await api.post(f"{POD_PATH}-first/binding", BIND)
        with pytest.raises(UnavailableError, match="no answer in time"):
            await api.post(BINDING, BIND)
        await api.post(f"{POD_PATH}-first/binding", BIND)
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
            ended = asyncio.create_task(rest(pods))
            while not ended.done():
                await api.post(BINDING, BIND)
                await asyncio.sleep(0.02)
            assert await ended == []
            watches.held[0].send(line(1))
            assert await read(nodes, 1) == [1]
        await until(lambda: watches.held[1].was_reset)
    assert len(server.connections) == 1


async def test_a_watch_whose_connection_is_lost_goes_on_over_the_next_one(
    certificate: Certificate, tmp_path: Path
) -> None:
    """The relay acknowledges all that comes, as a proxy does, and passes nothing on."""
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}
    late = {"type": "ADDED", "object": {**node("late"), "kind": "Node"}}

    def answer(request: Request) -> None:
        request.begin()
        event = late if len(server.connections) == 2 else bookmark
        request.send(json.dumps(event).encode() + b"\n")

    server = Http2Server(answer)
    seen: asyncio.Queue[NodeChanged] = asyncio.Queue()
    async with relayed(server, certificate, tmp_path) as (api, way), asyncio.timeout(PATIENCE_S):
        way.is_open.set()
        reflector = Reflector(
            *(api, ReachabilityLog(api.url), (0, 0), 0.3, "/api/v1/nodes"),
            *(Converter().node, NodeChanged, lambda gone: NodeDeleted(gone.name)),
        )
        watching = asyncio.create_task(reflector.watch("7", seen.put_nowait))
        await until(lambda: server.requests)
        way.lose_all()
        assert (await seen.get()).node.name == "late"
        watching.cancel()
        await asyncio.wait({watching})
    versions = [each.path.partition("resourceVersion=")[2][:1] for each in server.requests]
    assert versions[0] == "7"
    assert set(versions[1:]) <= {"7", "8"}
    assert len(server.connections) >= 2


# Requests that nobody waits for any more.


async def test_a_watch_is_cancelled_with_the_task_that_opens_or_reads_it(
    certificate: Certificate, tmp_path: Path
) -> None:
    held: list[Request] = []
    server = Http2Server(held.append)

    async def follow(api: ApiServer) -> None:
        async with api.stream(PODS, WATCH, LONG_S) as events:
            await rest(events)

    async with api_of(server, certificate, tmp_path) as api:
        for number, is_open in enumerate((False, True)):
            following = asyncio.create_task(follow(api))
            await until(lambda number=number: len(held) > number)  # type: ignore[misc]  # a lambda
            if is_open:
                held[number].begin()
                held[number].send(line(1))
            following.cancel()
            await asyncio.wait({following})
            await until(lambda number=number: held[number].was_reset)  # type: ignore[misc]  # a lambda
    assert len(server.connections) == 1


async def test_a_cancelled_request_leaves_the_others_alone(
    certificate: Certificate, tmp_path: Path
) -> None:
    held: list[Request] = []
    server = Http2Server(held.append)
    async with api_of(server, certificate, tmp_path) as api:
        first, second = bind(api), bind(api)
        await until(lambda: len(held) == 2)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        await until(lambda: any(each.was_reset for each in held))
        next(each for each in held if not each.was_reset).answer()
        await second
    assert len(server.connections) == 1


# The fence.


class Fence:
    def __init__(self, left_s: float) -> None:
        self.remaining_s = left_s

    def left_s(self) -> float:
        return self.remaining_s


@asynccontextmanager
async def relayed(
    server: Http2Server, certificate: Certificate, folder: Path
) -> AsyncIterator[tuple[ApiServer, Relay]]:
    """The API client, of a server behind a relay."""
    async with serving(server, server_tls(certificate, "h2")) as url:
        address = urlsplit(url)
        async with relay(address.hostname or "", address.port or 0) as way:
            authority: dict[str, Any] = {"certificate-authority": str(certificate.ca_file)}
            file = kubeconfig(folder / "kubeconfig", way.url, **authority)
            async with ApiServer.connect(Login(file)) as api:
                yield api, way


async def test_a_binding_that_waits_for_its_connection_is_not_sent_once_it_may_not(
    certificate: Certificate, tmp_path: Path
) -> None:
    server, fence = Http2Server(lambda request: request.answer()), Fence(9)
    async with relayed(server, certificate, tmp_path) as (api, way):
        binding = asyncio.create_task(KubeCluster(api, api).fenced(fence).bind(POD, "n1"))
        await way.called.wait()
        fence.remaining_s = -1
        way.is_open.set()
        with pytest.raises(NotLeadingError):
            await binding
        await until(lambda: server.connections)
        fence.remaining_s = 9
        await KubeCluster(api, api).fenced(fence).bind(POD, "n2")
    assert [b"n2" in each.body for each in server.requests] == [True]


async def test_a_binding_that_came_late_to_its_turn_is_not_sent(
    certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would give it longer than the fence does."""
    server, fence = Http2Server(lambda request: request.answer()), Fence(9)
    async with relayed(server, certificate, tmp_path) as (api, way):
        with monkeypatch.context() as patch:
            patch.setattr(client, "_MAX_TURN_S", 0)
            binding = asyncio.create_task(KubeCluster(api, api).fenced(fence).bind(POD, "n1"))
            await way.called.wait()
            way.is_open.set()
            with pytest.raises(UnavailableError, match="not its turn"):
                await binding
        await KubeCluster(api, api).fenced(fence).bind(POD, "n2")
    assert [each.path for each in server.requests] == [f"{BINDING}?timeout=9.000s"]
    assert b"n2" in server.requests[0].body


# Logging in.


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
        with pytest.raises(error, match=expected):
            await api.get(PODS)


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
        with pytest.raises(UnavailableError, match="401"):
            await api.post(BINDING, BIND)
        await api.post(BINDING, BIND)
    assert len(server.connections) == 2
