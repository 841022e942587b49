"""The gRPC server's addresses, and attacks on them: users of the machine are still answered, and
pods are still bound."""

import asyncio
import errno
import gc
import logging
import resource
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import psutil
import pytest
from leadline_controller import wiring
from leadline_controller.framework.model import Pod
from leadline_controller.inspect.server import InspectionServer
from leadline_controller.serve import grpc_server as serving
from leadline_controller.serve.settings import GrpcSettings, ListenError, ServeSettings
from leadline_controller.settings import Settings
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc

from tests.attack import grpc as attack
from tests.attack import http2
from tests.controller.inspect.harness import ControllerHarness, answering, next_event, node
from tests.support.certificates import Authority
from tests.support.grpc_tls import credentials, tls_files
from tests.support.memory_cluster import MemoryCluster
from tests.support.tasks import until

OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
LIMIT = (grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@asynccontextmanager
async def during(assault: AbstractContextManager[object]) -> AsyncIterator[None]:
    """Run the attack meanwhile, in threads of its own."""
    await asyncio.to_thread(assault.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(assault.__exit__, None, None, None)


Refusal = tuple[grpc.StatusCode, str | None]


async def refused(address: str, tls: grpc.ChannelCredentials | None = None) -> Refusal | None:
    """None if a user gets the nodes over a connection of its own, else gRPC's code and details."""
    opened = (
        grpc.aio.secure_channel(address, tls, options=OWN_CONNECTION)
        if tls
        else grpc.aio.insecure_channel(address, options=OWN_CONNECTION)
    )
    async with opened as channel:
        stub = control_pb2_grpc.InspectionStub(channel)
        try:
            assert (await stub.ListNodes(pb.ListNodesRequest(), timeout=10)).nodes
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details()
        return None


async def eventually_answered(address: str, tls: grpc.ChannelCredentials | None = None) -> bool:
    for _ in range(100):
        if await refused(address, tls) is None:
            return True
        await asyncio.sleep(0.1)
    return False


@pytest.fixture
async def here_and_there(harness: ControllerHarness, tmp_path: Path) -> AsyncIterator[list[str]]:
    """A controller's socket, and its port."""
    settings = GrpcSettings(f"unix:{tmp_path}/socket, 127.0.0.1:0")
    async with answering(harness, settings) as addresses:
        yield addresses.split(",")


async def test_silent_connections_are_bounded_and_leave_the_socket_to_this_machine(
    harness: ControllerHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 60)
    authority = Authority(tmp_path)
    files = tls_files(authority.server("127.0.0.1"))
    settings = GrpcSettings(f"unix:{tmp_path}/socket,127.0.0.1:0", files)
    own = credentials(authority.client("alice"))
    async with answering(harness, settings) as addresses:
        here, there = addresses.split(",")
        assert await refused(there, own) is None
        before = psutil.Process().num_fds()
        async with during(attack.silent(host_and_port(there), 200)):
            await asyncio.sleep(0.3)
            assert [await refused(here) for _ in range(3)] == [None] * 3
            opened = psutil.Process().num_fds() - before
        assert opened < 200 + 60 + 30  # the attack's own sockets, the server's, and a few
        assert await eventually_answered(there, own)


async def test_a_connection_that_says_nothing_is_closed(address: str, tmp_path: Path) -> None:
    reader, writer = await asyncio.open_connection(*host_and_port(address))
    writer.write(http2.PREFACE)
    while await reader.read(1 << 16):
        pass
    writer.close()


@pytest.mark.parametrize("assault", [attack.health_watches, attack.unfinished, attack.unread])
async def test_calls_that_never_end_are_bounded_and_leave_the_socket_to_this_machine(
    assault: attack.Attack, here_and_there: list[str]
) -> None:
    here, there = here_and_there
    before = asyncio.all_tasks()
    assailed = assault(host_and_port(there), 200)  # type: ignore[call-arg]  # each attack has its own name for the count
    async with during(assailed):
        await until(lambda: len(asyncio.all_tasks() - before) > serving.MAX_CALLS)
        await asyncio.sleep(0.5)
        assert await refused(there) == LIMIT
        assert await refused(here) is None
        async with grpc.aio.insecure_channel(here, options=OWN_CONNECTION) as channel:
            stream = control_pb2_grpc.InspectionStub(channel).Watch(pb.WatchRequest())
            assert (await next_event(stream)).node.name == "guest"
    await until(lambda: len(asyncio.all_tasks() - before) < 30)
    assert await eventually_answered(there)


async def test_unread_answers_are_bounded_in_bytes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MAX_UNREAD_BYTES", 100)
    assert await refused(address) is None  # a single answer may be as long as it is
    async with during(attack.unread(host_and_port(address), 8)):
        await asyncio.sleep(0.5)
        assert await refused(address) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "other answers are not read yet; try again later",
        )
    assert await eventually_answered(address)


async def test_malformed_requests_neither_stop_the_server_nor_fill_the_log(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(attack.malformed, host_and_port(address), 200)
    assert await refused(address) is None
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.getMessage() for each in warnings if "servicer method" in each.getMessage()] == []
    assert [each for each in warnings if each.exc_info] == []


async def test_a_request_that_cannot_be_parsed_is_refused(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        asked = ("/leadline.v1.Inspection/GetNode", "/grpc.health.v1.Health/Check")
        streams = ("/leadline.v1.Inspection/Watch", attack.HEALTH_WATCH.decode())
        talk = channel.stream_stream(attack.REFLECTION.decode(), bytes, bytes)
        calls: list[Awaitable[object]] = [
            *(channel.unary_unary(each, bytes, bytes)(b"\x0a\xff") for each in asked),
            *(channel.unary_stream(each, bytes, bytes)(b"\x0a\xff").read() for each in streams),
            talk(iter([b"\x0a\xff"])).read(),
        ]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError, match="can't be read") as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("path", [b"/\xff\xfe", attack.INSPECTION + b"\xff", b"\xff", b"", b"/x"])
async def test_a_method_name_that_is_not_utf8_does_not_stop_the_server(
    path: bytes, address: str
) -> None:
    def ask() -> bytes:
        with http2.connection(host_and_port(address)) as connected:
            connected.sendall(http2.call(1, path))
            seen = b""
            while b"there is no such method" not in seen:
                seen += connected.recv(1 << 16)
        return seen

    assert b"grpc-status\x0212" in await asyncio.to_thread(ask)
    assert await refused(address) is None


async def test_unknown_methods_take_no_room_on_their_connection(address: str) -> None:
    """32 calls are the most at a time, and the daemon seldom collects cycles."""
    gc.disable()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            for _ in range(2 * 32):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await channel.unary_unary("/a.newer/One", bytes, bytes)(b"")
                assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    finally:
        gc.enable()


async def test_pods_are_bound_while_the_api_is_attacked() -> None:
    settings = Settings(warm_up_s=0.0, serve=GrpcSettings("127.0.0.1:0"))
    cluster = MemoryCluster([node("n1")])
    controller = wiring.Controller(settings, cluster)
    async with (
        wiring.Servers(controller).serving() as addresses,
        wiring.running(*controller.placing()),
        during(attack.silent(host_and_port(addresses["grpc"]), 150)),
        during(attack.unread(host_and_port(addresses["grpc"]), 48)),
        during(attack.malformed_beside(host_and_port(addresses["grpc"]), 100)),
    ):
        for number in range(5):
            cluster.put_pod(Pod("default", f"p{number}"))
            await until(lambda: cluster.pod(f"default/p{number}").node_name == "n1")  # noqa: B023  # awaited at once


@contextmanager
def limited_to(files: int, most: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("files", "connections"), [(4096, 1536), (1024, 256), (600, 44), (256, 8)])
def test_file_descriptors_are_reserved_for_scheduling(files: int, connections: int) -> None:
    with limited_to(files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]):
        assert serving.affordable_connections() == connections


# The socket's file.


async def cannot_listen(harness: ControllerHarness, path: Path) -> str:
    with pytest.raises(ListenError) as caught:
        await InspectionServer(ServeSettings(f"unix:{path}"), harness.source).start()
    return str(caught.value)


async def test_the_socket_is_for_the_user_and_its_group_from_its_first_moment(
    harness: ControllerHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "new" / "socket", list[int]()
    chmod = Path.chmod

    def observed(file: Path, mode: int) -> None:
        seen.append(stat.S_IMODE(file.parent.stat().st_mode))
        assert not path.exists()
        chmod(file, mode)

    monkeypatch.setattr(Path, "chmod", observed)
    async with answering(harness, ServeSettings(f"unix:{path}")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert seen == [0o700]
        assert [each.name for each in path.parent.iterdir()] == ["socket"]
    assert list(path.parent.iterdir()) == []


async def test_an_abandoned_socket_is_replaced(harness: ControllerHarness, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
    async with answering(harness, ServeSettings(f"unix:{path}")) as address:
        assert await refused(address) is None


async def test_a_socket_of_a_busy_or_stopped_server_is_not_replaced(
    harness: ControllerHarness, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    with ExitStack() as stack:
        serving = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        serving.bind(str(path))
        serving.listen(0)
        full = False
        while not full:  # it accepts nothing, so its queue fills up
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            client.setblocking(False)
            full = client.connect_ex(str(path)) == errno.EAGAIN
        assert "in use by another program" in await cannot_listen(harness, path)
        assert path.exists()


async def test_a_file_that_is_no_socket_is_kept(harness: ControllerHarness, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("mine")
    assert "in use by another program" in await cannot_listen(harness, path)
    assert path.read_text() == "mine"


async def test_a_folder_that_is_missing_is_told(harness: ControllerHarness, tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "socket"
    assert f"unix:{path}: cannot listen there: No such file" in await cannot_listen(harness, path)


async def test_a_server_that_ends_leaves_the_socket_of_another_alone(
    harness: ControllerHarness, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    async with answering(harness, ServeSettings(f"unix:{path}")):
        path.unlink()
        other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        other.bind(str(path))
        other.listen()
    with other:
        assert path.exists()
