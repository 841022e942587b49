"""Requests over one HTTP/2 connection, for what a server may do with them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from leadline_controller.framework.ports import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotLeadingError,
    UnavailableError,
)
from leadline_controller.kube.client import ApiServer, ExpiredError
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.kube.connection import Login
from leadline_controller.kube.header_fields import field_block, read_response_head, request_head
from leadline_controller.kube.http2 import NotOfferedError, Response
from leadline_controller.kube.multiplexer import Multiplexer
from leadline_controller.kubeobjects.manifest import read_pod

from tests.contracts.harnesses import PATIENCE_S
from tests.kube.http2_server import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    RST_STREAM,
    WINDOW_UPDATE,
    Http2Server,
    Request,
    api_of,
    certificate_in,
    client_tls,
    literal,
    server_tls,
    serving,
)
from tests.kube.objects import pod
from tests.kube.wire import FakeServer, json_answer, kubeconfig
from tests.support.certificates import Certificate

FIELDS = field_block({":method": "POST", ":scheme": "https", ":authority": "x"})
MADE = pod("p")
POD = read_pod({**MADE, "metadata": {**MADE["metadata"], "namespace": "default", "uid": "u-1"}})
BINDING = "/api/v1/namespaces/default/pods/p/binding"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_in(tmp_path_factory.mktemp("http2"))


class Client:
    """Sends requests to a server over a multiplexer."""

    def __init__(self, multiplexer: Multiplexer) -> None:
        self.multiplexer = multiplexer

    async def post(
        self,
        path: str = "/x",
        body: bytes = b"{}",
        limit_s: float = PATIENCE_S,
        may_send: Callable[[], object] = lambda: None,
    ) -> Response:
        until_s = asyncio.get_running_loop().time() + limit_s

        def head() -> bytes:
            may_send()
            return request_head(path, FIELDS, len(body))

        return await self.multiplexer.request(head, body, until_s)


@asynccontextmanager
async def client_of(server: Http2Server, certificate: Certificate) -> AsyncIterator[Client]:
    async with serving(server, server_tls(certificate, "h2")) as url:
        multiplexer = Multiplexer(url, partial(client_tls, certificate), None)
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield Client(multiplexer)
        finally:
            multiplexer.close()


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0.01)


async def test_requests_share_a_connection_and_get_their_own_answers(
    certificate: Certificate,
) -> None:
    server = Http2Server(lambda request: request.answer(body={"path": request.path}))
    async with client_of(server, certificate) as client:
        answers = await asyncio.gather(*(client.post(f"/{i}") for i in range(300)))
    assert [each.body for each in answers] == [b'{"path": "/%d"}' % i for i in range(300)]
    assert {each.status for each in answers} == {201}
    assert len(server.connections) == 1


async def test_no_more_requests_are_under_way_than_the_server_takes(
    certificate: Certificate,
) -> None:
    under_way: list[Request] = []
    most = 0

    def answer(request: Request) -> None:
        nonlocal most
        under_way.append(request)
        most = max(most, len(under_way))
        asyncio.get_running_loop().call_later(0.01, lambda: under_way.pop(0).answer())

    async with client_of(Http2Server(answer, streams=3), certificate) as client:
        await client.post()  # the server's settings come with the first answer
        await asyncio.gather(*(client.post() for _ in range(20)))
    assert most == 3


HEADS = {
    "indexed 200": (b"\x88", 200, ""),
    "indexed 404": (b"\x8d", 404, ""),
    "literal": (literal(8, "201"), 201, ""),
    "literal, to be indexed": (b"\x48\x03201", 201, ""),
    "Huffman codes": (bytes.fromhex("0882100" + "3"), 201, ""),
    "after a change of the table's size": (b"\x20" + literal(8, "201"), 201, ""),
    "a new field before": (literal(8, "429") + b"\x00\x01a\x02bc" + literal(53, "7"), 429, "7"),
    "Retry-After in Huffman codes": (literal(8, "503") + b"\x0f\x26\x82\x0b\x7f", 503, "15"),
    "Retry-After as a date": (literal(8, "503") + literal(53, "Mon, 01 Jan"), 503, ""),
}


@pytest.mark.parametrize(("block", "status", "retry_after"), HEADS.values(), ids=HEADS.keys())
def test_status_and_retry_after_are_read(block: bytes, status: int, retry_after: str) -> None:
    assert read_response_head(block) == (status, retry_after)


@pytest.mark.parametrize(
    "block", [b"", b"\x00\x01a\x01b", b"\x08", b"\x08\x7f\xff\xff\xff\xff\xff"]
)
def test_a_broken_head_is_an_error(block: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        read_response_head(block)


async def test_an_answer_may_come_in_any_frames(certificate: Certificate) -> None:
    def answer(request: Request) -> None:
        stream, send = request.stream, request.connection.send
        send(HEADERS, END_HEADERS, stream, literal(8, "100"))
        send(HEADERS, PADDED, stream, b"\x02" + b"\x08\x03" + b"\x00\x00")
        send(CONTINUATION, END_HEADERS, stream, b"201")
        send(0x77, 0, stream, b"of a kind that nobody knows")
        send(DATA, PADDED, stream, b"\x03" + b'{"a":' + b"\x00\x00\x00")
        send(DATA, 0, stream, b" 1}")
        send(HEADERS, END_HEADERS | END_STREAM, stream, b"\x00\x01t\x01v")

    async with client_of(Http2Server(answer), certificate) as client:
        assert await client.post() == Response(201, "", b'{"a": 1}')


async def test_a_ping_is_answered(certificate: Certificate) -> None:
    def answer(request: Request) -> None:
        request.connection.send(PING, 0, 0, b"12345678")
        request.answer()

    server = Http2Server(answer)
    async with client_of(server, certificate) as client:
        await client.post()
        await until(lambda: (PING, 1, 0, b"12345678") in server.connections[0].others)


async def test_bodies_wait_for_the_servers_window(certificate: Certificate) -> None:
    held: list[Request] = []
    async with client_of(Http2Server(held.append), certificate) as client:
        posts = [asyncio.create_task(client.post(body=b"x" * 16_000)) for _ in range(5)]
        await until(lambda: len(held) == 4)
        await asyncio.sleep(0.05)
        assert len(held) == 4, "65,535 bytes are the first window"
        held[0].connection.send(WINDOW_UPDATE, 0, 0, (64_000).to_bytes(4))
        await until(lambda: len(held) == 5)
        for each in held:
            each.answer()
        await asyncio.gather(*posts)


async def test_what_a_leaving_server_did_not_look_at_is_sent_again(
    certificate: Certificate,
) -> None:
    held: list[Request] = []

    def answer(request: Request) -> None:
        held.append(request)
        if len(server.connections) > 1:
            request.answer()
        elif len(held) == 3:
            request.connection.send(GOAWAY, 0, 0, held[0].stream.to_bytes(4) + bytes(4))
            held[0].answer(status=200)

    server = Http2Server(answer)
    async with client_of(server, certificate) as client:
        answers = await asyncio.gather(*(client.post(f"/{i}") for i in range(3)))
        await client.post("/later")
    assert [each.status for each in answers] == [200, 201, 201]
    assert [each.path for each in server.requests] == ["/0", "/1", "/2", "/1", "/2", "/later"]
    assert len(server.connections) == 2


async def test_the_next_connection_is_there_before_the_next_request(
    certificate: Certificate,
) -> None:
    server = Http2Server(lambda request: request.answer())
    async with client_of(server, certificate) as client:
        await client.post()
        for _ in range(2):  # as Go's servers do
            server.connections[0].send(GOAWAY, 0, 0, (2**31 - 1).to_bytes(4) + bytes(4))
        await until(lambda: len(server.connections) == 2)
        await client.post("/next")
        assert len(server.connections) == 2
    assert [each.connection for each in server.requests] == server.connections


@pytest.mark.parametrize(("code", "times"), [(0x7, 2), (0x8, 1), (0x2, 1)])
async def test_only_a_refused_request_is_sent_again(
    certificate: Certificate, code: int, times: int
) -> None:
    def answer(request: Request) -> None:
        if len(server.requests) > 1:
            request.answer()
        else:
            request.connection.send(RST_STREAM, 0, request.stream, code.to_bytes(4))

    server = Http2Server(answer)
    async with client_of(server, certificate) as client:
        if times == 1:
            with pytest.raises(ConnectionError, match="reset"):
                await client.post()
        else:
            assert (await client.post()).status == 201
    assert len(server.requests) == times


async def test_a_request_on_a_connection_that_breaks_is_not_sent_again(
    certificate: Certificate,
) -> None:
    server = Http2Server(lambda request: request.connection.abort())
    async with client_of(server, certificate) as client:
        with pytest.raises(ConnectionError):
            await client.post()
        with pytest.raises(ConnectionError):
            await client.post("/next")
    assert [each.path for each in server.requests] == ["/x", "/next"]
    assert len(server.connections) == 2


@pytest.mark.parametrize(
    "sent",
    [
        lambda request: request.connection.writer.write(b"HTTP/1.1 200 OK\r\n\r\n"),
        lambda request: request.connection.send(CONTINUATION, END_HEADERS, request.stream, b""),
        lambda request: request.connection.send(
            HEADERS, END_HEADERS | END_STREAM, request.stream, b"\x00\x01a\x01b"
        ),
    ],
    ids=["another protocol", "a continuation of nothing", "no status"],
)
async def test_a_server_that_breaks_the_protocol_loses_the_connection(
    certificate: Certificate, sent: Callable[[Request], None]
) -> None:
    async with client_of(Http2Server(sent), certificate) as client:
        with pytest.raises(ConnectionError, match="HTTP/2 is broken"):
            await client.post()


async def test_a_silent_server_loses_the_connection(certificate: Certificate) -> None:
    def answer(request: Request) -> None:
        if request.path != "/silent":
            request.answer()

    server = Http2Server(answer)
    async with client_of(server, certificate) as client:
        await client.post()
        with pytest.raises(TimeoutError):
            await client.post("/silent", limit_s=0.2)
        await client.post()
    assert len(server.connections) == 2


async def test_a_request_that_nobody_waits_for_is_cancelled(certificate: Certificate) -> None:
    held: list[Request] = []
    server = Http2Server(held.append, streams=1)
    async with client_of(server, certificate) as client:
        first = asyncio.create_task(client.post("/first"))
        await until(lambda: held)
        second = asyncio.create_task(client.post("/second"))
        await asyncio.sleep(0.01)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        await until(lambda: len(held) == 2)
        held[0].answer()  # too late
        held[1].answer(200)
        assert (await second).status == 200
    assert server.connections[0].kinds().count(RST_STREAM) == 1
    assert len(server.connections) == 1


async def test_a_request_that_waits_for_its_turn_is_not_sent_once_it_may_not(
    certificate: Certificate,
) -> None:
    held: list[Request] = []
    async with client_of(Http2Server(held.append, streams=1), certificate) as client:
        first = asyncio.create_task(client.post("/first"))
        await until(lambda: held)
        is_open = True

        def may_send() -> None:
            if not is_open:
                raise NotLeadingError("no longer")

        second = asyncio.create_task(client.post("/second", may_send=may_send))
        await asyncio.sleep(0.01)
        is_open = False
        held[0].answer()
        await first
        with pytest.raises(NotLeadingError):
            await second
    assert [each.path for each in held] == ["/first"]


async def test_a_server_without_http2_is_told_apart(certificate: Certificate) -> None:
    server = Http2Server(lambda request: request.answer())
    async with serving(server, server_tls(certificate, "http/1.1")) as url:
        multiplexer = Multiplexer(url, partial(client_tls, certificate), None)
        with pytest.raises(NotOfferedError):
            await Client(multiplexer).post()
        multiplexer.close()


async def test_who_waits_for_a_connection_that_is_closed_gets_an_error(
    certificate: Certificate,
) -> None:
    accepted = asyncio.Event()

    async with await asyncio.start_server(lambda *_: accepted.set(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        tls = partial(client_tls, certificate)
        multiplexer = Multiplexer(f"https://127.0.0.1:{port}", tls, None)
        waiting = asyncio.create_task(Client(multiplexer).post())
        await asyncio.wait_for(accepted.wait(), PATIENCE_S)
        multiplexer.close()
        with pytest.raises(ConnectionError, match="was closed"):
            await asyncio.wait_for(waiting, PATIENCE_S)
        # Nothing opens another one that nobody would close.
        with pytest.raises(ConnectionError, match="was closed"):
            await Client(multiplexer).post()


# As the API client uses it.


REFUSALS: list[tuple[int, type[ClusterError]]] = [
    (400, InvalidError),
    (403, ForbiddenError),
    (404, NotFoundError),
    (409, ConflictError),
    (410, ExpiredError),
    (422, InvalidError),
    (429, UnavailableError),
    (500, UnavailableError),
    (504, UnavailableError),
]


@pytest.mark.parametrize(("status", "error"), REFUSALS)
async def test_each_refusal_is_the_right_error_and_nothing_is_sent_twice(
    certificate: Certificate, tmp_path: Path, status: int, error: type[ClusterError]
) -> None:
    said = {"kind": "Status", "message": "for this reason"}
    server = Http2Server(lambda request: request.answer(status, said))
    async with api_of(server, certificate, tmp_path) as api:
        with pytest.raises(error, match=rf"{status}: for this reason \(POST {BINDING}\)"):
            await KubeCluster(api, api).bind(POD, "n1")
    assert [each.path for each in server.requests] == [BINDING]


async def test_a_fenced_binding_waits_for_retry_after_and_states_its_time(
    certificate: Certificate, tmp_path: Path
) -> None:
    def answer(request: Request) -> None:
        first = len(server.requests) == 1
        request.answer(429 if first else 201, retry_after="1" if first else "")

    class Fence:
        def left_s(self) -> float:
            return 4.5

    server = Http2Server(answer)
    async with api_of(server, certificate, tmp_path) as api:
        cluster = KubeCluster(api, api).fenced(Fence())
        with pytest.raises(UnavailableError):
            await cluster.bind(POD, "n1")
        refused_s = asyncio.get_running_loop().time()
        await cluster.bind(POD, "n1")
        assert asyncio.get_running_loop().time() - refused_s >= 0.9
    assert {each.path for each in server.requests} == {f"{BINDING}?timeout=4.500s"}


async def test_the_login_is_sent_and_a_broken_connection_is_named(
    certificate: Certificate, tmp_path: Path
) -> None:
    server = Http2Server(lambda request: request.connection.abort())
    async with api_of(server, certificate, tmp_path) as api:
        with pytest.raises(UnavailableError, match=rf"POST https://127.*{BINDING}: the "):
            await KubeCluster(api, api).bind(POD, "n1")


async def test_without_http2_bindings_go_the_other_way(
    certificate: Certificate, tmp_path: Path
) -> None:
    wire = FakeServer()
    wire.answer(BINDING, json_answer({"kind": "Status"}, status=201))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", wire.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    tls: ssl.SSLContext = server_tls(certificate, "http/1.1")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    port = runner.addresses[0][1]
    authority: dict[str, Any] = {"certificate-authority": str(certificate.ca_file)}
    file = kubeconfig(tmp_path / "kubeconfig", f"https://127.0.0.1:{port}", **authority)
    try:
        async with ApiServer.connect(Login(file)) as api:
            for _ in range(2):
                await KubeCluster(api, api).bind(POD, "n1")
    finally:
        await runner.cleanup()
    assert len(wire.queries(BINDING)) == 2
