"""The map of a recording: its hours as they were, whoever wrote it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from leadline_controller.cli.__main__ import run
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.history.recorded import Changed, Decided, Entry
from leadline_controller.history.recording_files import (
    RecordingError,
    path_of,
    read_recording,
    write_recording,
)
from leadline_controller.map import past
from leadline_controller.map.feed import Feed, Recorded
from leadline_controller.map.recorded import RecordedParts, serving
from leadline_controller.telemetry import accepted
from leadline_controller.telemetry.accepted import Agent, Born, Reported

from tests.controller.history.recorded_values import BEGAN, entries, report, stamp, story

BEGAN_UNIX_S = 1_700_000_000  # at 100 s on the recorded clock
Get = Callable[..., Any]


@asynccontextmanager
async def map_of(path: Path) -> AsyncIterator[tuple[Get, Recorded]]:
    """Yields what asks the map's server for JSON, and what is recorded."""
    async with serving(path, 0) as (address, recorded), aiohttp.ClientSession() as session:

        async def get(what: str, **query: float | str) -> Any:
            async with session.get(f"{address}api/{what}", params=query) as answer:
                return json.loads(await answer.read())

        yield get, recorded


@asynccontextmanager
async def map_of_entries(
    folder: Path, told: Sequence[Entry]
) -> AsyncIterator[tuple[Get, Recorded]]:
    path = folder / "told.recording"
    path.unlink(missing_ok=True)
    write_recording(path, told)
    async with map_of(path) as made:
        yield made


def pods_of(overview: Any) -> dict[str, list[str]]:
    return {each["name"]: [pod["name"] for pod in each["pods"]] for each in overview["nodes"]}


def values_of(overview: Any, name: str) -> dict[str, Any]:
    return {each["name"]: each[name] for each in overview["nodes"]}


def placed(name: str, node: str, at_s: float) -> list[Entry]:
    """A pod comes, and Leadline places it."""
    pod = Pod("default", name, f"uid-{name}")
    return [
        Entry(at_s, Changed(PodChanged(pod))),
        Entry(at_s, Decided(pod.uid, pod.key, node)),
        Entry(at_s + 1, Changed(PodChanged(replace(pod, node_name=node)))),
    ]


def in_order(told: Sequence[Entry]) -> list[Entry]:
    return [told[0], *sorted(told[1:], key=lambda entry: entry.at_s)]


async def test_two_moments_are_shown_as_they_were(tmp_path: Path) -> None:
    told = in_order([*story(90)[:-1], *placed("web", "b", 130.5), *placed("late", "a", 3000.5)])
    async with map_of_entries(tmp_path, told) as (get, recorded):
        end_unix_s = BEGAN_UNIX_S + told[-1].at_s - 100
        assert recorded == Recorded(BEGAN_UNIX_S, end_unix_s, "")
        now = await get("overview")
        early = await get("overview", unix_s=BEGAN_UNIX_S + 120)
        late = await get("overview", unix_s=BEGAN_UNIX_S + 3600)
        decisions = (await get("decisions", before=BEGAN_UNIX_S + 60))["decisions"]
        explained = await get("decisions/default%2Flate")
        missing = await get("decisions/default%2Fnone")
    assert [each["live"] for each in (now, early, late)] == [False] * 3
    assert now["recorded"] == {"from_unix_s": BEGAN_UNIX_S, "to_unix_s": end_unix_s, "missing": ""}
    assert now["history"]["from_unix_s"] == BEGAN_UNIX_S
    assert now["history"]["to_unix_s"] == end_unix_s // 60 * 60
    assert (now["cluster"], now["strategy"]) == ("home", "dacs")
    assert pods_of(early) == {"a": ["old"], "b": ["web"]}
    assert pods_of(late) == pods_of(now) == {"a": ["late", "old"], "b": ["web"]}
    assert all(each["pods_exact"] and each["states_known"] for each in (early, late))
    assert values_of(early, "agent") == {"a": "online", "b": "online"}
    # 10 % and one more in each minute, as `story` has it.
    assert values_of(early, "cpu_percent") == {name: pytest.approx(12, 0.01) for name in "ab"}
    assert values_of(late, "cpu_percent") == {name: pytest.approx(70, 0.01) for name in "ab"}
    # The middle of the last rounds.
    rtt_ms = [each["links"][0]["rtt_ms"] for each in (early, late)]
    assert rtt_ms == [pytest.approx(1.5, 0.01), pytest.approx(59.5, 0.01)]
    assert [each["id"] for each in decisions] == ["default/web", "default/p0"]
    assert (decisions[0]["node"], decisions[0]["outcome"]) == ("b", "bound")
    assert decisions[0]["unix_s"] == BEGAN_UNIX_S + 30.5
    assert (explained["node"], explained["scores"]) == ("a", [])
    assert missing == {"error": "no decision about pod default/none is recorded"}


async def test_a_quiet_time_and_a_restart_with_another_clock_are_in_their_places(
    tmp_path: Path,
) -> None:
    """The machine was off for an hour, and its clock begins at 7 s."""
    nodes = tuple(Node(name, {"cpu": 4000, "memory": 2**32, "pods": 110}) for name in "ab")
    told = [
        *story(10)[:-1],
        Entry(7.0, replace(BEGAN, unix_s=BEGAN_UNIX_S + 7200.0)),
        Entry(7.0, Changed(Relisted(nodes, (Pod("default", "new", "u-new", node_name="b"),)))),
        *(Entry(7.0, Born(Agent(name, True), stamp(1, 7.0, b"other"))) for name in "ab"),
    ]
    for number in range(10):
        at_s = 8.0 + 30 * number
        reported = (report(name, number + 2, at_s, 77.0) for name in "ab")
        told += [Entry(at_s, replace(x, stamp=stamp(number + 2, at_s, b"other"))) for x in reported]
    async with map_of_entries(tmp_path, told) as (get, recorded):
        assert recorded.to_unix_s == BEGAN_UNIX_S + 7200 + 271
        before = await get("overview", unix_s=BEGAN_UNIX_S + 240)
        off = await get("overview", unix_s=BEGAN_UNIX_S + 3600)
        after = await get("overview", unix_s=BEGAN_UNIX_S + 7300)
        span = {"since_unix_s": BEGAN_UNIX_S, "until_unix_s": BEGAN_UNIX_S + 7500, "step_s": 60}
        history = await get("history", node="a", metric="cpu_percent", **span)
    assert pods_of(before)["a"] == ["old"]
    assert pods_of(after) == {"a": [], "b": ["new"]}
    assert values_of(off, "cpu_percent") == {"a": None, "b": None}
    assert values_of(off, "agent") == {"a": "silent", "b": "silent"}
    assert values_of(after, "cpu_percent") == {name: pytest.approx(77, 0.01) for name in "ab"}
    (series,) = history["series"]
    known = [at for at, value in enumerate(series["mean"]) if value is not None]
    hours = [at * 60 + history["from_unix_s"] - BEGAN_UNIX_S for at in known]
    assert [at for at in hours if at < 3600] == [60 * at - 20 for at in range(10)]
    assert [at for at in hours if at >= 3600] == [7180 + 60 * at for at in range(5)]


async def test_an_agent_that_reports_is_online_until_it_is_silent(tmp_path: Path) -> None:
    """The controller started while the agents ran: their births are the broker's copies."""
    told, silent_s = [], 400.0
    for at_s, what in story(20)[:-1]:
        if isinstance(what, Born):
            what = replace(what, stamp=replace(what.stamp, retained=True))
        is_of_b = isinstance(what, accepted.Tested) or (
            isinstance(what, Reported) and what.node == "b"
        )
        if not (is_of_b and at_s > silent_s):
            told.append(Entry(at_s, what))
    async with map_of_entries(tmp_path, told) as (get, _):
        before = await get("overview", unix_s=BEGAN_UNIX_S + 180)
        after = await get("overview", unix_s=BEGAN_UNIX_S + 900)
        end = await get("overview")
    assert values_of(before, "agent") == {"a": "online", "b": "online"}
    assert [values_of(each, "agent")["b"] for each in (after, end)] == ["silent", "silent"]


async def test_what_is_damaged_is_left_out_and_said(tmp_path: Path) -> None:
    told = story(500)
    path = tmp_path / "told.recording"
    write_recording(path, told)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data[:-10])
    left = sum(1 for _ in read_recording(path))
    async with map_of(path) as (get, recorded):
        assert "damaged blocks: 1, torn ends: 1, entries that are missing: " in recorded.missing
        shown = await get("overview")
    assert shown["recorded"]["missing"] == recorded.missing
    assert left < len(told)
    assert pods_of(shown)["a"] == ["old"]


async def test_a_cluster_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    huge = Node("huge", {"cpu": 2**64 - 1, "memory": 2**64 - 1, "pods": 1})
    told = [*story(1)[:-1], Entry(160.0, Changed(Relisted((huge,), ())))]
    with pytest.raises(RecordingError, match="'s cluster makes no sense: ValueError"):
        async with map_of_entries(tmp_path, told):
            pass


async def test_a_folder_is_one_recording(tmp_path: Path) -> None:
    told = story(60)
    write_recording(path_of(tmp_path, 1), told[:300])
    began = replace(BEGAN, unix_s=BEGAN_UNIX_S + told[300].at_s - 100)
    write_recording(path_of(tmp_path, 2), [Entry(told[300].at_s, began), *told[300:]])
    async with map_of(tmp_path) as (_, recorded):
        assert recorded.from_unix_s == BEGAN_UNIX_S
        assert recorded.to_unix_s == BEGAN_UNIX_S + told[-2].at_s - 100


async def test_entries_that_make_no_sense_are_left_out_and_counted(tmp_path: Path) -> None:
    told = story(5)[:-1]
    nan, late = float("nan"), told[-1].at_s
    wrong = [Entry(nan, told[-1].what), Entry(1e300, told[-1].what), Entry(-1e10, told[-1].what)]
    async with map_of_entries(tmp_path, told + wrong) as (get, recorded):
        assert recorded.missing == "entries that make no sense: 3"
        assert recorded.to_unix_s == BEGAN_UNIX_S + late - 100
        assert pods_of(await get("overview"))["a"] == ["old"]


@pytest.mark.slow
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_whatever_somebody_wrote_is_shown_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    told = [*story(1)[:8], *data.draw(entries()), *story(1)[8:], *data.draw(entries())]
    (tmp_path / "map.db").unlink(missing_ok=True)

    async def shown() -> None:
        parts = RecordedParts(tmp_path)
        async for _ in parts.feed(iter(told), 0.0):
            pass
        await parts.end()
        parts.history.start()
        try:
            feed = Feed(parts, parts.journal, recorded=Recorded(0.0, parts.clock.unix_s, ""))
            now = json.loads(await feed.overview())
            then = json.loads(await past.overview(parts, parts.journal, feed, BEGAN_UNIX_S))
        finally:
            await parts.history.stop()
        assert [each["live"] for each in (now, then)] == [False, False]
        assert parts.from_unix_s == BEGAN_UNIX_S

    with suppress(RecordingError):
        asyncio.run(shown())


def test_what_is_no_recording_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.write_text("no recording")
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, said in (
        (other, "no recording of Leadline"),
        (empty, "nothing in it can be shown"),
        (tmp_path / "none", "No such file or directory"),
    ):
        assert run(["map", str(path)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert str(path) in error
        assert error.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "told.recording"
    write_recording(path, story(1))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["map", str(path), "--port", str(port)]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err
