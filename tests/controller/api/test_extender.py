"""The extender's HTTP side: right answers, wrong requests, huge ones, slow clients, strangers."""

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from leadline_controller.api import extender_connections
from leadline_controller.api import extender_protocol as protocol
from leadline_controller.api.extender import Body, ExtenderServer, Limits
from leadline_controller.api.extender_json import StoppedError
from leadline_controller.api.settings import ExtenderSettings, ServeError, TlsFiles
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodChanged
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.scheduling.extender_args import ExtenderArgs
from leadline_controller.snapshot.memory_cluster import MemoryCluster

from tests.attack.extender import KINDS, all_at_once, crowd, mutations, passing
from tests.attack.extender_client import Address, Connection
from tests.controller.scheduling.extender_harness import (
    ExtenderHarness,
    args,
    pending,
    pod_manifest,
    wide,
)
from tests.support.certificates import Authority, Certificate
from tests.support.ports import free_port

PATIENCE_S = 20.0
BRIEF = Limits(answer_s=0.3, head_s=PATIENCE_S)
SHORT = Limits(answer_s=0.3, head_s=1.0, connections=3)
NODES = [wide("n1", 10), wide("n2", 100), wide("n3", 1000)]
NAMES = ["n1", "n2", "n3"]


def listed(**how: Any) -> ExtenderHarness:
    harness = ExtenderHarness([read_node(each) for each in NODES], **how)
    harness.list()
    return harness


@asynccontextmanager
async def answering(
    harness: ExtenderHarness, limits: Limits | None = None, tls: TlsFiles | None = None
) -> AsyncIterator[str]:
    """An extender in this event loop, which binds where it has `tls`; yields host:port."""
    settings = ExtenderSettings("127.0.0.1:0", tls, bind=tls is not None)
    server = ExtenderServer(settings, harness.extender_service, limits)
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop()
        await harness.extender_service.close()


async def post(
    address: str, verb: str, body: bytes, shown: ssl.SSLContext | None = None
) -> tuple[int, Any]:
    url = f"{'http' if shown is None else 'https'}://{address}/{verb}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, ssl=shown or True) as answer,
    ):
        return answer.status, await answer.json()


@dataclass(frozen=True)
class Secured:
    """What the extender has, and what kube-scheduler shows."""

    tls: TlsFiles
    shown: ssl.SSLContext


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Secured:
    shown = client_context(authority, authority.client("kube-scheduler"))
    return Secured(files(authority.server("127.0.0.1")), shown)


def files(certificate: Certificate) -> TlsFiles:
    return TlsFiles(certificate.ca_file, certificate.cert_file, certificate.key_file)


def client_context(authority: Authority, shown: Certificate | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if shown is not None:
        context.load_cert_chain(shown.cert_file, shown.key_file)
    return context


async def test_filter_prioritize_and_bind(secured: Secured) -> None:
    harness = listed()
    pod = harness.cluster.put_pod(pending(pod_manifest("web", 50)))
    harness.hear(PodChanged(pod))
    arguments = args(pod_manifest("web", 50, data_mb="100"), NAMES)
    async with answering(harness, tls=secured.tls) as address:
        status, filtered = await post(address, "filter", arguments, secured.shown)
        assert (status, filtered["NodeNames"], filtered["Error"]) == (200, ["n2", "n3"], "")
        assert filtered["FailedAndUnresolvableNodes"].keys() == {"n1"}
        status, ranked = await post(address, "prioritize", arguments, secured.shown)
        assert status == 200
        assert {each["Host"]: each["Score"] for each in ranked}["n1"] == 0
        binding = {"PodName": "web", "PodNamespace": "default", "PodUID": pod.uid, "Node": "n3"}
        body = json.dumps(binding).encode()
        assert await post(address, "bind", body, secured.shown) == (200, {"Error": ""})
    assert harness.cluster.pod("default/web").node_name == "n3"


async def test_bind_is_disabled_unless_configured() -> None:
    harness = listed()
    pod = harness.cluster.put_pod(pending(pod_manifest("web")))
    harness.hear(PodChanged(pod))
    async with answering(harness) as address:
        await post(address, "filter", args(pod_manifest("web"), NAMES))
        binding = {"PodName": "web", "PodNamespace": "default", "PodUID": pod.uid, "Node": "n3"}
        status, answer = await post(address, "bind", json.dumps(binding).encode())
    assert status == 404
    assert "set bind = true in [extender]" in answer["Error"]
    assert harness.cluster.pod("default/web").node_name is None


async def test_health() -> None:
    harness = ExtenderHarness([read_node(each) for each in NODES])
    async with answering(harness) as address, aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/healthz") as answer:
            assert (answer.status, "has not listed" in await answer.text()) == (503, True)
        harness.list()
        async with session.get(f"http://{address}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")


@pytest.mark.parametrize("verb", ["filter", "bind", "prioritize"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"Pod":' + b"[" * 50_000])
async def test_a_malformed_request_gets_an_error_of_the_protocol(
    verb: str, body: bytes, secured: Secured
) -> None:
    async with answering(listed(), tls=secured.tls) as address:
        status, answer = await post(address, verb, body, secured.shown)
    assert status == (400 if verb == "prioritize" else 200)
    assert answer.keys() == {"Error"}
    assert answer["Error"].startswith("leadline: ")


async def test_an_annotation_that_cannot_be_read_is_named() -> None:
    async with answering(listed()) as address:
        _, answer = await post(address, "filter", args(pod_manifest("web", "plenty"), NAMES))
    assert answer["Error"].startswith("leadline: annotation leadline.dev/bandwidth-mbps: expected")


async def test_unknown_nodes_are_an_error() -> None:
    async with answering(listed()) as address:
        _, answer = await post(address, "filter", args(pod_manifest("web"), ["x", "y"]))
        assert "none of these nodes is known" in answer["Error"]
        _, answer = await post(address, "filter", args(pod_manifest("web"), ["x", "n1"]))
        assert (answer["NodeNames"], answer["Error"]) == (["n1"], "")
        assert "x" in answer["FailedAndUnresolvableNodes"]


async def test_other_paths_and_methods_are_refused() -> None:
    async with answering(listed()) as address, aiohttp.ClientSession() as session:
        async with session.post(f"http://{address}/preempt", data=b"{}") as answer:
            assert answer.status == 404
        async with session.get(f"http://{address}/filter") as answer:
            assert answer.status == 405


async def test_ten_thousand_names() -> None:
    count = 10_000
    names = [f"n{i}" for i in range(count)]
    harness = ExtenderHarness([read_node(wide(name, i % 100)) for i, name in enumerate(names)])
    harness.list()
    arguments = args(pod_manifest("web", 50, data_mb="10"), names)
    async with answering(harness, Limits(answer_s=PATIENCE_S)) as address:
        _, filtered = await post(address, "filter", arguments)
        assert len(filtered["NodeNames"]) == count // 2
        assert len(filtered["FailedAndUnresolvableNodes"]) == count // 2
        _, ranked = await post(address, "prioritize", arguments)
        assert len(ranked) == count


async def test_ten_thousand_whole_nodes_while_others_are_answered() -> None:
    """Each as large as a node with fifty images is."""
    count = 10_000
    images = [{"names": [f"registry.example/app@sha256:{'0' * 64}"], "sizeBytes": 1}] * 10
    nodes = [wide(f"n{i}", i % 100) for i in range(count)]
    for each in nodes:
        each["status"]["images"] = images
    arguments = args(pod_manifest("web", 50), nodes=nodes)
    assert len(arguments) > 15_000_000
    async with answering(listed(), Limits(answer_s=PATIENCE_S, head_s=PATIENCE_S)) as address:
        large = asyncio.create_task(post(address, "filter", arguments))
        meanwhile = 0
        while not large.done():
            await post(address, "filter", args(pod_manifest("small"), NAMES))
            meanwhile += 1
        _, filtered = await large
    assert [each["metadata"]["name"] for each in filtered["Nodes"]["items"]] == [
        f"n{i}" for i in range(count) if i % 100 >= 50
    ]
    assert filtered["Nodes"]["items"][0] == nodes[50]
    # One of them at least was asked and answered while the large one was being read.
    assert meanwhile > 2


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_request_that_is_too_long_gets_an_error_of_the_protocol(chunked: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"[" * 1000

    limits = Limits(body_bytes=3000)
    async with answering(listed(), limits) as address, aiohttp.ClientSession() as session:
        body = pieces() if chunked else b"[" * 4000
        async with session.post(f"http://{address}/filter", data=body) as answer:
            told = (await answer.json())["Error"]
    assert told == ("leadline: the request is longer than 3000 bytes; set nodeCacheCapable: true")


def heavy() -> bytes:
    arguments = args(pod_manifest("web"), nodes=[wide(f"n{i}", 1) for i in range(900)])
    assert 300_000 < len(arguments) < 400_000
    return arguments


async def test_a_request_without_free_bytes_gets_advice_in_time() -> None:
    limits = Limits(answer_s=0.3, body_bytes=400_000, held_bytes=300_000, large_bytes=1000)
    async with answering(listed(), limits) as text:
        (told,) = await all_at_once(Address.of(text), heavy(), 1)
        assert told.startswith("leadline: not answered within 0.3 s with 3")
        assert told.endswith(" bytes; set nodeCacheCapable: true")
    async with answering(listed(), replace(limits, answer_s=PATIENCE_S)) as text:
        assert await passing(Address.of(text), args(pod_manifest("web", 50), NAMES)) == {"n2", "n3"}


async def test_the_bytes_of_all_requests_are_bounded() -> None:
    """Those that find no room wait for those before them; short ones do not."""
    limits = Limits(answer_s=PATIENCE_S, body_bytes=400_000, held_bytes=500_000, large_bytes=1000)
    async with answering(listed(), limits) as text:
        address = Address.of(text)
        slow = await address.connect()
        slow.writer.write(HEAD.replace(b"1000", b"400000") + b"[" * 1000)
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(all_at_once(address, heavy(), 3))
        for _ in range(20):
            assert await passing(address, args(pod_manifest("web", 50), NAMES)) == {"n2", "n3"}
        assert not waiting.done()
        slow.close()
        assert await waiting == ["", "", ""]


@pytest.mark.parametrize("ends", ["client goes", "time is up"])
async def test_parsing_ends_with_its_request(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), threading.Event()

    def read_for_ever(_body: Body, _known: object, stopped: Callable[[], bool]) -> ExtenderArgs:
        began.set()
        while not stopped():
            time.sleep(0.001)
        ended.set()
        raise StoppedError

    async with answering(listed(), Limits(answer_s=1.0, large_bytes=1000)) as text:
        address, arguments = Address.of(text), args(pod_manifest("web"), NAMES) + b" " * 2000
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "read_extender_args", read_for_ever)
            connection = await address.connect()
            asking = asyncio.create_task(connection.post("/filter", arguments))
            assert await asyncio.to_thread(began.wait, PATIENCE_S)
            if ends == "client goes":
                connection.close()
                with pytest.raises((OSError, EOFError)):
                    await asking
            else:
                assert b"not answered within 1 s" in (await asking)[1]
                connection.close()
            assert await asyncio.to_thread(ended.wait, PATIENCE_S)
        assert await passing(address, arguments) == {"n1", "n2", "n3"}


async def test_damaged_requests_are_answered_correctly_or_refused(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async with answering(listed(), tls=secured.tls) as text:
        assert await mutations(Address.of(text, secured.shown), 250) == []
    assert not [record for record in caplog.records if record.exc_info]
    assert len(caplog.records) <= 20


async def test_different_errors_are_logged_twenty_times_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with answering(listed()) as text:
        connection = await Address.of(text).connect()
        for number in range(50):
            await connection.post("/filter", b"{" + b" " * number)
        connection.close()
    assert len(caplog.records) == 20


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.read()


HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
SLOW = {
    "says nothing": b"",
    "stops in the head": HEAD[:20],
    "stops before the body": HEAD,
    "stops in the body": HEAD + b'{"Pod"',
    "speaks no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW.keys())
async def test_a_slow_client_is_cut_off(sent: bytes) -> None:
    async with answering(listed(), SHORT) as address:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        answer = await read_to_the_end(reader)
        writer.close()
        if sent.startswith(HEAD):
            assert b"leadline: not answered within 0.3 s" in answer
        status, _ = await post(address, "filter", args(pod_manifest("web"), NAMES))
        assert status == 200


async def test_a_client_that_dribbles_is_cut_off() -> None:
    loop = asyncio.get_running_loop()

    async def read(client: socket.socket) -> bytes:
        told = b""
        while b"not answered within" not in told and (piece := await loop.sock_recv(client, 4096)):
            told += piece
        return told

    async with answering(listed(), SHORT) as address:
        host, port = address.split(":")
        # A byte after the end is answered with a reset. A plain socket still has what came before.
        with socket.create_connection((host, int(port))) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, HEAD)
            answer = asyncio.create_task(read(client))
            while not answer.done():
                with suppress(ConnectionError):
                    await loop.sock_sendall(client, b" ")
                await asyncio.sleep(0.02)
            told = await answer
    assert told.startswith(b"HTTP/1.1 200")
    assert b"not answered within" in told


@pytest.mark.parametrize("then", [b"", HEAD[:20], b"GET /healthz HTTP/1.1\r\n"])
async def test_after_an_answer_a_slow_client_is_cut_off_as_well(then: bytes) -> None:
    """It dribbles, or says no more: kube-scheduler would have asked or closed long ago."""
    async with answering(listed(), Limits(idle_s=0.3)) as address:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
        for byte in then:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.005)
        assert await read_to_the_end(reader) == b""
        writer.close()


async def test_a_head_without_an_end_is_cut_off() -> None:
    async with answering(listed(), Limits(answer_s=PATIENCE_S, head_s=PATIENCE_S)) as address:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(HEAD[:20] + b"x" * 100_000)
        assert b" 400 " in await read_to_the_end(reader)
        writer.close()


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
async def test_many_random_bytes_get_an_error_of_the_protocol(verb: str, secured: Secured) -> None:
    arguments = b'{"Pod": "' + b"x" * 2_000_000 + b'"}'
    async with answering(listed(), Limits(answer_s=PATIENCE_S), secured.tls) as address:
        _, answer = await post(address, verb, arguments, secured.shown)
        assert answer["Error"].startswith("leadline: ")


@pytest.mark.parametrize(
    "sent",
    [
        HEAD[:20],
        HEAD,
        HEAD + b'{"Pod"',
        HEAD.replace(b"Content-Length: 1000", b"Transfer-Encoding: chunked") + b"zz\r\n",
        HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + b"x" * 1000,
    ],
    ids=["in the head", "before the body", "in the body", "bad chunks", "compressed"],
)
async def test_a_client_that_disconnects_affects_no_other(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with answering(listed()) as address:
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.sleep(0.05)
        status, _ = await post(address, "filter", args(pod_manifest("web"), NAMES))
    assert status == 200
    assert not [record for record in caplog.records if record.exc_info]


async def send_until_cut_off(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)


async def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    nodes = [wide(f"n{i}", 1) for i in range(3000)]
    for each in nodes:
        each["metadata"]["annotations"] = {"long": "x" * 3000}
    arguments = args(pod_manifest("web"), nodes=nodes)
    async with answering(listed(), Limits(answer_s=3.0)) as address:
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1000)
        head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(arguments)}\r\n\r\n"
        writer.write(head.encode() + arguments)
        await writer.drain()
        # Nothing is read, so the answer fills the buffers and goes no further.
        with pytest.raises(ConnectionError):
            await send_until_cut_off(writer)
        writer.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_at_the_limit_the_least_useful_connection_is_closed(kind: str) -> None:
    """An idle connection that is asked over within a moment of its end is opened again, by Go as
    well as here."""
    async with answering(listed()) as text:
        address, arguments = Address.of(text), args(pod_manifest("web", 50), NAMES)
        async with crowd(address, 100, kind):
            for _ in range(5):
                assert await passing(address, arguments) == {"n2", "n3"}


async def test_the_oldest_silent_and_the_longest_idle_connection_are_closed_first() -> None:
    async with answering(listed(), Limits(connections=2)) as text:
        address = Address.of(text)
        first, second = [await asked_over(address) for _ in range(2)]
        silent = [await address.touch() for _ in range(2)]
        await asyncio.sleep(0.05)
        await first.get("/healthz")  # so the second one is idle for longer
        third = await address.connect()
        assert await silent[0].is_closed(PATIENCE_S)
        assert (await third.get("/healthz"))[0] == 200
        assert await second.is_closed(PATIENCE_S)
        assert not await silent[1].is_closed(0.05)
        for each in (first, third):
            assert (await each.get("/healthz"))[0] == 200
        for each in (first, second, third, *silent):
            each.close()


async def asked_over(address: Address) -> Connection:
    connection = await address.connect()
    assert (await connection.get("/healthz"))[0] == 200
    return connection


async def test_connections_without_a_tls_handshake_exclude_no_other(secured: Secured) -> None:
    async with answering(listed(), tls=secured.tls) as text:
        address, arguments = Address.of(text, secured.shown), args(pod_manifest("web", 50), NAMES)
        async with crowd(address, 100, "silent"):
            for _ in range(3):
                assert await passing(address, arguments) == {"n2", "n3"}


async def test_connections_of_one_other_address_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extender_connections, "peer_of", lambda address: str(address[0]))
    async with answering(listed(), Limits(connections=100, peer_connections=2)) as text:
        address = Address.of(text)
        silent = [await address.touch() for _ in range(3)]
        assert await silent[0].is_closed(PATIENCE_S)
        assert not await silent[2].is_closed(0.1)
        for each in silent:
            each.close()


async def test_a_service_that_is_not_ready_says_so_in_time() -> None:
    harness = ExtenderHarness([read_node(each) for each in NODES])
    async with answering(harness, BRIEF) as address:
        _, answer = await post(address, "filter", args(pod_manifest("web"), NAMES))
        assert "the API server has not listed" in answer["Error"]
        status, _ = await post(address, "prioritize", args(pod_manifest("web"), NAMES))
        assert status == 400


class Stuck(MemoryCluster):
    async def bind(self, pod: Pod, node: str) -> None:
        await asyncio.Event().wait()


async def test_a_binding_that_takes_too_long_is_cancelled(secured: Secured) -> None:
    harness = ExtenderHarness(cluster=Stuck([read_node(each) for each in NODES]))
    harness.list()
    pod = harness.cluster.put_pod(pending(pod_manifest("web")))
    harness.hear(PodChanged(pod))
    binding = {"PodName": "web", "PodNamespace": "default", "PodUID": pod.uid, "Node": "n3"}
    async with answering(harness, BRIEF, secured.tls) as address:
        await post(address, "filter", args(pod_manifest("web"), NAMES), secured.shown)
        _, answer = await post(address, "bind", json.dumps(binding).encode(), secured.shown)
    assert answer["Error"] == "leadline: not answered within 0.3 s"


async def test_an_internal_error_is_an_error_of_the_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = listed()
    monkeypatch.setattr(harness.extender_service, "filter", lambda _: 1 / 0)
    async with answering(harness) as address:
        status, answer = await post(address, "filter", args(pod_manifest("web"), NAMES))
    assert (status, "ZeroDivisionError" in answer["Error"]) == (200, True)


async def test_a_repeated_error_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with answering(listed()) as address:
        for _ in range(3):
            await post(address, "filter", b"{")
    assert len(caplog.records) == 1


async def test_over_tls_only_clients_with_a_certificate_are_answered(
    authority: Authority, tmp_path: Path
) -> None:
    strangers = Authority(tmp_path, "Strangers")
    tls = files(authority.server("127.0.0.1"))
    harness = listed()
    async with answering(harness, SHORT, tls) as address, aiohttp.ClientSession() as session:

        async def ask(shown: Certificate | None) -> int:
            url, context = f"https://{address}/filter", client_context(authority, shown)
            body = args(pod_manifest("web"), NAMES)
            async with session.post(url, data=body, ssl=context) as answer:
                return answer.status

        assert await ask(authority.client("kube-scheduler")) == 200
        for stranger in (None, strangers.client("kube-scheduler")):
            with pytest.raises((aiohttp.ClientError, OSError)):
                await ask(stranger)
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await read_to_the_end(reader) == b""  # one that never shakes hands
        writer.close()
        assert await ask(authority.client("kube-scheduler")) == 200


@pytest.mark.parametrize(
    "sent", [HEAD, b"\x16\x03\x01\x02\x00" + b"\xff" * 600, b"\x16\x03\x01\x02\x00\x01", b""]
)
async def test_bytes_that_are_no_handshake_are_cut_off(authority: Authority, sent: bytes) -> None:
    limits = replace(SHORT, head_s=0.2)
    async with answering(listed(), limits, files(authority.server("127.0.0.1"))) as address:
        host, port = address.split(":")
        for _ in range(2 * limits.connections):  # none of them takes a place
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            with suppress(ConnectionResetError):
                assert b"HTTP" not in await read_to_the_end(reader)
            writer.close()


async def test_over_tls_clients_that_are_silent_or_too_many_are_cut_off(
    authority: Authority,
) -> None:
    shown = client_context(authority, authority.client("kube-scheduler"))
    tls = files(authority.server("127.0.0.1"))
    async with answering(listed(), SHORT, tls) as address:
        host, port = address.split(":")
        for _ in range(2):
            clients = [
                await asyncio.open_connection(host, int(port), ssl=shown)
                for _ in range(SHORT.connections + 2)
            ]
            for reader, writer in clients:
                with suppress(ConnectionResetError):
                    assert await read_to_the_end(reader) == b""
                writer.close()


async def test_an_address_in_use_is_reported() -> None:
    harness = listed()
    async with answering(harness) as address:
        server = ExtenderServer(ExtenderSettings(address), harness.extender_service)
        with pytest.raises(ServeError, match=f"extender address {address}: cannot listen there"):
            await server.start()
        await server.stop()


def test_an_address_that_others_can_reach_needs_tls(authority: Authority) -> None:
    with pytest.raises(ServeError, match="needs TLS with client certificates"):
        ExtenderSettings("0.0.0.0:50506")
    tls = files(authority.server("127.0.0.1"))
    with pytest.raises(ServeError, match="only those with a certificate may have pods bound"):
        ExtenderSettings("127.0.0.1:50506", bind=True)
    settings = ExtenderSettings("[::]:50506", tls)
    assert (settings.host, settings.port) == ("::", 50506)
    with pytest.raises(ServeError, match="host:port only"):
        ExtenderSettings("unix:/run/leadline.sock")


def test_a_certificate_with_the_wrong_key_is_reported(authority: Authority) -> None:
    mine, other = authority.server("127.0.0.1"), authority.client("other")
    with pytest.raises(ServeError, match="certificates: "):
        TlsFiles(mine.ca_file, mine.cert_file, other.key_file).server_context()
    with pytest.raises(ServeError, match="certificates: "):
        TlsFiles(Path("/no/such"), mine.cert_file, mine.key_file).server_context()


async def test_the_actual_port_is_returned() -> None:
    port = free_port()
    server = ExtenderServer(ExtenderSettings(f"localhost:{port}"), listed().extender_service)
    assert await server.start() == f"localhost:{port}"
    await server.stop()
