"""The queue for a slow disk is bounded in bytes, and drops explanations before decisions."""

import asyncio
import gc
import logging
import sqlite3
import threading
import tracemalloc
from pathlib import Path

import pytest
from leadline_controller import wiring
from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod
from leadline_controller.framework.selectors import Requirement
from leadline_controller.history import recorder as recording
from leadline_controller.history import schema
from leadline_controller.history.log import PENDING, DecisionLog
from leadline_controller.history.recorder import Recorder, weight_of_decision
from leadline_controller.history.store import HistorySettings
from leadline_controller.settings import Settings
from leadline_controller.wiring import daemon

from tests.attack.joining import decisions_over
from tests.support.kubeconfig import KUBECONFIG
from tests.support.memory_cluster import MemoryCluster

MANY = 40


def made(count: int, nodes: int) -> list[Decision]:
    """Decisions about pods that fit, each of them over nodes of its own."""
    return list(decisions_over(count, nodes))


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 10, 300])
def test_a_decision_takes_no_more_memory_than_estimated(nodes: int) -> None:
    made(3, nodes)  # what is allocated once
    gc.collect()
    tracemalloc.start()
    try:
        decisions = made(MANY, nodes)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    estimated = sum(map(weight_of_decision, decisions))
    # The state that they were made from is allocated once.
    assert held - nodes * 4096 < estimated < 8 * held


def test_the_estimate_of_a_pod_with_many_demands_is_higher() -> None:
    terms = tuple((Requirement("zone", "In", tuple(map(str, range(5)))),) for _ in range(1000))
    light, heavy = (
        Decision(Pod("default", "p", required_affinity=each), None, "", "dacs", "lower")
        for each in (None, terms)
    )
    assert weight_of_decision(heavy) - weight_of_decision(light) > 1_000_000


async def have_scores(
    path: Path, decisions: list[Decision], caplog: pytest.LogCaptureFixture
) -> list[bool]:
    """Whether each decision in the file has its scores; all are queued before the thread starts."""
    caplog.set_level(logging.WARNING)
    recorder = Recorder(HistorySettings(path))
    log = DecisionLog(sink=recorder.put)
    for each in decisions:
        log.add(each, 0.0, PENDING, {})
    recorder.start()
    try:
        found = [await recorder.about(each.pod.key) for each in decisions]
    finally:
        await recorder.stop()
    assert all(each[0].node == one.node for each, one in zip(found, decisions, strict=True) if each)
    return [bool(each[0].explain().nodes) for each in found if each]


async def test_past_the_first_bound_decisions_are_stored_without_scores(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = made(MANY, 4)
    monkeypatch.setattr(recording, "_DETAILED_BYTES", 10.5 * weight_of_decision(decisions[0]))
    detailed = await have_scores(tmp_path / "d.db", decisions, caplog)
    assert detailed == [True] * 10 + [False] * 30
    (line,) = caplog.messages
    assert line.endswith("is too slow: 30 decisions are kept without their scores")


async def test_past_the_second_bound_decisions_are_lost_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_DETAILED_BYTES", 0)
    monkeypatch.setattr(recording, "_WAITING_BYTES", 15_000)
    detailed = await have_scores(tmp_path / "d.db", made(MANY, 4), caplog)
    assert 5 < len(detailed) < MANY
    assert not any(detailed)
    assert f"{MANY - len(detailed)} changes of decisions are lost" in caplog.messages[0]


async def test_written_decisions_free_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = made(MANY, 4)
    monkeypatch.setattr(recording, "_DETAILED_BYTES", 2.5 * weight_of_decision(decisions[0]))
    recorder = Recorder(HistorySettings(tmp_path / "d.db"))
    log = DecisionLog(sink=recorder.put)
    recorder.start()
    try:
        for each in decisions:
            log.add(each, 0.0, PENDING, {})
            (record,) = await recorder.about(each.pod.key)
            assert record.explain().nodes
    finally:
        await recorder.stop()


@pytest.fixture
def hanging_file(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Opening a file hangs until this is set."""
    released = threading.Event()
    opened = schema.opened

    def hang(path: Path | None) -> sqlite3.Connection:
        released.wait(60)
        return opened(path)

    monkeypatch.setattr(schema, "opened", hang)
    monkeypatch.setattr(recording, "_CLOSE_S", 0.1)
    return released


async def test_a_controller_stops_while_the_file_hangs(
    tmp_path: Path, hanging_file: threading.Event
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    settings = Settings(kubeconfig=kubeconfig, decisions=HistorySettings(tmp_path / "d.db"))
    stop = asyncio.Event()
    running = asyncio.create_task(daemon.run(settings, stop))
    try:
        done, _ = await asyncio.wait((running,), timeout=0.5)
        assert not done
        stop.set()
        await asyncio.wait_for(running, 90)
    finally:
        hanging_file.set()


async def test_a_controller_starts_while_the_file_hangs(
    tmp_path: Path,
    hanging_file: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(recording, "_RESTORE_S", 0.05)
    settings = Settings(decisions=HistorySettings(tmp_path / "d.db"))
    controller = wiring.Controller(settings, MemoryCluster())
    async with controller.storing_decisions():
        assert "going on without it" in caplog.text
        (decision,) = made(1, 1)
        controller.decisions.add(decision, 0.0, PENDING, {})
        hanging_file.set()
        (record,) = await controller.history.about(decision.pod.key)
        assert record.node == decision.node
