"""Slow clients are cut off, and no number of connections excludes kube-scheduler."""

import asyncio
import socket
from contextlib import suppress

import pytest
from leadline_controller.extender.server import Limits
from leadline_controller.serve import http_connections

from tests.attack.extender import KINDS, crowd, passing
from tests.attack.extender_client import Address, Connection
from tests.controller.extender.harness import NAMES, PATIENCE_S, args, listed, pod_manifest, wide
from tests.controller.extender.listening import HEAD, SHORT, answering, post, read_to_the_end

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
        told = b""
        with suppress(ConnectionError):  # a byte after the end is answered with a reset
            told = await read_to_the_end(reader)
        assert told == b""
        writer.close()


async def test_a_head_without_an_end_is_cut_off() -> None:
    async with answering(listed(), Limits(answer_s=PATIENCE_S, head_s=PATIENCE_S)) as address:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(HEAD[:20] + b"x" * 100_000)
        assert b" 400 " in await read_to_the_end(reader)
        writer.close()


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


async def test_connections_of_one_other_address_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connections, "peer_of", lambda address: str(address[0]))
    async with answering(listed(), Limits(connections=100, peer_connections=2)) as text:
        address = Address.of(text)
        silent = [await address.touch() for _ in range(3)]
        assert await silent[0].is_closed(PATIENCE_S)
        assert not await silent[2].is_closed(0.1)
        for each in silent:
            each.close()


async def test_a_crowd_of_one_address_closes_its_own_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connections, "peer_of", lambda address: str(address[0]))
    monkeypatch.setattr(http_connections, "THIS_MACHINE", "127.0.0.1")
    async with answering(listed(), Limits(connections=3)) as text:
        address = Address.of(text)
        first = Connection(
            *await asyncio.open_connection(address.host, address.port, local_addr=("127.0.0.2", 0))
        )
        crowd_of_one = [await address.touch() for _ in range(12)]
        for each in crowd_of_one[:9]:
            assert await each.is_closed(PATIENCE_S)
        assert (await first.get("/healthz"))[0] == 200
        for each in (first, *crowd_of_one):
            each.close()


async def test_addresses_of_one_host_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """An IPv6 host has the 2**64 addresses of its network."""
    monkeypatch.setattr(http_connections, "peer_of", lambda address: "2001:db8::/64")
    async with answering(listed(), Limits(connections=100, peer_connections=2)) as text:
        address = Address.of(text)
        silent = [
            Connection(
                *await asyncio.open_connection(
                    address.host, address.port, local_addr=(f"127.0.0.{at}", 0)
                )
            )
            for at in (1, 2, 3)
        ]
        assert await silent[0].is_closed(PATIENCE_S)
        assert not await silent[2].is_closed(0.1)
        for each in silent:
            each.close()
