"""Attacks on the inspection API's port: users still get answers, and pods are still bound."""

import asyncio
import errno
import fcntl
import logging
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from leadline_controller import wiring
from leadline_controller.api import calls, gate
from leadline_controller.api import grpc_server as serving
from leadline_controller.api.gate import Gate
from leadline_controller.api.listeners import (
    THIS_MACHINE,
    file_id,
    listen_tcp,
    listen_unix,
    peer_of,
    unlink_own,
)
from leadline_controller.api.settings import ServeSettings
from leadline_controller.config import Settings
from leadline_controller.framework.model import Pod
from leadline_controller.wiring import servers
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc

from tests.attack import grpc as attack
from tests.attack import http2
from tests.controller.api.api_harness import ControllerHarness, answering, node
from tests.controller.api.test_grpc import next_event
from tests.controller.api.test_settings import credentials, tls_files
from tests.controller.test_wiring import eventually, running
from tests.support.certificates import Authority
from tests.support.memory_cluster import MemoryCluster

OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


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


async def is_answered(address: str, tls: grpc.ChannelCredentials | None = None) -> bool:
    """Whether a user gets the nodes over a connection of its own."""
    opened = (
        grpc.aio.secure_channel(address, tls, options=OWN_CONNECTION)
        if tls
        else grpc.aio.insecure_channel(address, options=OWN_CONNECTION)
    )
    async with opened as channel:
        stub = control_pb2_grpc.InspectionStub(channel)
        try:
            return bool((await stub.ListNodes(pb.ListNodesRequest(), timeout=10)).nodes)
        except grpc.aio.AioRpcError:
            return False


async def test_silent_connections_do_not_exclude_a_client_with_a_certificate(
    harness: ControllerHarness, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    files = tls_files(authority.server("127.0.0.1"))
    settings = ServeSettings("127.0.0.1:0", files)
    own = credentials(authority.client("alice"))
    before = psutil.Process().num_fds()
    async with (
        answering(harness, settings) as address,
        during(attack.silent(host_and_port(address), 200)),
    ):
        await asyncio.sleep(0.3)
        answered = [await is_answered(address, own) for _ in range(3)]
        opened = psutil.Process().num_fds() - before - 200  # less the attack's own sockets
    assert answered == [True] * 3
    assert opened < gate.MAX_CONNECTIONS + 60


async def test_calls_with_unread_answers_do_not_exclude_others(address: str) -> None:
    async with during(attack.unread(host_and_port(address), 64)):
        await asyncio.sleep(0.5)
        assert await eventually_answered(address)


async def eventually_answered(address: str) -> bool:
    for _ in range(40):
        if await is_answered(address):
            return True
        await asyncio.sleep(0.1)
    return False


@pytest.mark.parametrize(
    ("method", "limit", "value"),
    [
        (b"ListNodes", "ANSWERS", calls.CallKind("calls", 24, 0.3)),
        (b"Watch", "WRITE_S", 0.3),
    ],
)
async def test_a_call_whose_answers_are_not_read_ends_with_its_connection(
    method: bytes, limit: str, value: object, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attacked() -> bytes:
        with http2.connection(host_and_port(address), initial_window=0) as connected:
            connected.sendall(http2.call(1, attack.INSPECTION + method))
            while connected.recv(1 << 16):
                pass
        return b"closed"

    monkeypatch.setattr(calls, limit, value)
    assert await asyncio.wait_for(asyncio.to_thread(attacked), 9) == b"closed"


@pytest.mark.parametrize("assault", [attack.health_watches, attack.unfinished])
async def test_calls_that_never_end_do_not_exclude_others(
    assault: attack.Attack, address: str
) -> None:
    before = asyncio.all_tasks()

    def begin(at: tuple[str, int]) -> AbstractContextManager[object]:
        return assault(at, 200)  # type: ignore[call-arg]  # each attack has its own name for the count

    async with during(begin(host_and_port(address))):
        await asyncio.sleep(0.5)
        assert await is_answered(address)
        async with grpc.aio.insecure_channel(address, options=OWN_CONNECTION) as channel:
            stream = control_pb2_grpc.InspectionStub(channel).Watch(pb.WatchRequest())
            assert (await next_event(stream)).node.name == "guest"
    assert await eventually(lambda: len(asyncio.all_tasks() - before) < 30)


async def test_health_watches_are_bounded_and_health_checks_work_meanwhile(address: str) -> None:
    async with during(attack.health_watches(host_and_port(address), 48)):
        await asyncio.sleep(0.5)
        async with grpc.aio.insecure_channel(address, options=OWN_CONNECTION) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            asked = health_pb2.HealthCheckRequest()
            with pytest.raises(grpc.aio.AioRpcError, match="16 health watches") as caught:
                await health.Watch(asked).read()
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await health.Check(asked)).status == health_pb2.HealthCheckResponse.SERVING


async def test_streams_that_have_lasted_give_way_to_a_client_without_one(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_MIN_STREAM_S", 0.1)
    async with during(attack.health_watches(host_and_port(address), 48)):
        await asyncio.sleep(0.5)
        async with grpc.aio.insecure_channel(address, options=OWN_CONNECTION) as channel:
            watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watched.read()).status == health_pb2.HealthCheckResponse.SERVING


async def test_unread_answers_are_bounded_in_bytes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_MIN_CALL_S", 60.0)
    async with during(attack.unread(host_and_port(address), 8)):
        await asyncio.sleep(0.5)
        monkeypatch.setattr(calls, "MAX_BYTES", 100)
        async with grpc.aio.insecure_channel(address, options=OWN_CONNECTION) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="answers are not read yet") as caught:
                await control_pb2_grpc.InspectionStub(channel).ListNodes(pb.ListNodesRequest())
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        monkeypatch.setattr(calls, "MAX_BYTES", 4000)
        monkeypatch.setattr(calls, "_MIN_CALL_S", 0.1)
        assert await eventually_answered(address)


async def test_malformed_requests_neither_stop_the_server_nor_fill_the_log(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(attack.malformed, host_and_port(address), 200)
    assert await is_answered(address)
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.getMessage() for each in warnings if "servicer method" in each.getMessage()] == []
    assert [each for each in warnings if each.exc_info] == []


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
    assert await is_answered(address)


async def test_a_request_that_cannot_be_parsed_is_refused(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        for method in ("/leadline.v1.Inspection/GetNode", "/grpc.health.v1.Health/Check"):
            with pytest.raises(grpc.aio.AioRpcError, match="can't be read") as caught:
                await channel.unary_unary(method, bytes, bytes)(b"\x0a\xff")
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        talk = channel.stream_stream(attack.REFLECTION.decode(), bytes, bytes)
        with pytest.raises(grpc.aio.AioRpcError, match="can't be read"):
            await talk(iter([b"\x0a\xff"])).read()


async def test_a_server_that_fails_is_replaced(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # gRPC's own method ends the server when it gets such a name.
    monkeypatch.delattr(calls.TextSafeServer, "_request_call")
    monkeypatch.setattr(serving, "_RESTART_S", 0.1)
    async with answering(harness) as address:

        def ask() -> None:
            with http2.connection(host_and_port(address)) as connected:
                connected.sendall(http2.call(1, b"/\xff"))
                connected.recv(1 << 16)

        await asyncio.to_thread(ask)
        assert await eventually(lambda: "starting another one" in caplog.text)
        assert await eventually_answered(address)


async def test_pods_are_bound_while_the_api_is_attacked() -> None:
    settings = Settings(warm_up_s=0.0, serve=ServeSettings("127.0.0.1:0"))
    cluster = MemoryCluster([node("n1")])
    controller, how = wiring.Controller(settings, cluster), wiring.scheduling_profile(settings)
    async with (
        servers.grpc(controller, "dacs") as address,
        running(controller.scheduler(how).run()),
        during(attack.silent(host_and_port(address), 150)),
        during(attack.unread(host_and_port(address), 48)),
        during(attack.malformed_beside(host_and_port(address), 100)),
    ):
        for number in range(5):
            cluster.put_pod(Pod("default", f"p{number}"))
            assert await eventually(lambda: cluster.pod(f"default/p{number}").node_name == "n1")  # noqa: B023  # awaited at once


# The gate by itself.


@asynccontextmanager
async def gated(tmp_path: Path, places: int) -> AsyncIterator[tuple[str, int]]:
    """A gate before a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(echo, tmp_path / "server")
    front = Gate(places)
    front.relay_to(tmp_path / "server")
    (tmp_path / "server").unlink()  # a process that is killed leaves none behind
    listeners = await listen_tcp("127.0.0.1", 0)
    front.start(listeners)
    try:
        yield listeners[0].getsockname()
    finally:
        await front.stop_accepting()
        await front.close()
        server.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side has closed the connection, with a reset or without."""
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


async def test_the_relay_delivers_all_bytes_in_both_directions(tmp_path: Path) -> None:
    sent = os.urandom(3_000_000)
    async with gated(tmp_path, 4) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.close()


async def test_a_new_connection_replaces_a_silent_one(tmp_path: Path) -> None:
    async with gated(tmp_path, 3) as address:
        talks = await asyncio.open_connection(*address)
        talks[1].write(b"a")
        assert await talks[0].readexactly(1) == b"a"
        silent = [await asyncio.open_connection(*address) for _ in range(10)]
        last = await asyncio.open_connection(*address)
        last[1].write(b"b")
        assert await last[0].readexactly(1) == b"b"
        talks[1].write(b"c")
        assert await talks[0].readexactly(1) == b"c"
        for reader, _ in silent[:9]:
            assert await ended(reader)
        for _, writer in (talks, last, *silent):
            writer.close()


async def test_at_the_limit_the_peer_with_the_most_connections_loses_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "peer_of", lambda address: str(address[0]))

    async def talking(peer: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        opened = await asyncio.open_connection(*address, local_addr=(peer, 0))
        opened[1].write(b"a")
        assert await opened[0].readexactly(1) == b"a"
        return opened

    async with gated(tmp_path, 5) as address:
        first = await talking("127.0.0.2")
        many = [await talking("127.0.0.3") for _ in range(12)]
        last = await talking("127.0.0.4")
        for reader, writer in (first, last):
            writer.write(b"b")
            assert await reader.readexactly(1) == b"b"
        assert [await ended(reader) for reader, _ in many[:9]] == [True] * 9
        for _, writer in (first, last, *many):
            writer.close()


async def test_a_connection_without_a_call_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "FIRST_CALL_S", 0.1)
    async with gated(tmp_path, 3) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        assert await ended(reader)
        writer.close()


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("127.0.0.1", 1), THIS_MACHINE),
        (("::1", 1, 0, 0), THIS_MACHINE),
        (("::ffff:127.0.0.1", 1, 0, 0), THIS_MACHINE),
        ("", THIS_MACHINE),
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("2001:db8::1:2", 1, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
    ],
)
def test_a_peer_is_an_address(address: object, peer: str) -> None:
    assert peer_of(address) == peer


def test_calls_in_progress_never_take_all_connections() -> None:
    kinds = {calls.ANSWERS, *calls._KINDS.values()}
    assert sum(each.limit for each in kinds) < gate.MAX_CONNECTIONS


@contextmanager
def limited_to(files: int, most: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("files", "connections"), [(1024, gate.MAX_CONNECTIONS), (600, 29), (256, 8)]
)
def test_file_descriptors_are_reserved_for_scheduling(files: int, connections: int) -> None:
    with limited_to(files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]):
        assert gate.affordable_connections() == connections


def test_a_unix_socket_in_use_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listen_unix(path), pytest.raises(OSError, match="in use"):
        listen_unix(path)
    with listen_unix(path):  # nobody listens on it any more
        assert path.stat().st_mode & 0o777 == 0o660


def test_a_unix_socket_of_a_busy_or_stopped_server_is_not_replaced(tmp_path: Path) -> None:
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
        with pytest.raises(OSError, match="in use"):
            listen_unix(path)


def test_a_program_that_holds_the_folders_lock_cannot_keep_a_server_from_listening(
    tmp_path: Path,
) -> None:
    path = tmp_path / "socket"
    handle = os.open(tmp_path, os.O_RDONLY)  # whoever may read the folder can do that
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        made: list[socket.socket] = []
        thread = threading.Thread(target=lambda: made.append(listen_unix(path)), daemon=True)
        thread.start()
        thread.join(60)
        (listener,) = made
        with listener:
            unlink_own(path, file_id(path))
        assert not path.exists()
    finally:
        os.close(handle)


def test_a_server_that_ends_leaves_the_socket_of_another_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listen_unix(path):
        first = file_id(path)
    path.rename(tmp_path / "kept")  # its inode is not used again
    with listen_unix(path):
        unlink_own(path, first)
        assert path.exists()
        unlink_own(path, file_id(path))
        assert not path.exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_a_wildcard_listens_for_both_families(host: str) -> None:
    (listener,) = await listen_tcp(host, 0)
    with listener:
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
