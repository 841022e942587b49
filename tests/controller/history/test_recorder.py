"""The outcome of a decision is stored even if the log has long evicted the decision."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from random import Random

import pytest
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodDeleted
from leadline_controller.history import recorder as recorder_module
from leadline_controller.history.log import BOUND, DELETED, GONE, PENDING, DecisionLog
from leadline_controller.history.recorder import DatabaseStatus, Recorder
from leadline_controller.history.store import HistorySettings, Store
from leadline_controller.strategies.dacs import Dacs

from tests.contracts.harnesses import PATIENCE_S
from tests.controller.builders import node, pod, view
from tests.controller.history.decision_builder import decision, name_of

# More than the next run restores if they are not pending.
MANY = 300


async def outcomes(recorder: Recorder, name: str) -> list[str]:
    return [record.outcome for record in await recorder.about(f"default/{name}")]


def deleted(name: str) -> Pod:
    return Pod("default", name, uid=f"uid-{name}")


def add_pending(log: DecisionLog, names: Iterable[str]) -> None:
    for name in names:
        log.add(decision(name), 0.0, PENDING, {})


@pytest.mark.parametrize("limit", [1, 10], ids=["evicted", "in memory"])
@pytest.mark.parametrize("written", [True, False])
async def test_a_deleted_pod_is_no_longer_pending(
    limit: int, written: bool, tmp_path: Path
) -> None:
    recorder = Recorder(HistorySettings(tmp_path / "d.db"))
    log = DecisionLog(limit=limit, sink=recorder.put)
    recorder.start()
    try:
        add_pending(log, ("stuck", "placed", "again"))
        log.set_outcome("default/placed", BOUND)
        log.set_outcome("default/again", "failed: 503")
        add_pending(log, ("other",))
        if written:
            await recorder.about("default/other")
        for name in ("stuck", "placed", "again", "unknown"):
            log.observe(PodDeleted(deleted(name)))
        log.observe(PodDeleted(Pod("default", "other", uid="another of that name")))
        found = [await outcomes(recorder, name) for name in ("stuck", "other", "unknown")]
        assert found == [[GONE], [PENDING], []]
        # The log knows it no more if it was evicted; listings look for the pod in the cluster.
        assert await outcomes(recorder, "placed") == [BOUND if limit == 1 else DELETED]
        assert await outcomes(recorder, "again") == ["failed: 503"]
    finally:
        await recorder.stop()


async def test_a_burst_is_written_after_it_or_when_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_GATHER_S", 0.01)
    monkeypatch.setattr(recorder_module, "_PAUSE_S", 60.0)
    monkeypatch.setattr(recorder_module, "_LONGEST_BURST_S", 60.0)
    recorder = Recorder(HistorySettings(tmp_path / "d.db"))
    recorder.start()
    try:
        await recorder.about("default/none")
        add_pending(DecisionLog(sink=recorder.put), ("first", "second"))
        await asyncio.sleep(0.3)
        assert recorder.waiting_bytes() > 0
        assert await outcomes(recorder, "second") == [PENDING]
        assert recorder.waiting_bytes() == 0
        monkeypatch.setattr(recorder_module, "_LONGEST_BURST_S", 0.05)
        add_pending(DecisionLog(sink=recorder.put), ("third",))
        async with asyncio.timeout(PATIENCE_S):
            while recorder.waiting_bytes():  # noqa: ASYNC110  # its thread tells nobody
                await asyncio.sleep(0.01)
    finally:
        await recorder.stop()


async def test_the_next_run_restores_every_pending_decision(tmp_path: Path) -> None:
    settings = HistorySettings(tmp_path / "d.db")
    first = Recorder(settings)
    log = DecisionLog(sink=first.put)
    first.start()
    add_pending(log, ("stuck", "bound-late"))
    for i in range(MANY):
        log.add(decision(f"p{i}"), 0.0, BOUND, {})
    log.add(decision("bound-late"), 0.0, BOUND, {})
    await first.stop()
    second = Recorder(settings)
    second.start()
    try:
        records = await second.restored()
    finally:
        await second.stop()
    names = [name_of(record) for record in records]
    assert names[0] == "stuck"
    assert names[-1] == "bound-late"
    assert len(names) == len(set(names)) < MANY
    assert [name_of(each) for each in records if each.outcome == PENDING] == ["stuck"]


async def test_an_explanation_is_the_same_from_memory_and_from_the_file(tmp_path: Path) -> None:
    made = decide(view([node("n1"), node("n2")]), pod(), Rule(Dacs(alpha=1 / 3), {}, Random(1)))
    recorder = Recorder(HistorySettings(tmp_path / "d.db"))
    recorder.start()
    log = DecisionLog(sink=recorder.put)
    log.add(made, 1.0, BOUND, {})
    (kept,) = await recorder.about(made.pod.key)
    record = log.get(made.pod.key)
    assert record is not None
    live, stored = record.explain(), kept.explain()
    assert live.total.tolist() == stored.total.tolist()
    for name, column in live.parts.items():
        assert column.tolist() == stored.parts[name].tolist()
    await recorder.stop()


async def test_a_reading_has_the_size_of_the_file_and_why_it_cannot_be_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "occupied").write_text("no folder")
    for path, is_sound in ((tmp_path / "d.db", True), (tmp_path / "occupied/d.db", False)):
        recorder = Recorder(HistorySettings(path))
        log = DecisionLog(sink=recorder.put)
        recorder.start()
        try:
            add_pending(log, ("one",))
            await recorder.about("default/one")  # what was put before is written by then
            await recorder.about("default/one")  # and measured
            status = recorder.status()
            assert (status.path, status.max_bytes) == (path, 64 * 2**20)
            assert (status.size_bytes > 0) is is_sound
            assert (status.problem == "") is is_sound
            assert status.free_bytes is not None
            assert status.lost == 0
        finally:
            await recorder.stop()


async def test_a_reading_that_is_asked_for_has_the_disk_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(HistorySettings(tmp_path / "d.db"))
    await recorder.measure()  # before the start
    recorder.start()
    try:
        assert await recorder.restored() == []
        monkeypatch.setattr(Store, "usage", lambda _: (7, 42))
        await recorder.measure()
        assert (recorder.status().size_bytes, recorder.status().free_bytes) == (7, 42)
    finally:
        await recorder.stop()


async def test_a_disk_that_hangs_while_it_makes_changes_durable_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def hang(_: Store) -> None:
        begun.set()
        goes_on.wait(60)

    monkeypatch.setattr("leadline_controller.history.recorder._DURABLE_AFTER_S", 0.0)
    monkeypatch.setattr("leadline_controller.history.recorder._MEASURE_S", 0.01)
    monkeypatch.setattr(Store, "checkpoint", hang)
    recorder = Recorder(HistorySettings(tmp_path / "d.db"))
    log = DecisionLog(sink=recorder.put)
    recorder.start()
    try:
        add_pending(log, ("one",))
        assert await asyncio.to_thread(begun.wait, 60)
        await recorder.measure()  # does not wait for the disk
        assert recorder.status().late_s > 0
    finally:
        goes_on.set()
        await recorder.stop()


async def test_a_reading_without_a_file_has_none() -> None:
    assert Recorder(HistorySettings(None)).status() == DatabaseStatus()
    assert Recorder(HistorySettings(Path("/d.db"), max_mb=0)).status().path is None


@pytest.mark.parametrize("read", [Recorder.traffic, Recorder.restored, Recorder.measure])
async def test_a_stop_that_comes_with_the_answer_is_not_lost(
    read: Callable[[Recorder], Awaitable[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(HistorySettings(tmp_path / "d.db"))
    recorder.start()
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    async def query(_: Recorder, __: object) -> object:
        asked.set()
        return await answer

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "_query", query)
        task = asyncio.ensure_future(read(recorder))
        await asked.wait()
        answer.set_result((([], False),))  # as `restored` reads it; the others take anything
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await recorder.stop()
