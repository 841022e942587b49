"""What waits for a slow disk is bounded in bytes, and costs detail before it costs decisions."""

import asyncio
import gc
import logging
import threading
import tracemalloc
from pathlib import Path

import pytest
from leadline_controller import wiring
from leadline_controller.config import Settings
from leadline_controller.decisions import recorder as recording
from leadline_controller.decisions.log import PENDING, DecisionLog
from leadline_controller.decisions.recorder import Recorder
from leadline_controller.decisions.settings import HistorySettings
from leadline_controller.decisions.store import Store
from leadline_controller.decisions.weight import weight_of_decision
from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod
from leadline_controller.framework.selectors import Requirement
from leadline_controller.snapshot.memory_cluster import MemoryCluster

from tests.attack.joining import decisions_over

MANY = 40


def made(count: int, nodes: int) -> list[Decision]:
    """Decisions about pods that fit, each of them over nodes of its own."""
    return list(decisions_over(count, nodes))


@pytest.mark.parametrize("nodes", [1, 10, 300])
def test_a_decision_holds_no_more_than_it_is_said_to_weigh(nodes: int) -> None:
    made(3, nodes)  # what is made once
    gc.collect()
    tracemalloc.start()
    try:
        decisions = made(MANY, nodes)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    said = sum(map(weight_of_decision, decisions))
    # The state that they were made from is there once.
    assert held - nodes * 4096 < said < 8 * held


def test_a_pod_with_many_demands_weighs_more() -> None:
    terms = tuple((Requirement("zone", "In", tuple(map(str, range(5)))),) for _ in range(1000))
    light, heavy = (
        Decision(Pod("default", "p", required_affinity=each), None, "", "dacs", "lower")
        for each in (None, terms)
    )
    assert weight_of_decision(heavy) - weight_of_decision(light) > 1_000_000


async def kept(
    path: Path, decisions: list[Decision], caplog: pytest.LogCaptureFixture
) -> list[bool]:
    """Of each decision in the file whether it has its scores; all were left before the thread
    began."""
    caplog.set_level(logging.WARNING)
    recorder = Recorder(HistorySettings(path))
    log = DecisionLog(sink=recorder)
    for each in decisions:
        log.add(each, 0.0, PENDING, {})
    recorder.start()
    try:
        told = [await recorder.about(each.pod.key) for each in decisions]
    finally:
        await recorder.stop()
    assert all(each[0].node == one.node for each, one in zip(told, decisions, strict=True) if each)
    return [bool(each[0].explain().nodes) for each in told if each]


async def test_past_the_bound_decisions_are_kept_without_their_scores(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = made(MANY, 4)
    monkeypatch.setattr(recording, "_DETAILED_BYTES", 10.5 * weight_of_decision(decisions[0]))
    detailed = await kept(tmp_path / "d.db", decisions, caplog)
    assert detailed == [True] * 10 + [False] * 30
    (line,) = caplog.messages
    assert line.endswith("is too slow: 30 decisions are kept without their scores")


async def test_only_past_a_second_bound_decisions_are_lost_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_DETAILED_BYTES", 0)
    monkeypatch.setattr(recording, "_WAITING_BYTES", 15_000)
    detailed = await kept(tmp_path / "d.db", made(MANY, 4), caplog)
    assert 5 < len(detailed) < MANY
    assert not any(detailed)
    assert f"{MANY - len(detailed)} changes of decisions are lost" in caplog.messages[0]


async def test_what_was_written_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decisions = made(MANY, 4)
    monkeypatch.setattr(recording, "_DETAILED_BYTES", 2.5 * weight_of_decision(decisions[0]))
    recorder = Recorder(HistorySettings(tmp_path / "d.db"))
    log = DecisionLog(sink=recorder)
    recorder.start()
    try:
        for each in decisions:
            log.add(each, 0.0, PENDING, {})
            (told,) = await recorder.about(each.pod.key)
            assert told.explain().nodes
    finally:
        await recorder.stop()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Opening a file hangs until this is set."""
    goes_on = threading.Event()
    opened = Store._opened

    def hang(self: Store, path: Path) -> object:
        goes_on.wait(60)
        return opened(self, path)

    monkeypatch.setattr(Store, "_opened", hang)
    monkeypatch.setattr(recording, "_CLOSE_S", 0.1)
    return goes_on


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: none}}]
"""


async def test_a_stop_is_heeded_while_the_file_hangs(
    tmp_path: Path, hanging: threading.Event
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    settings = Settings(kubeconfig=kubeconfig, decisions=HistorySettings(tmp_path / "d.db"))
    stop = asyncio.Event()
    running = asyncio.create_task(wiring.run(settings, stop))
    try:
        done, _ = await asyncio.wait((running,), timeout=0.5)
        assert not done
        stop.set()
        await asyncio.wait_for(running, 30)
    finally:
        hanging.set()


async def test_a_file_that_hangs_is_not_waited_for_at_the_start(
    tmp_path: Path,
    hanging: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(recording, "_RESTORE_S", 0.05)
    settings = Settings(decisions=HistorySettings(tmp_path / "d.db"))
    controller = wiring.Controller(settings, MemoryCluster())
    async with controller.remembering():
        assert "going on without it" in caplog.text
        (decision,) = made(1, 1)
        controller.decisions.add(decision, 0.0, PENDING, {})
        hanging.set()
        (told,) = await controller.history.about(decision.pod.key)
        assert told.node == decision.node
