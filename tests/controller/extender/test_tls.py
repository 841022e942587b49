"""With TLS, only clients with a certificate get an answer, and others exclude none of them."""

import asyncio
import gc
import weakref
from asyncio import sslproto
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from leadline_controller.extender.server import Limits
from leadline_controller.serve.settings import ExtenderSettings, ServeError, TlsFiles

from tests.attack.extender import crowd, passing
from tests.attack.extender_client import Address
from tests.controller.extender.harness import NAMES, PATIENCE_S, args, listed, pod_manifest
from tests.controller.extender.listening import (
    HEAD,
    SHORT,
    Secured,
    answering,
    client_context,
    files,
    read_to_the_end,
)
from tests.support.certificates import Authority, Certificate


async def test_connections_without_a_tls_handshake_exclude_no_other(secured: Secured) -> None:
    async with answering(listed(), tls=secured.tls) as text:
        address, arguments = Address.of(text, secured.shown), args(pod_manifest("web", 50), NAMES)
        async with crowd(address, 100, "silent"):
            for _ in range(3):
                assert await passing(address, arguments) == {"n2", "n3"}


@pytest.fixture
def handshakes(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """The states of TLS that asyncio makes for connections to a server."""
    made: list[weakref.ref[object]] = []
    begin = sslproto.SSLProtocol.__init__

    def begun(self: sslproto.SSLProtocol, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        if self._server_side:
            made.append(weakref.ref(self))

    monkeypatch.setattr(sslproto.SSLProtocol, "__init__", begun)
    return made


async def test_a_connection_takes_no_memory_for_tls_before_it_begins_a_handshake(
    secured: Secured, handshakes: list[weakref.ref[object]]
) -> None:
    async with answering(listed(), tls=secured.tls) as text:
        address = Address.of(text, secured.shown)
        silent = [await Address.of(text).touch() for _ in range(20)]
        plain = await Address.of(text).touch()
        plain.writer.write(HEAD)
        assert await plain.is_closed(PATIENCE_S)
        assert (await (await address.connect()).get("/healthz"))[0] == 200
        assert len(handshakes) == 1
        for each in (plain, *silent):
            each.close()


@pytest.mark.parametrize("sent", [b"\x16\x03", b"\x16\x03\x01\x00\x02zz"])
async def test_a_handshake_that_fails_leaves_nothing_to_the_garbage_collector(
    sent: bytes, secured: Secured, handshakes: list[weakref.ref[object]]
) -> None:
    """It comes seldom, and each of them takes a quarter of a MiB."""
    gc.disable()
    try:
        async with answering(listed(), Limits(connections=3), secured.tls) as text:
            for _ in range(12):
                connection = await Address.of(text).touch()
                connection.writer.write(sent)
                await asyncio.sleep(0.01)
            for _ in range(1000):
                left = sum(each() is not None for each in handshakes)
                if len(handshakes) == 12 and left <= 3:
                    break
                await asyncio.sleep(0.01)
            assert (len(handshakes), left <= 3) == (12, True)
    finally:
        gc.enable()


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
    limits = replace(SHORT, head_s=0.1)
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


def test_an_address_that_others_can_reach_needs_tls(authority: Authority) -> None:
    with pytest.raises(ServeError, match="needs TLS with client certificates"):
        ExtenderSettings("0.0.0.0:25506")
    tls = files(authority.server("127.0.0.1"))
    with pytest.raises(ServeError, match="only those with a certificate may have pods bound"):
        ExtenderSettings("127.0.0.1:25506", bind=True)
    settings = ExtenderSettings("[::]:25506", tls)
    assert (settings.host, settings.port) == ("::", 25506)
    with pytest.raises(ServeError, match="host:port only"):
        ExtenderSettings("unix:/run/leadline.sock")


def test_a_certificate_with_the_wrong_key_is_reported(authority: Authority) -> None:
    mine, other = authority.server("127.0.0.1"), authority.client("other")
    with pytest.raises(ServeError, match="certificates: "):
        TlsFiles(mine.ca_file, mine.cert_file, other.key_file).server_context()
    with pytest.raises(ServeError, match="certificates: "):
        TlsFiles(Path("/no/such"), mine.cert_file, mine.key_file).server_context()
