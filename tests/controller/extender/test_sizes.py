"""Large requests: their bytes are bounded, and others are answered meanwhile."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import aiohttp
import pytest
from leadline_controller.extender import protocol
from leadline_controller.extender.protocol import StoppedError
from leadline_controller.extender.server import Limits
from leadline_controller.extender.service import ExtenderArgs

from tests.attack.extender import all_at_once, passing
from tests.attack.extender_client import Address
from tests.controller.extender.harness import NAMES, PATIENCE_S, args, listed, pod_manifest, wide
from tests.controller.extender.listening import HEAD, answering, post


@pytest.mark.slow
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


def read_until_stopped(*_: object, stopped: Callable[[], bool]) -> ExtenderArgs:
    while not stopped():
        time.sleep(0.001)
    raise StoppedError


async def test_a_request_without_room_gets_advice_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(answer_s=0.3, body_bytes=400_000, large_bytes=1000, large_at_once=1)
    async with answering(listed(), limits) as text:
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "read_extender_args", read_until_stopped)
            for told in await all_at_once(Address.of(text), heavy(), 2):
                assert told.startswith("leadline: not answered within 0.3 s with 3")
                assert told.endswith(" bytes; set nodeCacheCapable: true")
    async with answering(listed(), replace(limits, answer_s=PATIENCE_S)) as text:
        assert await passing(Address.of(text), args(pod_manifest("web", 50), NAMES)) == {"n2", "n3"}


async def test_few_large_requests_are_received_at_once() -> None:
    """Those that find no room wait for those before them; short ones do not."""
    limits = Limits(answer_s=PATIENCE_S, body_bytes=400_000, large_bytes=1000, large_at_once=1)
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

    def read_for_ever(*_: object, stopped: Callable[[], bool]) -> ExtenderArgs:
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
