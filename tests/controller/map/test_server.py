"""The map's answers over HTTP: what docs/web-api.md says, its bounds and its errors."""

import asyncio
import json
import math
import threading
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from leadline_controller.framework.ports import (
    NodeChanged,
    NodeDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.history.log import BOUND, PENDING
from leadline_controller.inspect.nodes import NodeReader
from leadline_controller.map import feed
from leadline_controller.map.journal import PlacementJournal
from leadline_controller.map.server import WebLimits
from leadline_controller.telemetry.paths import LOST_ROUNDS, PingRound
from leadline_controller.telemetry.session import BrokerStatus
from leadline_controller.telemetry.state import BROKER

from tests.controller.inspect.harness import ControllerHarness, example_controller, node, pod
from tests.controller.map.harness import answering, documented, get, streaming

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\"'`&amp;",
    "line\nbreak\r\u2028\u0000\x1b[31m",
    "é" * 253,
)
BOOTED_S = 1_800_000_000.0


@pytest.fixture
async def address(harness: ControllerHarness) -> AsyncIterator[str]:
    async with answering(harness) as address:
        yield address


async def test_the_overview_has_the_documented_fields(address: str) -> None:
    status, answer = await get(f"{address}/api/overview")
    example = documented("GET /api/overview")
    assert status == 200
    assert answer.keys() == example.keys()
    for kind in ("nodes", "links"):
        listed = example[kind]
        assert isinstance(listed, list)
        for each in answer[kind]:
            assert each.keys() == listed[0].keys()


async def test_the_overview_says_what_the_inspection_service_says(address: str) -> None:
    _, answer = await get(f"{address}/api/overview")
    nodes = {each["name"]: each for each in answer["nodes"]}
    assert list(nodes) == ["guest", "n1", "n2", "n3"]
    n1, n2, n3 = (nodes[name] for name in ("n1", "n2", "n3"))
    assert (n1["online"], n3["online"], n3["age_s"]) == (True, None, None)
    assert (n1["cpu_percent"], n1["temperature_c"], n2["memory_percent"]) == (12.5, 51.0, None)
    assert (n1["bandwidth_mbps"], n1["bandwidth_kind"]) == (94.9, "at-least")
    assert (n3["bandwidth_mbps"], n3["bandwidth_kind"]) == (None, "unknown")
    assert (n2["schedulable"], n2["tier"]) == (False, "edge")
    assert n2["notes"] == ["cordoned", "under-voltage", "throttled"]
    (link,) = answer["links"]
    assert (link["a"], link["b"], link["rtt_ms"], link["source"]) == ("n1", "n2", 0.42, "measured")
    assert link["bandwidth_kind"] == "at-least"
    assert (answer["strategy"], answer["leads"], answer["live"]) == ("netsched", True, True)
    assert answer["cluster"] == "lab"
    assert all(0 <= each[axis] <= 1 for each in nodes.values() for axis in "xy")
    assert [name for name, each in nodes.items() if each["placed"]] == ["n1", "n2"]


async def test_pods_are_on_their_boards(harness: ControllerHarness) -> None:
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    journal.observe(Relisted((), (pod("web-1", node_name="n1"), pod("web-2"))))
    journal.observe(PodChanged(pod("theirs", node_name="n1", scheduler_name="default-scheduler")))
    journal.observe(PodChanged(pod("done", node_name="n1", finished=True)))
    async with answering(harness, journal=journal) as address:
        _, answer = await get(f"{address}/api/overview")
    pods = {each["name"]: each["pods"] for each in answer["nodes"]}
    assert pods["n1"] == [
        {"namespace": "default", "name": "theirs", "ours": False},
        {"namespace": "default", "name": "web-1", "ours": True},
    ]
    assert pods["n2"] == []


async def test_the_pairs_are_a_symmetric_matrix(harness: ControllerHarness, address: str) -> None:
    status, answer = await get(f"{address}/api/pairs")
    assert status == 200
    assert answer.keys() == documented("GET /api/pairs").keys()
    assert answer["nodes"] == ["guest", "n1", "n2", "n3"]
    assert sorted(answer["order"]) == [0, 1, 2, 3]
    assert answer["rtt_ms"][1][2] == answer["rtt_ms"][2][1] == 0.42
    assert answer["source"][1][2] == answer["sources"].index("measured")
    assert answer["rtt_ms"][0][3] is None
    assert answer["tested"] == [[1, 2, 94.9, "at-least"]]
    assert (answer["sampled"], answer["total"]) == (False, 4)


async def test_of_many_boards_300_are_in_the_matrix() -> None:
    harness = example_controller([f"more-{at}" for at in range(400)])
    async with answering(harness) as address:
        _, answer = await get(f"{address}/api/pairs")
    assert len(answer["nodes"]) == len(answer["rtt_ms"]) == len(answer["source"][0]) == 300
    assert (answer["sampled"], answer["total"]) == (True, 404)
    assert len(set(answer["nodes"])) == 300


async def test_a_board_has_all_that_is_known_of_it(address: str) -> None:
    status, answer = await get(f"{address}/api/nodes/n1")
    assert status == 200
    assert documented("GET /api/nodes/NAME").keys() <= answer.keys()
    assert (answer["hardware_model"], answer["address"]) == ("Pi 4", "192.0.2.1")
    assert answer["requested"]["cpu_milli"] == 1000  # web-1, and web-2 that waits
    assert answer["links_total"] == len(answer["links"]) == 1
    metrics = {each["name"]: each for each in answer["metrics"]}
    assert metrics["bandwidth_mbps"]["kind"] == "at-least"
    assert metrics["cpu_percent"]["kind"] == ""
    status, answer = await get(f"{address}/api/nodes/nobody")
    assert (status, list(answer)) == (404, ["error"])
    _, guest = await get(f"{address}/api/nodes/guest")
    assert (guest["allocatable"], guest["in_cluster"], guest["ready"]) == (None, False, None)


async def test_decisions_are_listed_newest_first_in_pages(
    harness: ControllerHarness, address: str
) -> None:
    _, first = await get(f"{address}/api/decisions?limit=2")
    assert [each["name"] for each in first["decisions"]] == ["web-2", "huge"]
    listed = documented("GET /api/decisions")["decisions"]
    assert isinstance(listed, list)
    assert first["decisions"][0].keys() == listed[0].keys()
    assert first["more"]
    before = first["decisions"][-1]["unix_s"]
    _, second = await get(f"{address}/api/decisions?limit=2&before={before!r}")
    assert [each["name"] for each in second["decisions"]] == ["web-1"]
    assert not second["more"]
    assert first["decisions"][1]["node"] is None


async def test_a_decision_has_scores_and_rejections(address: str) -> None:
    status, answer = await get(f"{address}/api/decisions/{quote('default/web-1', safe='')}")
    assert status == 200
    assert answer.keys() == {
        *documented("GET /api/decisions/ID"),
        *("id", "namespace", "name", "node", "strategy", "why", "outcome", "times"),
        *("unix_s", "age_s"),
    }
    assert (answer["node"], answer["outcome"]) == ("n1", "bound")
    totals = [each["total"] for each in answer["scores"] if each["total"] is not None]
    assert totals == sorted(totals, reverse=answer["better"] == "higher")
    assert [each["node"] for each in answer["rejected"]] == ["n2"]
    status, answer = await get(f"{address}/api/decisions/default%2Fnobody")
    assert status == 404
    assert "no such pod" in answer["error"]


async def test_series_of_a_board(harness: ControllerHarness) -> None:
    for _ in range(3):
        harness.report("n1", cpu_percent=20.0)
        harness.sample()
        harness.now_s += 60
    harness.sample()
    async with answering(harness) as address:
        status, answer = await get(f"{address}/api/history?node=n1&metric=cpu_percent")
        assert status == 200
        assert answer.keys() == documented("GET /api/history?node=NAME").keys()
        (series,) = answer["series"]
        known = [value for value in series["mean"] if value is not None]
        assert known
        assert all(value == pytest.approx(20.0, abs=10) for value in known)
        assert len(series["mean"]) == answer["steps"] == len(series["max"])
        assert (await get(f"{address}/api/history?node=nobody"))[0] == 404


async def test_a_request_that_makes_no_sense_is_told_why(address: str) -> None:
    for query in (
        "history",
        "history?node=" + "x" * 600,
        "history?node=n1&since_unix_s=nan",
        "history?node=n1&step_s=-1",
        "history?node=n1&since_unix_s=" + "9" * 400,
        "history?node=n1&" + "&".join(["metric=x"] * 40),
        "decisions?limit=0",
        "decisions?limit=1.5",
        "decisions?limit=201",
        "decisions?before=yesterday",
        "overview?unix_s=1",
        "overview?unix_s=inf",
        "overview?unix_s=1e18",
        "nodes/" + "x" * 600,
    ):
        status, answer = await get(f"{address}/api/{query}")
        assert status == 400, query
        assert answer["error"], query
        assert "\n" not in answer["error"], query


async def test_earlier_times_are_shown_from_what_is_kept(harness: ControllerHarness) -> None:
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    harness.now_s = 900.0
    journal.observe(Relisted((), ()))
    for minute in range(4):
        harness.report("n1", cpu_percent=10.0 * minute)
        harness.telemetry.rtts("n1", harness.stamp("n1"), {"n2": PingRound(5.0)})
        harness.sample()
        harness.now_s += 60
        if minute == 1:
            journal.observe(PodChanged(pod("early", node_name="n1")))
        if minute == 2:
            journal.observe(PodDeleted(pod("early", node_name="n1")))
            journal.observe(PodChanged(pod("late", node_name="n2")))
    harness.sample()
    async with answering(harness, journal=journal) as address:
        _, then = await get(f"{address}/api/overview?unix_s={BOOTED_S + 900 + 121}")
        _, start = await get(f"{address}/api/overview?unix_s={BOOTED_S + 901}")
        _, before = await get(f"{address}/api/overview?unix_s={BOOTED_S + 800}")
    nodes = {each["name"]: each for each in then["nodes"]}
    assert then.keys() == documented("GET /api/overview").keys()
    assert (then["live"], then["pods_exact"]) == (False, True)
    assert then["at_unix_s"] == BOOTED_S + 900 + 120
    assert nodes["n1"]["cpu_percent"] == pytest.approx(20.0, rel=0.01)
    assert (nodes["n1"]["online"], nodes["n3"]["online"]) == (True, False)
    assert [each["name"] for each in nodes["n1"]["pods"]] == ["early"]
    assert nodes["n2"]["pods"] == []
    (link,) = then["links"]
    assert (link["a"], link["b"], link["rtt_ms"]) == ("n1", "n2", pytest.approx(5.0, rel=0.01))
    assert start["nodes"][1]["cpu_percent"] == pytest.approx(0.0, abs=0.1)
    assert all(not each["pods"] for each in start["nodes"])
    assert not before["pods_exact"]


async def test_earlier_states_of_boards_are_shown(harness: ControllerHarness) -> None:
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    journal.observe(Relisted((), ()))
    harness.now_s = start_s = 6000.0

    def look() -> None:
        reader = NodeReader(harness.source)
        journal.boards.look(map(reader.status, reader.names))
        harness.now_s += 60

    harness.report("n1", cpu_percent=1.0)
    look()
    harness.cluster.apply(NodeChanged(node("n1", unschedulable=True)))
    harness.report("n1", cpu_percent=1.0, notes=["under-voltage", "x" * 500])
    look()
    harness.cluster.apply(NodeChanged(node("n1")))
    harness.cluster.apply(NodeChanged(node("new")))
    harness.report("n1", cpu_percent=1.0)
    look()
    states = []
    async with answering(harness, journal=journal) as address:
        for passed_s in (-60, 30, 90, 150):
            unix_s = BOOTED_S + start_s + passed_s
            _, then = await get(f"{address}/api/overview?unix_s={unix_s}")
            boards = {each["name"]: each for each in then["nodes"]}
            n1 = boards["n1"]
            notes = [each[:13] for each in n1["notes"] if "lost" not in each]
            states.append((then["states_known"], n1["schedulable"], notes, "new" in boards))
    assert states == [
        (False, None, [], True),
        (True, True, [], False),
        (True, False, ["cordoned", "under-voltage", "x" * 13], False),
        (True, True, [], True),
    ]


async def test_boards_are_looked_at_while_nobody_does(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_UNSEEN_S", 0.01)
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    async with answering(harness, journal=journal):
        for _ in range(1000):
            if (states := journal.boards.at(harness.now_s)) is not None:
                break
            await asyncio.sleep(0.01)
    assert states is not None
    assert states["n1"].schedulable


async def test_of_the_past_only_what_is_kept_is_said(harness: ControllerHarness) -> None:
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    many = [pod(f"many-{at:03}", node_name="n1") for at in range(203)]
    journal.observe(Relisted((), (*many, pod("elsewhere", node_name="gone"))))
    test_s = harness.now_s
    harness.sample()
    harness.now_s += 60
    harness.sample()
    async with answering(harness, journal=journal) as address:
        _, now = await get(f"{address}/api/overview")
        _, then = await get(f"{address}/api/overview?unix_s={BOOTED_S + test_s}")
    live = {each["name"]: each for each in now["nodes"]}
    nodes = {each["name"]: each for each in then["nodes"]}
    assert live["n1"]["bandwidth_kind"] == "at-least"
    n1 = nodes["n1"]
    assert n1["bandwidth_mbps"] == pytest.approx(live["n1"]["bandwidth_mbps"], rel=0.01)
    assert n1["bandwidth_kind"] == "unknown"
    assert {each["schedulable"] for each in nodes.values()} == {None}
    assert {each["in_cluster"] for each in nodes.values()} == {None}
    assert (len(n1["pods"]), n1["pods_total"]) == (200, 203)
    assert [each["name"] for each in nodes["gone"]["pods"]] == ["elsewhere"]


async def test_no_board_is_online_that_nobody_hears(harness: ControllerHarness) -> None:
    async with answering(harness) as address:
        _, first = await get(f"{address}/api/overview")
        harness.now_s += 100  # the reports have ended
        async with streaming(address, first["stream_id"]) as events:
            changed = await events.until("overview")
            away = BrokerStatus("broker:1883", connected=False, since_s=harness.now_s)
            harness.source.broker = away
            unheard = await events.until("overview")

    def n1(answer: dict[str, Any]) -> tuple[object, object]:
        (found,) = (each for each in answer["nodes"] if each["name"] == "n1")
        return found["agent"], found["online"]

    assert n1(first) == ("online", True)
    assert n1(changed) == ("silent", False)
    assert n1(unheard) == ("unknown", None)


async def test_a_fault_of_ours_is_no_bad_request(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def links_of(self: NodeReader, node: str) -> list[object]:
        raise ValueError("shapes (2,) and (3,)")

    monkeypatch.setattr(NodeReader, "links_of", links_of)
    async with answering(harness) as address:
        status, answer = await get(f"{address}/api/nodes/n1")
    assert status == 500
    assert "report it" in answer["error"]
    assert "/api/nodes/n1" in caplog.text


async def test_work_that_nobody_waits_for_keeps_its_turn(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread can't be ended: without that, a slider that is dragged starts more and more."""
    gate, working, most = threading.Event(), [0], [0]

    def links_of(self: NodeReader, node: str) -> list[object]:
        working[0] += 1
        most[0] = max(most[0], working[0])
        gate.wait(60)
        working[0] -= 1
        return []

    monkeypatch.setattr(NodeReader, "links_of", links_of)
    async with answering(harness, limits=WebLimits(at_once=1)) as address:
        async with aiohttp.ClientSession() as session:
            for _ in range(4):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2), session.get(f"{address}/api/nodes/n1"):
                        pass
        gate.set()
        assert (await get(f"{address}/api/nodes/n1"))[0] == 200
    assert most[0] == 1


async def test_before_the_start_pods_are_where_the_kept_decisions_put_them(
    harness: ControllerHarness,
) -> None:
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    decided_s = harness.now_s
    harness.now_s += 600
    moved = pod("web-2", node_name="n3")
    journal.observe(Relisted((), (pod("web-1", node_name="n1"), moved)))
    async with answering(harness, journal=journal) as address:
        _, then = await get(f"{address}/api/overview?unix_s={BOOTED_S + decided_s + 60}")
        _, before = await get(f"{address}/api/overview?unix_s={BOOTED_S + decided_s - 60}")
    pods = {each["name"]: [pod["name"] for pod in each["pods"]] for each in then["nodes"]}
    assert pods == {"guest": [], "n1": ["web-1"], "n2": [], "n3": []}
    assert not then["pods_exact"]
    assert all(not each["pods"] for each in before["nodes"])


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_are_json_strings_and_nothing_else(name: str) -> None:
    harness = ControllerHarness()
    harness.cluster.apply(Relisted((node(name), node("n1")), ()))
    for each in (name, "n1"):
        harness.hear(each, cpu_percent=1.0, notes=(name,))
    harness.telemetry.rtts("n1", harness.stamp("n1"), {name: PingRound(1.0)})
    hostile = pod(name)
    harness.place(hostile, BOUND)
    harness.place(pod("huge", cpu_milli=10**6), PENDING)
    harness.sample()
    harness.now_s += 60
    harness.sample()
    journal = PlacementJournal(lambda: harness.now_s, "leadline")
    journal.observe(Relisted((), (pod(name, node_name=name),)))
    async with answering(harness, journal=journal) as address, aiohttp.ClientSession() as session:
        addresses = [
            *("overview", "pairs", "decisions", f"overview?unix_s={BOOTED_S + harness.now_s - 60}"),
            f"nodes/{quote(name, safe='')}",
            f"history?node={quote(name, safe='')}",
            f"decisions/{quote(f'default/{name}', safe='')}",
        ]
        for each in addresses:
            async with session.get(f"{address}/api/{each}") as answer:
                raw = await answer.read()
                assert (answer.status, answer.content_type) == (200, "application/json"), each
            assert raw.isascii()
            assert not set(raw) & set(b"<>&\n\r\0\x1b"), each
            assert name in strings(json.loads(raw)), each
        async with streaming(address) as events:
            harness.report("n1", cpu_percent=50.0, notes=(name,))
            data = await events.until("overview")
    assert name in strings(data)


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.items() for part in each for text in strings(part)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value.removeprefix("default/")] if isinstance(value, str) else []


async def test_boards_that_are_gone_are_not_shown(harness: ControllerHarness) -> None:
    async with answering(harness) as address:
        _, first = await get(f"{address}/api/overview")
        async with streaming(address, first["stream_id"]) as events:
            harness.cluster.apply(NodeDeleted("n3"))
            data = await events.until("overview")
    assert data["gone_nodes"] == ["n3"]


async def test_numbers_that_are_not_finite_are_null(harness: ControllerHarness) -> None:
    harness.report("n1", cpu_percent=math.inf)
    async with answering(harness) as address:
        _, answer = await get(f"{address}/api/overview")
        _, details = await get(f"{address}/api/nodes/n1")
    assert {each["name"]: each for each in answer["nodes"]}["n1"]["cpu_percent"] is None
    assert "cpu_percent" not in {each["name"] for each in details["metrics"]}


async def test_bounds_from_the_broker_are_shown_where_pings_are_not_permitted() -> None:
    harness = ControllerHarness()
    harness.cluster.apply(Relisted((node("n1"), node("n2")), ()))
    for name in ("n1", "n2"):
        harness.hear(name)
        harness.telemetry.rtts(name, harness.stamp(name), {BROKER: PingRound(2.0)})
    async with answering(harness) as address:
        _, answer = await get(f"{address}/api/overview")
        _, pairs = await get(f"{address}/api/pairs")
    (link,) = answer["links"]
    assert (link["a"], link["b"], link["rtt_ms"], link["error_ms"]) == ("n1", "n2", 4.0, 4.0)
    assert link["source"] == "bounded"
    assert pairs["rtt_ms"][0][1] == 4.0
    assert pairs["sources"][pairs["source"][0][1]] == "bounded"
    assert all(each["placed"] for each in answer["nodes"])


async def test_old_and_lost_round_trips_are_shown_as_such(harness: ControllerHarness) -> None:
    harness.now_s += 400
    async with answering(harness) as address:
        _, stale = await get(f"{address}/api/overview")
        _, pairs = await get(f"{address}/api/pairs")
    assert [each["source"] for each in stale["links"]] == ["stale"]
    assert pairs["sources"][pairs["source"][1][2]] == "stale"
    for _ in range(LOST_ROUNDS):
        harness.telemetry.rtts("n1", harness.stamp("n1"), {"n2": PingRound(None)})
        harness.now_s += 10
    async with answering(harness) as address:
        _, lost = await get(f"{address}/api/overview")
        _, pairs = await get(f"{address}/api/pairs")
    (link,) = lost["links"]
    assert (link["source"], link["rtt_ms"]) == ("unreachable", None)
    assert pairs["sources"][pairs["source"][1][2]] == "unreachable"
    assert pairs["rtt_ms"][1][2] is None
