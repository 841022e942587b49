"""The map's stream: what changed, resuming, restarts of the controller, and its bounds."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.history.log import PENDING
from leadline_controller.map import documents
from leadline_controller.map import feed as web_feed
from leadline_controller.map import server as web_server
from leadline_controller.map.feed import Feed
from leadline_controller.map.journal import PlacementJournal
from leadline_controller.map.server import WebLimits, WebServer
from leadline_controller.telemetry.paths import PingRound
from leadline_wire.v1 import control_pb2 as pb

from tests.controller.inspect.harness import ControllerHarness, pod
from tests.controller.map.harness import LOCAL, PATIENCE_S, POLL_S, answering, get, streaming


@pytest.fixture
async def address(harness: ControllerHarness) -> AsyncIterator[str]:
    async with answering(harness) as address:
        yield address


async def position(address: str) -> str:
    _, overview = await get(f"{address}/api/overview")
    found: str = overview["stream_id"]
    return found


async def test_only_what_changed_is_sent(harness: ControllerHarness, address: str) -> None:
    async with streaming(address, await position(address)) as events:
        harness.report("n1", cpu_percent=77.0)
        data = await events.until("overview")
        assert [(each["name"], each["cpu_percent"]) for each in data["nodes"]] == [("n1", 77.0)]
        assert (data["links"], data["gone_nodes"], data["gone_links"]) == ([], [], [])
        harness.telemetry.rtts("n1", harness.stamp("n1"), {"n2": PingRound(9.0)})
        data = await events.until("overview")
        assert [(each["a"], each["b"]) for each in data["links"]] == [("n1", "n2")]


async def test_ages_alone_are_no_change(harness: ControllerHarness, address: str) -> None:
    async with streaming(address, await position(address)) as events:
        harness.now_s += 1
        await asyncio.sleep(5 * POLL_S)
        harness.report("n2", cpu_percent=1.0)
        data = await events.until("overview")
    assert [each["name"] for each in data["nodes"]] == ["n2"]


def test_what_is_measured_again_is_sent_with_its_new_age() -> None:
    def link(age_s: float | None, error_ms: float = 0.1) -> dict[str, object]:
        return {"rtt_ms": 0.4, "age_s": age_s, "error_ms": error_ms}

    pair = ("n1", "n2")
    for before, after, is_sent in (
        (link(50.0), link(51.0, 0.2), False),
        (link(50.0), link(50.0, 0.05), False),
        (link(50.0), link(2.0), True),
        (link(50.0), link(None), True),
        (link(None), link(None), False),
    ):
        assert list(web_feed._changes({pair: before}, {pair: after})) == [pair] * is_sent


async def test_nothing_is_missed_between_the_overview_and_the_stream(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board reports, and another page looks, while the history is asked for its first time."""
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    feed = Feed(harness.source, journal, poll_s=0.0)

    async def first_series_s() -> None:
        harness.report("n1", cpu_percent=66.0)
        while (await feed.refresh()).nodes["n1"]["cpu_percent"] != 66.0:  # noqa: ASYNC110
            await asyncio.sleep(0)

    monkeypatch.setattr(harness.history, "first_series_s", first_series_s)
    answer = json.loads(await feed.overview())
    assert {each["name"]: each for each in answer["nodes"]}["n1"]["cpu_percent"] == 12.5
    stream = feed.stream(answer["stream_id"])
    assert (await anext(stream)).startswith(b"retry:")
    assert b'"cpu_percent":66.0' in await anext(stream)
    await stream.aclose()


async def test_a_quiet_stream_says_that_it_is_alive(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_feed, "_HEARTBEAT_S", 0.01)
    async with streaming(address, await position(address)) as events:
        assert await events.next() == ("alive", {})


async def test_a_client_that_vanished_is_given_up(harness: ControllerHarness) -> None:
    """Without it, a phone that left would hold one of the streams for a quarter of an hour."""
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        limits = WebLimits(gone_s=7.0)
        server = WebServer(LOCAL, harness.source, journal, limits=limits, listener=listener)
        await server.start()
        try:
            option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert listener.getsockopt(*option) == 7000
        finally:
            await server.stop()


async def test_decisions_and_their_outcomes_are_sent(
    harness: ControllerHarness, address: str
) -> None:
    async with streaming(address, await position(address)) as events:
        harness.place(pod("new"), PENDING)
        decision = await events.until("decision")
        assert (decision["id"], decision["outcome"]) == ("default/new", "pending")
        _, listed = await get(f"{address}/api/decisions?limit=1")
        assert listed["decisions"][0].keys() == decision.keys()
        harness.decisions.set_outcome("default/new", "bound")
        decision = await events.until("decision")
    assert (decision["id"], decision["outcome"]) == ("default/new", "bound")


async def test_decisions_are_encoded_beside_the_event_loop(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler has made a burst of them, and goes on."""
    original, threads = documents.decision, set[threading.Thread]()

    def decision(placement: pb.Placement) -> documents.Json:
        threads.add(threading.current_thread())
        return original(placement)

    monkeypatch.setattr(documents, "decision", decision)
    feed = Feed(harness.source, PlacementJournal(lambda: harness.now_s, "leadline"), poll_s=0.0)
    harness.place(pod("new"))
    await feed.refresh()
    assert threads
    assert threading.current_thread() not in threads


async def test_a_pod_that_is_bound_appears_on_its_board(harness: ControllerHarness) -> None:
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    journal.observe(Relisted((), ()))
    async with (
        answering(harness, journal=journal) as address,
        streaming(address, await position(address)) as events,
    ):
        journal.observe(PodChanged(pod("new", node_name="n1")))
        data = await events.until("overview")
    (n1,) = data["nodes"]
    assert [each["name"] for each in n1["pods"]] == ["new"]


async def test_a_stream_goes_on_where_it_broke_off(
    harness: ControllerHarness, address: str
) -> None:
    async with streaming(address, await position(address)) as events:
        harness.place(pod("first"))
        await events.until("decision")
        while not events.last_id:
            harness.report("n1", cpu_percent=harness.now_s % 50)
            await events.next()
        last_id = events.last_id
    harness.place(pod("meanwhile"))
    await position(address)  # somebody looks
    async with streaming(address, last_id=last_id) as events:
        assert (await events.until("decision"))["name"] == "meanwhile"


async def test_after_a_restart_of_the_controller_everything_is_loaded_again(
    harness: ControllerHarness,
) -> None:
    async with answering(harness) as address:
        before = await position(address)
    async with answering(harness) as address:
        async with streaming(address, last_id=before) as events:
            name, data = await events.next()
            assert (name, data) == ("reload", {"why": "the controller was restarted"})
            harness.place(pod("new"))
            assert (await events.until("decision"))["name"] == "new"
        assert before.partition(":")[0] != (await position(address)).partition(":")[0]


async def test_a_position_that_never_was_is_no_error(
    harness: ControllerHarness, address: str
) -> None:
    run = (await position(address)).partition(":")[0]
    for at, number in enumerate(("999999999", "-1", "x", "", "9" * 400, "\u0661")):
        async with streaming(address, f"{run}:{number}") as events:
            harness.place(pod(f"new-{at}"))
            while (await events.next())[0] == "reload":
                pass
            harness.report("n1", cpu_percent=70.0 + at)
            await events.until("overview")


async def test_a_gap_that_is_too_long_is_told(harness: ControllerHarness, address: str) -> None:
    start = await position(address)
    for at in range(1100):
        harness.place(pod(f"p{at % 250}"))
        if at % 100 == 0:
            await position(address)
    await position(address)
    async with streaming(address, start) as events:
        assert await events.next() == ("reload", {"why": "too much happened meanwhile"})


async def test_at_most_so_many_streams(harness: ControllerHarness) -> None:
    async with answering(harness, limits=WebLimits(streams=1)) as address:
        async with streaming(address):
            status, answer = await get(f"{address}/api/stream")
            assert status == 503
            assert "close one" in answer["error"]
        await until_a_stream_is_free(harness, address)


async def test_beyond_them_the_oldest_page_of_the_peer_with_the_most_gives_way(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = iter("aaabb")  # asked twice for the last page, which finds no place

    monkeypatch.setattr(web_server, "peer", lambda _: next(peers))
    limits = WebLimits(streams=3, followed_s=0.0)
    async with answering(harness, limits=limits) as address, AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(streaming(address)) for _ in range(4)]
        with pytest.raises(aiohttp.ClientPayloadError):
            await pages[0].next()
        harness.report("n1", cpu_percent=77.0)
        for page in pages[1:]:
            assert (await page.until("overview"))["nodes"]


async def until_a_stream_is_free(harness: ControllerHarness, address: str) -> None:
    """The server notices the end of a stream at its next event or comment."""
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
        while True:
            notes = [f"{harness.now_s}" * 40_000]
            harness.report("n1", cpu_percent=1.0, notes=notes)
            harness.now_s += 0.01
            async with session.get(f"{address}/api/stream") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(POLL_S)


async def test_a_client_that_does_not_read_is_dropped(harness: ControllerHarness) -> None:
    async with answering(harness, limits=WebLimits(streams=1, write_s=0.05)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await asyncio.to_thread(client.recv, 12) == b"HTTP/1.1 200"
            await until_a_stream_is_free(harness, address)


async def test_events_are_merged_and_their_number_is_bounded(harness: ControllerHarness) -> None:
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    feed = Feed(harness.source, journal, poll_s=0.0)
    harness.history.start()
    try:
        await feed.refresh()
        stream = feed.stream(None)
        assert (await anext(stream)).startswith(b"retry:")
        for at in range(1, 20):
            harness.report("n1", cpu_percent=float(at))
            while (await feed.refresh()).nodes["n1"]["cpu_percent"] != at:  # noqa: ASYNC110  # has no event
                await asyncio.sleep(0)
        chunk = await anext(stream)
        await stream.aclose()
    finally:
        await harness.history.stop()
    assert chunk.count(b"event: overview\n") == 1
    assert b'"cpu_percent":19.0' in chunk
    assert feed.streams == 0
