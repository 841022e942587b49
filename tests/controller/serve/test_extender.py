"""The extender's HTTP side: right answers, wrong requests, huge ones, slow clients, strangers."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from leadline_controller.core.manifest import read_node
from leadline_controller.core.model import Pod
from leadline_controller.core.ports import PodChanged
from leadline_controller.serve.extender import ExtenderServer, Limits
from leadline_controller.serve.settings import ExtenderSettings, ServeError, TlsFiles
from leadline_controller.sim.cluster import SimCluster

from tests.controller.serve.asking import Scene, args, pending, wants, wide
from tests.support.certificates import Authority, Certificate
from tests.support.ports import free_port

PATIENCE_S = 20.0
SHORT = Limits(answer_s=0.3, head_s=0.3, connections=3)
NODES = [wide("n1", 10), wide("n2", 100), wide("n3", 1000)]
NAMES = ["n1", "n2", "n3"]


def listed(**how: Any) -> Scene:
    scene = Scene([read_node(each) for each in NODES], **how)
    scene.list()
    return scene


@asynccontextmanager
async def answering(
    scene: Scene, limits: Limits | None = None, tls: TlsFiles | None = None
) -> AsyncIterator[str]:
    """An extender in this event loop; yields host:port."""
    server = ExtenderServer(ExtenderSettings("127.0.0.1:0", tls), scene.adviser, limits)
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop()
        await scene.adviser.close()


async def post(
    address: str, verb: str, body: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/{verb}", data=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


async def test_filter_prioritize_and_bind() -> None:
    scene = listed()
    pod = scene.cluster.put_pod(pending(wants("web", 50)))
    scene.hear(PodChanged(pod))
    question = args(wants("web", 50, data_mb="100"), NAMES)
    async with answering(scene) as address:
        status, filtered = await post(address, "filter", question)
        assert (status, filtered["NodeNames"], filtered["Error"]) == (200, ["n2", "n3"], "")
        assert filtered["FailedAndUnresolvableNodes"].keys() == {"n1"}
        status, ranked = await post(address, "prioritize", question)
        assert status == 200
        assert {each["Host"]: each["Score"] for each in ranked}["n1"] == 0
        binding = {"PodName": "web", "PodNamespace": "default", "PodUID": pod.uid, "Node": "n3"}
        body = json.dumps(binding).encode()
        assert await post(address, "bind", body) == (200, {"Error": ""})
    assert scene.cluster.pod("default/web").node_name == "n3"


async def test_health() -> None:
    scene = Scene([read_node(each) for each in NODES])
    async with answering(scene) as address, aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/healthz") as answer:
            assert (answer.status, "not yet told" in await answer.text()) == (503, True)
        scene.list()
        async with session.get(f"http://{address}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")


@pytest.mark.parametrize("verb", ["filter", "bind", "prioritize"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"Pod":' + b"[" * 50_000])
async def test_what_is_malformed_is_an_error_of_the_protocol(verb: str, body: bytes) -> None:
    async with answering(listed()) as address:
        status, answer = await post(address, verb, body)
    assert status == (400 if verb == "prioritize" else 200)
    assert answer.keys() == {"Error"}
    assert answer["Error"].startswith("leadline: ")


async def test_an_annotation_that_cannot_be_read_is_named() -> None:
    async with answering(listed()) as address:
        _, answer = await post(address, "filter", args(wants("web", "plenty"), NAMES))
    assert answer["Error"].startswith("leadline: annotation leadline.dev/bandwidth-mbps: expected")


async def test_nodes_that_nobody_knows() -> None:
    async with answering(listed()) as address:
        _, answer = await post(address, "filter", args(wants("web"), ["x", "y"]))
        assert "none of these nodes is known" in answer["Error"]
        _, answer = await post(address, "filter", args(wants("web"), ["x", "n1"]))
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
    scene = Scene([read_node(wide(name, i % 100)) for i, name in enumerate(names)])
    scene.list()
    question = args(wants("web", 50, data_mb="10"), names)
    async with answering(scene, Limits(answer_s=PATIENCE_S)) as address:
        _, filtered = await post(address, "filter", question)
        assert len(filtered["NodeNames"]) == count // 2
        assert len(filtered["FailedAndUnresolvableNodes"]) == count // 2
        _, ranked = await post(address, "prioritize", question)
        assert len(ranked) == count


async def test_ten_thousand_whole_nodes_while_others_are_answered() -> None:
    """Each as large as a node with fifty images is."""
    count = 10_000
    images = [{"names": [f"registry.example/app@sha256:{'0' * 64}"], "sizeBytes": 1}] * 10
    nodes = [wide(f"n{i}", i % 100) for i in range(count)]
    for each in nodes:
        each["status"]["images"] = images
    question = args(wants("web", 50), nodes=nodes)
    assert len(question) > 15_000_000
    async with answering(listed(), Limits(answer_s=PATIENCE_S)) as address:
        large = asyncio.create_task(post(address, "filter", question))
        meanwhile = 0
        while not large.done():
            await post(address, "filter", args(wants("small"), NAMES))
            meanwhile += 1
        _, filtered = await large
    assert [each["metadata"]["name"] for each in filtered["Nodes"]["items"]] == [
        f"n{i}" for i in range(count) if i % 100 >= 50
    ]
    assert filtered["Nodes"]["items"][0] == nodes[50]
    # One of them at least was asked and answered while the large one was being read.
    assert meanwhile > 2


@pytest.mark.parametrize("chunked", [False, True])
async def test_what_is_too_long_is_an_error_of_the_protocol(chunked: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"[" * 1000

    limits = Limits(body_bytes=3000)
    async with answering(listed(), limits) as address, aiohttp.ClientSession() as session:
        body = pieces() if chunked else b"[" * 4000
        async with session.post(f"http://{address}/filter", data=body) as answer:
            told = (await answer.json())["Error"]
    assert told == ("leadline: the request is longer than 3000 bytes; set nodeCacheCapable: true")


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
        status, _ = await post(address, "filter", args(wants("web"), NAMES))
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
async def test_rubbish_of_many_bytes_is_an_error_of_the_protocol(verb: str) -> None:
    question = b'{"Pod": "' + b"x" * 2_000_000 + b'"}'
    async with answering(listed(), Limits(answer_s=PATIENCE_S)) as address:
        _, answer = await post(address, verb, question)
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
async def test_a_client_that_breaks_off_harms_nobody(
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
        status, _ = await post(address, "filter", args(wants("web"), NAMES))
    assert status == 200
    assert not [record for record in caplog.records if record.exc_info]


async def send_until_cut_off(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)


async def test_a_client_that_does_not_take_its_answer_is_cut_off() -> None:
    nodes = [wide(f"n{i}", 1) for i in range(3000)]
    for each in nodes:
        each["metadata"]["annotations"] = {"long": "x" * 3000}
    question = args(wants("web"), nodes=nodes)
    async with answering(listed(), Limits(answer_s=3.0)) as address:
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1000)
        head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(question)}\r\n\r\n"
        writer.write(head.encode() + question)
        await writer.drain()
        # Nothing is read, so the answer fills the buffers and goes no further.
        with pytest.raises(ConnectionError):
            await send_until_cut_off(writer)
        writer.close()


async def test_connections_are_bounded_and_those_that_end_make_room() -> None:
    async with answering(listed(), Limits(connections=2)) as address:
        host, port = address.split(":")
        held = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        one_too_many, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionResetError):
            assert await read_to_the_end(one_too_many) == b""
        writer.close()
        for _, each in held:
            each.close()
        assert await answered_at_last(address)


async def answered_at_last(address: str) -> bool:
    for _ in range(200):
        with suppress(aiohttp.ClientError):
            status, _ = await post(address, "filter", args(wants("web"), NAMES))
            return status == 200
        await asyncio.sleep(0.02)
    return False


async def test_one_that_cannot_be_ready_says_so_in_time() -> None:
    scene = Scene([read_node(each) for each in NODES])
    async with answering(scene, SHORT) as address:
        _, answer = await post(address, "filter", args(wants("web"), NAMES))
        assert "the API server has not yet told" in answer["Error"]
        status, _ = await post(address, "prioritize", args(wants("web"), NAMES))
        assert status == 400


class Stuck(SimCluster):
    async def bind(self, pod: Pod, node: str) -> None:
        await asyncio.Event().wait()


async def test_a_binding_that_takes_too_long_is_given_up() -> None:
    scene = Scene(cluster=Stuck([read_node(each) for each in NODES]))
    scene.list()
    pod = scene.cluster.put_pod(pending(wants("web")))
    binding = {"PodName": "web", "PodNamespace": "default", "PodUID": pod.uid, "Node": "n3"}
    async with answering(scene, SHORT) as address:
        _, answer = await post(address, "bind", json.dumps(binding).encode())
    assert answer["Error"] == "leadline: not answered within 0.3 s"


async def test_a_fault_of_ours_is_an_error_of_the_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = listed()
    monkeypatch.setattr(scene.adviser, "filter", lambda _: 1 / 0)
    async with answering(scene) as address:
        status, answer = await post(address, "filter", args(wants("web"), NAMES))
    assert (status, "ZeroDivisionError" in answer["Error"]) == (200, True)


async def test_what_goes_wrong_again_and_again_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with answering(listed()) as address:
        for _ in range(3):
            await post(address, "filter", b"{")
    assert len(caplog.records) == 1


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


def files(certificate: Certificate) -> TlsFiles:
    return TlsFiles(certificate.ca_file, certificate.cert_file, certificate.key_file)


def client_context(authority: Authority, shown: Certificate | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if shown is not None:
        context.load_cert_chain(shown.cert_file, shown.key_file)
    return context


async def test_over_tls_only_those_with_a_certificate_are_answered(
    authority: Authority, tmp_path: Path
) -> None:
    strangers = Authority(tmp_path, "Strangers")
    tls = files(authority.server("127.0.0.1"))
    scene = listed()
    async with answering(scene, SHORT, tls) as address, aiohttp.ClientSession() as session:

        async def ask(shown: Certificate | None) -> int:
            url, context = f"https://{address}/filter", client_context(authority, shown)
            body = args(wants("web"), NAMES)
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
async def test_what_is_no_handshake_is_cut_off(authority: Authority, sent: bytes) -> None:
    async with answering(listed(), SHORT, files(authority.server("127.0.0.1"))) as address:
        host, port = address.split(":")
        for _ in range(2 * SHORT.connections):  # none of them takes a place
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


async def test_an_address_that_is_taken_is_told() -> None:
    scene = listed()
    async with answering(scene) as address:
        server = ExtenderServer(ExtenderSettings(address), scene.adviser)
        with pytest.raises(ServeError, match=f"extender address {address}: cannot listen there"):
            await server.start()
        await server.stop()


def test_an_address_that_others_can_reach_needs_tls(authority: Authority) -> None:
    with pytest.raises(ServeError, match="needs TLS with client certificates"):
        ExtenderSettings("0.0.0.0:50506")
    tls = files(authority.server("127.0.0.1"))
    settings = ExtenderSettings("[::]:50506", tls)
    assert (settings.host, settings.port) == ("::", 50506)
    with pytest.raises(ServeError, match="host:port only"):
        ExtenderSettings("unix:/run/leadline.sock")


def test_certificates_that_do_not_belong_together_are_told(authority: Authority) -> None:
    mine, other = authority.server("127.0.0.1"), authority.client("other")
    with pytest.raises(ServeError, match="certificates: "):
        TlsFiles(mine.ca_file, mine.cert_file, other.key_file).server_context()
    with pytest.raises(ServeError, match="certificates: "):
        TlsFiles(Path("/no/such"), mine.cert_file, mine.key_file).server_context()


async def test_a_port_is_filled_in() -> None:
    port = free_port()
    server = ExtenderServer(ExtenderSettings(f"localhost:{port}"), listed().adviser)
    assert await server.start() == f"localhost:{port}"
    await server.stop()
