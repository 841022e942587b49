import re
from pathlib import Path

import grpc
import pytest
from leadline_controller import __version__
from leadline_controller.inspect.server import InspectionServer
from leadline_controller.map.settings import DEFAULT_WEB_ADDRESS
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.serve import settings
from leadline_controller.serve.settings import GrpcSettings, ServeError, ServeSettings, TlsFiles
from leadline_controller.settings import Settings
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc

from tests.controller.inspect.harness import ControllerHarness, answering, example_controller
from tests.support.certificates import Authority
from tests.support.grpc_tls import credentials, tls_files


async def version(channel: grpc.aio.Channel) -> str:
    stub = control_pb2_grpc.InspectionStub(channel)
    return (await stub.GetVersion(pb.GetVersionRequest(), timeout=10)).version


def test_no_port_of_ours_is_one_that_linux_or_kubernetes_gives_to_others() -> None:
    names = [name for name in vars(settings) if re.fullmatch("DEFAULT_.+_ADDRESS", name)]
    addresses = [*(vars(settings)[name] for name in names), DEFAULT_WEB_ADDRESS]
    ports = {int(each.rpartition(":")[2]) for each in addresses}
    assert len(ports) == 6
    for port in (*ports, ProbeLimits().port, Settings().broker_port):
        assert port not in range(32768, 61000), "ip_local_port_range"
        assert port not in range(30000, 32768), "service-node-port-range"


@pytest.mark.parametrize("address", ["127.0.0.1:25505", "127.9.9.9:0", "[::1]:0", "localhost:1"])
def test_loopback_needs_no_certificates(address: str) -> None:
    assert ServeSettings(address).tls is None


@pytest.mark.parametrize(
    "address", ["0.0.0.0:25505", "[::]:25505", "192.0.2.7:25505", "controller.example:25505"]
)
def test_plaintext_on_a_reachable_address_is_refused(address: str) -> None:
    with pytest.raises(ServeError) as caught:
        ServeSettings(address)
    assert address in str(caught.value)
    assert "client certificates" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "25505",
        ":25505",
        "127.0.0.1",
        "localhost:http",
        "127.0.0.1:70000",
        "::1:25505",
        "unix:x",
    ],
)
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ServeError, match="expected"):
        ServeSettings(address)


def test_several_addresses_have_certificates_where_other_machines_come(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "ca", tmp_path / "cert", tmp_path / "key")
    both = "unix:/run/s, 0.0.0.0:25505"
    assert GrpcSettings(both, files).each == (
        ServeSettings("unix:/run/s"),
        ServeSettings("0.0.0.0:25505", files),
    )
    assert GrpcSettings().each == (ServeSettings("unix:/run/leadline/controller.sock"),)
    with pytest.raises(ServeError, match=r"^0\.0\.0\.0:25505: other machines can reach it"):
        GrpcSettings(both)
    with pytest.raises(ServeError, match=r"^'': expected host:port"):
        GrpcSettings("unix:/run/s,")
    with pytest.raises(ServeError, match="takes no TLS"):
        GrpcSettings("unix:/run/s", files)


def test_a_unix_socket_takes_no_certificates(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "ca", tmp_path / "cert", tmp_path / "key")
    with pytest.raises(ServeError, match="takes no TLS"):
        ServeSettings(f"unix:{tmp_path}/socket", files)


async def test_a_second_controller_leaves_the_socket_of_the_first_alone(
    harness: ControllerHarness, tmp_path: Path
) -> None:
    settings = ServeSettings(f"unix:{tmp_path / 'leadline.sock'}")
    async with answering(harness, settings) as address:
        with pytest.raises(ServeError, match="in use by another program"):
            async with answering(example_controller(), settings):
                pass
        async with grpc.aio.insecure_channel(address) as channel:
            assert await version(channel) == __version__
    assert settings.unix_path is not None
    assert not settings.unix_path.exists()


async def test_tls_admits_only_clients_with_a_certificate(
    harness: ControllerHarness, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ours")
    stranger = Authority(tmp_path / "theirs").client("mallory")
    files = tls_files(authority.server("127.0.0.1", "localhost"))
    async with answering(harness, ServeSettings("0.0.0.0:0", files)) as listening:
        address = f"127.0.0.1:{listening.rpartition(':')[2]}"
        own = credentials(authority.client("alice"))
        async with grpc.aio.secure_channel(address, own) as channel:
            assert await version(channel) == __version__
        bare = grpc.ssl_channel_credentials(authority.ca_file.read_bytes())
        foreign = credentials(stranger, authority.ca_file)
        for refused in (bare, foreign):
            async with grpc.aio.secure_channel(address, refused) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await version(channel)
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await version(channel)


async def test_missing_certificates_are_named(harness: ControllerHarness, tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    server = InspectionServer(ServeSettings("0.0.0.0:0", files), harness.source)
    with pytest.raises(ServeError, match=r"cannot read .*key\.pem: No such file"):
        await server.start()


async def test_a_port_in_use_is_named(harness: ControllerHarness) -> None:
    async with answering(harness) as address:
        second = InspectionServer(ServeSettings(address), harness.source)
        with pytest.raises(ServeError, match="cannot listen there"):
            await second.start()
