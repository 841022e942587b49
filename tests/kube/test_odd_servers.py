"""Answers, connections and ways to the server that are not what was asked for."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from leadline_controller.framework.ports import (
    ForbiddenError,
    PodChanged,
    Relisted,
    UnavailableError,
)
from leadline_controller.kube import transport
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.kube.connection import Login, server_of
from leadline_controller.kube.reflector import watch_cluster
from leadline_controller.kubeobjects.manifest import read_pod

from tests.contracts.harnesses import PATIENCE_S, Watched
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.http2_server import Http2Server, Request, api_of, server_tls, serving
from tests.kube.objects import pod
from tests.kube.relay import relay
from tests.kube.wire import FakeServer, connected, json_answer, kubeconfig
from tests.support.certificates import Authority, Certificate

POD_PATH = "/api/v1/namespaces/default/pods/p"
BINDING = f"{POD_PATH}/binding"
IN_DEFAULT = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
MADE = pod("p")
POD = read_pod({**MADE, "metadata": {**MADE["metadata"], "namespace": "default", "uid": "u-1"}})
DONE = {"kind": "Status", "status": "Success"}
FAILED = {"kind": "Status", "status": "Failure", "message": "no room"}
A_POD = {"kind": "Pod", "metadata": {"name": "p"}}
HTTP_200 = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("odd") / "pki")


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Certificate:
    return authority.server("127.0.0.1")


# Answers that are no success.

ACTS: dict[str, tuple[Callable[[KubeCluster], Awaitable[object]], str]] = {
    "bind": (lambda cluster: cluster.bind(POD, "n1"), BINDING),
    "evict": (lambda cluster: cluster.evict(POD), f"{POD_PATH}/eviction"),
    "annotate": (lambda cluster: cluster.annotate(POD, {"a": "b"}), POD_PATH),
    "read": (
        lambda cluster: cluster.read_secret("default/s"),
        "/api/v1/namespaces/default/secrets/s",
    ),
}
NO_SUCCESSES: dict[str, tuple[int, object]] = {
    "a failure": (200, FAILED),
    "another kind": (200, {"kind": "Node", "metadata": {"name": "n"}}),
    "no kind": (201, {}),
    "a list": (200, []),
    "a status without a result": (200, {"kind": "Status"}),
    "a page in JSON": (200, {"login": "https://sso.example.org"}),
    "no content": (204, DONE),
    "not modified": (304, DONE),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("status", "body"), NO_SUCCESSES.values(), ids=NO_SUCCESSES.keys())
async def test_only_what_was_asked_for_is_a_success(
    tmp_path: Path, act: str, status: int, body: object
) -> None:
    do, path = ACTS[act]
    wire = FakeServer()
    wire.answer(path, json_answer(body, status))
    async with connected(wire, tmp_path) as server:
        with pytest.raises(UnavailableError, match=path):
            await do(KubeCluster(server, server))
    assert len(wire.requests) == 1


@pytest.mark.parametrize(("act", "answer"), [("bind", A_POD), ("annotate", DONE), ("read", DONE)])
async def test_a_success_of_something_else_is_none(
    tmp_path: Path, act: str, answer: object
) -> None:
    do, path = ACTS[act]
    wire = FakeServer()
    wire.answer(path, json_answer(answer, 201))
    async with connected(wire, tmp_path) as server:
        with pytest.raises(UnavailableError, match="not what was asked for"):
            await do(KubeCluster(server, server))


async def test_a_list_of_something_else_is_no_list(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(NODES, json_answer({"kind": "Node", "metadata": {}}))
    async with connected(wire, tmp_path) as server:
        with pytest.raises(UnavailableError, match="not what was asked for"):
            await server.get(NODES)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("over_http2", [False, True])
async def test_no_redirect_is_followed(
    certificate: Certificate, tmp_path: Path, status: int, *, over_http2: bool
) -> None:
    elsewhere, wire = FakeServer(), FakeServer()
    elsewhere.answer("/", json_answer(DONE))
    async with connected(elsewhere, tmp_path) as other:

        async def redirect(_: web.Request) -> web.StreamResponse:
            return web.json_response({}, status=status, headers={"Location": f"{other.url}/"})

        wire.answer(BINDING, redirect)
        http2 = Http2Server(lambda request: request.answer(status, {}, location=f"{other.url}/"))
        (tmp_path / "there").mkdir()
        opened = (
            api_of(http2, certificate, tmp_path / "there")
            if over_http2
            else connected(wire, tmp_path / "there")
        )
        async with opened as api:
            with pytest.raises(UnavailableError, match=rf"{status}: .*{BINDING}"):
                await KubeCluster(api, api).bind(POD, "n1")
    assert elsewhere.requests == []
    assert len(wire.requests) + len(http2.requests) == 1


# Bytes that are no answer.


@asynccontextmanager
async def raw(answer: bytes, *, then_hold: bool, drip_s: float = 0) -> AsyncIterator[str]:
    """An HTTP/1.1 server that answers each request with these bytes. drip_s: between two of
    them."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length or 0))
            for piece in (bytes((each,)) for each in answer) if drip_s else (answer,):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(drip_s)
            if then_hold:
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


def sized(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


WHOLE = sized(json.dumps(DONE).encode())
ODD: dict[str, tuple[bytes, bool]] = {
    "nothing": (b"", False),
    "half a head": (b"HTTP/1.1 200 O", False),
    "half a body": (HTTP_200 + b"Content-Length: 100\r\n\r\n{", False),
    "half a chunk": (HTTP_200 + b"Transfer-Encoding: chunked\r\n\r\n20\r\n{", False),
    "a status of two digits": (b"HTTP/1.1 20 OK\r\n" + WHOLE, False),
    "another protocol": (b"SSH-2.0-OpenSSH_9.2\r\n", True),
    "a head without end": (HTTP_200 + b"X-Long: " + b"x" * 400_000, True),
    "headers without end": (HTTP_200 + b"X-Long: 1\r\n" * 40_000, True),
    "only a continuation": (b"HTTP/1.1 100 Continue\r\n\r\n", True),
    "a body that does not end": (HTTP_200 + b"\r\n" + b"{" * 100, True),
    "two lengths": (HTTP_200 + b"Content-Length: 3\r\n" + WHOLE, False),
}


@pytest.mark.parametrize(("answer", "then_hold"), ODD.values(), ids=ODD.keys())
async def test_an_odd_answer_is_a_failure_and_is_not_asked_for_again(
    tmp_path: Path, answer: bytes, *, then_hold: bool
) -> None:
    async with (
        raw(answer, then_hold=then_hold) as url,
        ApiServer.connect(Login(kubeconfig(tmp_path / "kubeconfig", url)), 0.5) as api,
    ):
        with pytest.raises(UnavailableError, match=BINDING):
            await KubeCluster(api, api).bind(POD, "n1")


@pytest.mark.parametrize("before", [100, 102, 103])
async def test_an_interim_answer_is_not_the_answer(tmp_path: Path, before: int) -> None:
    answer = b"HTTP/1.1 %d X\r\nLink: </x>\r\n\r\n" % before + HTTP_200 + WHOLE
    async with (
        raw(answer, then_hold=False) as url,
        ApiServer.connect(Login(kubeconfig(tmp_path / "kubeconfig", url))) as api,
    ):
        await KubeCluster(api, api).bind(POD, "n1")


async def test_an_answer_that_drips_ends_with_its_time(tmp_path: Path) -> None:
    async with (
        raw(HTTP_200 + WHOLE, then_hold=True, drip_s=0.05) as url,
        ApiServer.connect(Login(kubeconfig(tmp_path / "kubeconfig", url)), 0.4) as api,
    ):
        with pytest.raises(UnavailableError, match="no answer in time"):
            await KubeCluster(api, api).bind(POD, "n1")


async def test_an_answer_without_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_MAX_ANSWER_BYTES", 1000)
    async with (
        raw(HTTP_200 + b"\r\n" + b"{" * 100_000, then_hold=True) as url,
        ApiServer.connect(Login(kubeconfig(tmp_path / "kubeconfig", url))) as api,
    ):
        with pytest.raises(UnavailableError, match=r"(?i)exceed"):
            await api.get(NODES)


# Ways to the server.


@asynccontextmanager
async def http1(
    wire: FakeServer, certificate: Certificate, folder: Path, **cluster: Any
) -> AsyncIterator[Path]:
    """Serve over TLS with HTTP/1.1 alone; yields a kubeconfig for it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", wire.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        tls = server_tls(certificate, "http/1.1")
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        cluster = {"server": url, "certificate-authority": str(certificate.ca_file), **cluster}
        yield kubeconfig(folder / "kubeconfig", **cluster)
    finally:
        await runner.cleanup()


async def test_a_server_without_http2_answers_side_by_side(
    certificate: Certificate, tmp_path: Path
) -> None:
    wire, under_way, most = FakeServer(), 0, 0

    async def answer(_: web.Request) -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        async with asyncio.timeout(PATIENCE_S):
            while most < 5:  # noqa: ASYNC110  # there is no event to wait for
                await asyncio.sleep(0.01)
        under_way -= 1
        return web.json_response(DONE)

    wire.answer(NODES, json_answer({"kind": "NodeList", "metadata": {}}))
    wire.answer(BINDING, answer)
    async with (
        http1(wire, certificate, tmp_path) as file,
        ApiServer.connect(Login(file)) as api,
        asyncio.timeout(PATIENCE_S),
    ):
        await api.get(NODES)
        cluster = KubeCluster(api, api)
        await asyncio.gather(*(cluster.bind(POD, "n1") for _ in range(5)))
    assert len(wire.queries(BINDING)) == 5


@pytest.mark.parametrize("name", ["k3s.example.org", ""])
async def test_a_certificate_must_name_the_server_or_what_the_kubeconfig_says(
    tmp_path: Path, name: str
) -> None:
    wire = FakeServer()
    wire.answer(NODES, json_answer({"kind": "NodeList", "metadata": {}}))
    named = {"tls-server-name": name} if name else {}
    made = Authority(tmp_path / "pki").server("k3s.example.org")
    async with http1(wire, made, tmp_path, **named) as file, ApiServer.connect(Login(file)) as api:
        if name:
            await api.get(NODES)
        else:
            with pytest.raises(UnavailableError, match=r"(?i)certificate"):
                await api.get(NODES)


@pytest.mark.parametrize("what", ["another authority", "expired"])
async def test_a_certificate_that_is_not_valid_is_refused(
    authority: Authority, tmp_path: Path, what: str
) -> None:
    wire, other = FakeServer(), Authority(tmp_path / "other")
    made = other.server("127.0.0.1", days="-1" if what == "expired" else "1")
    trusted = {"certificate-authority": str((other if what == "expired" else authority).ca_file)}
    async with (
        http1(wire, made, tmp_path, **trusted) as file,
        ApiServer.connect(Login(file)) as api,
    ):
        with pytest.raises(UnavailableError, match="certificate"):
            await api.get(NODES)
    assert wire.requests == []


async def test_a_renewed_client_certificate_is_shown_under_the_same_name(
    authority: Authority, certificate: Certificate, tmp_path: Path
) -> None:
    shown: list[str] = []

    def serve(request: Request) -> None:
        peer = request.connection.writer.get_extra_info("peercert")
        shown.append(peer["subject"][0][0][1])
        request.answer(401 if len(shown) == 2 else 201)

    server = Http2Server(serve)
    tls = server_tls(certificate, "h2")
    tls.load_verify_locations(authority.ca_file)
    tls.verify_mode = ssl.CERT_REQUIRED
    file, key = tmp_path / "client.pem", tmp_path / "client.key"

    def write(name: str) -> None:
        made = authority.client(name)
        file.write_bytes(made.cert_file.read_bytes())
        key.write_bytes(made.key_file.read_bytes())

    write("first")
    user = {"client-certificate": str(file), "client-key": str(key)}
    async with serving(server, tls) as url:
        trusted = {"certificate-authority": str(authority.ca_file)}
        login = Login(kubeconfig(tmp_path / "kubeconfig", url, user=user, **trusted))
        async with ApiServer.connect(login) as api:
            await KubeCluster(api, api).bind(POD, "n1")
            write("second")
            with pytest.raises(UnavailableError, match="401"):
                await KubeCluster(api, api).bind(POD, "n1")
            await KubeCluster(api, api).bind(POD, "n1")
            assert api.cert_file == file
    assert shown == ["first", "first", "second"]


async def test_a_login_that_is_no_longer_safe_is_not_used(
    certificate: Certificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Http2Server(lambda request: request.answer(401 if len(server.requests) == 1 else 201))
    async with api_of(server, certificate, tmp_path) as api:
        unsafe: dict[str, Any] = {"insecure-skip-tls-verify": True}
        kubeconfig(tmp_path / "kubeconfig", "https://10.0.0.1:6443", **unsafe)
        with pytest.raises(UnavailableError, match="401"):
            await KubeCluster(api, api).bind(POD, "n1")
        await KubeCluster(api, api).bind(POD, "n1")
    assert "insecure-skip-tls-verify" in caplog.text
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("no_proxy", "goes_through"),
    [("", True), ("example.com", True), ("10.0.0.0/8,.svc", False), ("*", False)],
)
async def test_the_environment_names_a_proxy_as_for_kubectl(
    tmp_path: Path, no_proxy: str, *, goes_through: bool
) -> None:
    file = kubeconfig(tmp_path / "kubeconfig", "https://10.43.0.1:6443")
    environ = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy}
    server = server_of(await Login(file).open(), environ)
    assert server.proxy == ("http://proxy:3128" if goes_through else None)


async def test_a_watch_comes_through_a_proxy_and_so_does_its_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy's own answer to CONNECT is not the server's. A kubeconfig's proxy is used whatever
    NO_PROXY says, as by kubectl."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    made = Authority(tmp_path / "pki").server("10.43.0.1")

    def answer(request: Request) -> None:
        if "refused" in request.path:
            request.answer(403, FAILED)
        else:
            request.begin()
            request.send(b'{"type": "ADDED", "object": 1}\n')

    async with serving(Http2Server(answer), server_tls(made, "h2")) as url:
        there = urlsplit(url)

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            beyond, to_beyond = await asyncio.open_connection(there.hostname, there.port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

            async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                with suppress(OSError):
                    while data := await source.read(65_536):
                        sink.write(data)
                sink.close()

            await asyncio.gather(pump(reader, to_beyond), pump(beyond, writer))

        async with await asyncio.start_server(connect, "127.0.0.1", 0) as proxy:
            ways: dict[str, Any] = {
                "proxy-url": f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}",
                "certificate-authority": str(made.ca_file),
            }
            file = kubeconfig(tmp_path / "kubeconfig", "https://10.43.0.1:6443", **ways)
            async with ApiServer.connect(Login(file)) as api, asyncio.timeout(PATIENCE_S):
                async with api.stream(NODES, {}, 60) as events:
                    assert (await anext(events)).type == "ADDED"
                with pytest.raises(ForbiddenError, match="no room"):
                    async with api.stream(f"{NODES}/refused", {}, 60):
                        pass
            proxy.close()


async def test_this_machine_is_never_asked_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = FakeServer()
    wire.answer(NODES, json_answer({"kind": "NodeList", "metadata": {}}))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with connected(wire, tmp_path) as api:
        await api.get(NODES)


async def test_a_token_that_is_none_is_named(certificate: Certificate, tmp_path: Path) -> None:
    server = Http2Server(lambda request: request.answer())
    user = {"token": "one\r\nX-Remote-User: admin"}
    async with api_of(server, certificate, tmp_path, user) as api:
        with pytest.raises(UnavailableError, match="token"):
            await KubeCluster(api, api).bind(POD, "n1")
    assert server.requests == []


# A connection that is lost without a word.


@pytest.mark.cluster
async def test_a_connection_that_is_lost_without_a_word_is_noticed(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """While nothing is to be done, and though the relay's kernel acknowledges all that comes."""
    config = json.loads(plane.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    address = urlsplit(cluster.pop("server"))
    api = Api(plane.kubeconfig)
    async with relay(address.hostname or "", address.port or 0) as way:
        way.is_open.set()
        file = kubeconfig(tmp_path / "kubeconfig", way.url, user=user, **cluster)
        async with ApiServer.connect(Login(file)) as server:
            changes = watch_cluster(server, watch_s=(2, 3), late_s=1)
            watched = Watched(changes)
            await watched.until(Relisted)
            way.lose_all()
            await asyncio.to_thread(api.create, IN_DEFAULT, pod("unseen"))
            seen = await watched.until(PodChanged, lambda change: change.pod.name == "unseen")
            api.delete(f"{IN_DEFAULT}/unseen")
            await changes.aclose()
    assert seen.pod.node_name is None
    assert len(way.connections) == 2


@pytest.mark.cluster
async def test_quiet_watches_are_neither_given_up_nor_listed_again(
    plane: ControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="leadline_controller")
    api = Api(plane.kubeconfig)
    async with ApiServer.connect(Login(plane.kubeconfig)) as server:
        changes = watch_cluster(server, watch_s=(1, 1), late_s=2)
        watched = Watched(changes)
        await watched.until(Relisted)
        await asyncio.sleep(4)  # for each watch to end some times
        await asyncio.to_thread(api.create, IN_DEFAULT, pod("late"))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                change = await watched.next()
                assert not isinstance(change, Relisted)
                if isinstance(change, PodChanged) and change.pod.name == "late":
                    break
        api.delete(f"{IN_DEFAULT}/late")
        await changes.aclose()
    assert caplog.messages == []
