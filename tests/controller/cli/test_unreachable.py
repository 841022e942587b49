"""Each cause for which a controller cannot be reached, over real sockets."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import grpc
import pytest
from leadline_controller.cli import client
from leadline_controller.cli.__main__ import run
from leadline_controller.cli.unreachable import NotReachedError, cause_of
from leadline_controller.serve import grpc_server
from leadline_controller.serve.settings import ServeSettings, TlsFiles
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1.control_pb2_grpc import InspectionStub

from tests.controller.inspect.harness import answering, example_controller
from tests.support.certificates import Authority, Certificate
from tests.support.ports import free_port

_NOBODY = 65534

UNREACHABLE = 3
SYSTEMCTL = "systemctl status leadline-controller"
JOURNALCTL = "journalctl -u leadline-controller"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("strange-pki"), "Stranger")


def files(certificate: Certificate, ca_file: Path | None = None) -> TlsFiles:
    return TlsFiles(ca_file or certificate.ca_file, certificate.cert_file, certificate.key_file)


def options(tls: TlsFiles | None) -> list[str]:
    if tls is None:
        return []
    return ["--ca", str(tls.ca_file), "--cert", str(tls.cert_file), "--key", str(tls.key_file)]


@asynccontextmanager
async def controller(tls: TlsFiles | None = None) -> AsyncIterator[str]:
    async with answering(example_controller(), ServeSettings("127.0.0.1:0", tls)) as address:
        yield address


@contextmanager
def listening(backlog: int = 8) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as server:
        yield server


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def cause(address: str, tls: TlsFiles | None = None, step_s: float = 30.0) -> NotReachedError:
    found = cause_of(address, tls, step_s)
    assert found is not None
    return found


async def told(
    capsys: pytest.CaptureFixture[str], address: str, tls: TlsFiles | None = None
) -> str:
    """The one line that `leadline nodes` ends with."""
    arguments = ["nodes", "--address", address, *options(tls)]
    patient = partial(cause_of, step_s=60.0)  # the server shares this machine with other tests
    with patch("leadline_controller.cli.client.cause_of", patient):
        assert await asyncio.to_thread(run, arguments) == UNREACHABLE
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith(f"leadline: cannot reach the controller at {address}: "), line
    return line


async def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    line = await told(capsys, f"127.0.0.1:{free_port()}")
    assert "connection refused" in line
    assert SYSTEMCTL in line
    assert JOURNALCTL in line


async def test_a_name_is_not_resolved(
    capsys: pytest.CaptureFixture[str], authority: Authority
) -> None:
    line = await told(capsys, "no-such-host.invalid:25505", files(authority.client("me")))
    assert "the name no-such-host.invalid is not resolved" in line
    assert "--address" in line


def test_nothing_answers_a_connection() -> None:
    """The queue of a socket that accepts nothing is full, so the kernel drops what comes."""
    with listening(backlog=0) as server, ExitStack() as held:
        for _ in range(4):
            filling = held.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(server.getsockname())
        assert "timed out" in cause(address_of(server), step_s=0.3).why


def test_a_server_that_hangs() -> None:
    with listening() as server:
        found = cause(address_of(server), step_s=0.3)
    assert "does not answer" in found.why
    assert SYSTEMCTL in found.remedy


def test_a_server_that_hangs_in_the_handshake(authority: Authority) -> None:
    with listening() as server:
        found = cause(address_of(server), files(authority.client("me")), step_s=0.3)
    assert "does not answer" in found.why


async def test_no_tls_where_tls_is_needed(
    capsys: pytest.CaptureFixture[str], authority: Authority
) -> None:
    async with controller(files(authority.server("127.0.0.1"))) as address:
        line = await told(capsys, address)
    assert "TLS" in line
    assert "give --ca, --cert and --key" in line


async def test_tls_where_there_is_none(
    capsys: pytest.CaptureFixture[str], authority: Authority
) -> None:
    async with controller() as address:
        line = await told(capsys, address, files(authority.client("me")))
    assert "it speaks no TLS; leave out --ca, --cert and --key" in line


async def test_the_servers_authority_is_not_known(
    capsys: pytest.CaptureFixture[str], authority: Authority, stranger: Authority
) -> None:
    async with controller(files(authority.server("127.0.0.1"))) as address:
        mine = files(authority.client("me"), stranger.ca_file)
        line = await told(capsys, address, mine)
    assert "not signed by the authority in --ca" in line


async def test_the_servers_certificate_has_expired(
    capsys: pytest.CaptureFixture[str], authority: Authority
) -> None:
    async with controller(files(authority.server("127.0.0.1", days="-1"))) as address:
        line = await told(capsys, address, files(authority.client("me")))
    assert "its certificate has expired" in line
    assert SYSTEMCTL in line


async def test_the_servers_certificate_is_for_another_name(
    capsys: pytest.CaptureFixture[str], authority: Authority
) -> None:
    async with controller(files(authority.server("elsewhere.example"))) as address:
        line = await told(capsys, address, files(authority.client("me")))
    assert "its certificate is for another name than 127.0.0.1" in line


async def test_the_server_does_not_trust_the_clients_certificate(
    capsys: pytest.CaptureFixture[str], authority: Authority, stranger: Authority
) -> None:
    async with controller(files(authority.server("127.0.0.1"))) as address:
        line = await told(capsys, address, files(stranger.client("me"), authority.ca_file))
    assert "it does not accept the certificate in --cert" in line


async def test_the_clients_certificate_has_expired(
    capsys: pytest.CaptureFixture[str], authority: Authority
) -> None:
    async with controller(files(authority.server("127.0.0.1"))) as address:
        line = await told(capsys, address, files(authority.client("old", days="-1")))
    assert "the certificate in --cert has expired" in line


def test_a_key_that_is_of_another_certificate(authority: Authority) -> None:
    mixed = TlsFiles(
        authority.ca_file, authority.client("me").cert_file, authority.client("you").key_file
    )
    with listening() as server:
        assert "certificates cannot be used" in cause(address_of(server), mixed).why


async def test_another_program_answers(capsys: pytest.CaptureFixture[str]) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        line = await told(capsys, address_of(server.sockets[0]))
    assert "another program answers there" in line


async def test_no_socket_of_that_path(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "there is no such socket" in await told(capsys, f"unix:{tmp_path}/none")


async def test_nobody_listens_at_a_socket_any_more(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{tmp_path}/left")
    assert "connection refused" in await told(capsys, f"unix:{tmp_path}/left")


def test_a_socket_that_one_may_not_open(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/closed")
        server.listen()
        Path(f"{tmp_path}/closed").chmod(0)
        with nobody():
            assert "may not open" in cause(f"unix:{tmp_path}/closed").why


@contextmanager
def nobody() -> Iterator[None]:
    """Root may open every socket, so it becomes somebody else during the context."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("is_secure", [False, True])
async def test_a_controller_that_answers_has_no_such_cause(
    authority: Authority, is_secure: bool
) -> None:
    served = files(authority.server("127.0.0.1")) if is_secure else None
    mine = files(authority.client("me")) if is_secure else None
    async with controller(served) as address:
        assert await asyncio.to_thread(cause_of, address, mine) is None


async def test_a_controller_with_too_many_calls_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "MAX_CALLS", 1)
    async with controller() as address, grpc.aio.insecure_channel(address) as channel:
        watch = InspectionStub(channel).Watch(pb.WatchRequest())
        await watch.read()
        _, line = await asked(capsys, "--address", address, code=1)
        assert f"the controller at {address} has too many calls in progress; try again" in line
        watch.cancel()


def where_to_look(monkeypatch: pytest.MonkeyPatch, now: str, earlier: str) -> None:
    """Have the command look for a controller at this socket, and then at this port."""
    monkeypatch.delenv("LEADLINE_ADDRESS", raising=False)
    monkeypatch.setattr(client, "DEFAULT_ADDRESS", now)
    monkeypatch.setattr(client, "DEFAULT_REMOTE_ADDRESS", earlier)


def closed() -> str:
    return f"127.0.0.1:{free_port()}"


async def asked(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> tuple[str, str]:
    """What `leadline nodes` prints and says."""
    assert await asyncio.to_thread(run, ["nodes", *arguments]) == code
    said = capsys.readouterr()
    return said.out, said.err


async def test_a_controller_of_an_older_release_answers_at_its_port(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controller() as address:
        where_to_look(monkeypatch, closed(), address)
        out, line = await asked(capsys)
        assert "NAME" in out
        assert line.count("\n") == 1
        assert f"without certificates answers at {address}" in line
        assert "leave grpc.address out of its settings" in line


async def test_where_one_of_this_release_answers_the_older_port_is_not_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controller() as address:
        with listening() as earlier:
            where_to_look(monkeypatch, address, address_of(earlier))
            assert (await asked(capsys))[1] == ""
            earlier.setblocking(False)
            with pytest.raises(BlockingIOError):
                earlier.accept()


@pytest.mark.parametrize("variable", [False, True], ids=["option", "variable"])
async def test_a_named_port_is_the_only_one_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: bool
) -> None:
    async with controller() as address:
        where_to_look(monkeypatch, closed(), address)
        named = closed()
        if variable:
            monkeypatch.setenv("LEADLINE_ADDRESS", named)
        arguments = [] if variable else ["--address", named]
        _, line = await asked(capsys, *arguments, code=UNREACHABLE)
        assert f"cannot reach the controller at {named}" in line
        assert line.count("\n") == 1


@pytest.mark.parametrize("other", [False, True], ids=["closed", "another program"])
async def test_without_any_controller_the_port_of_this_release_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    now = closed()
    async with await asyncio.start_server(_says_hello, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        where_to_look(monkeypatch, now, f"{host}:{port}" if other else closed())
        _, line = await asked(capsys, code=UNREACHABLE)
    assert f"cannot reach the controller at {now}" in line
    assert line.count("\n") == 1


async def _says_hello(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 hello, this is another program\r\n")
    await writer.drain()
    writer.close()
