"""The document of the traffic in the database."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from leadline_controller.history import store as store_module
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.store import HistorySettings

from tests.controller.history.decision_builder import Machine, names


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_newest_document_is_kept_over_a_restart(tmp_path: Path, machine: Machine) -> None:
    store = machine.store(tmp_path / "d.db")
    assert store.traffic() == b""
    assert store.write_traffic(b"first")
    assert store.write_traffic(b"second")
    store.close()
    store = machine.store(tmp_path / "d.db")
    assert store.traffic() == b"second"
    store.close()


def test_a_file_of_the_version_before_has_none_and_keeps_its_decisions(
    tmp_path: Path, machine: Machine
) -> None:
    path = tmp_path / "d.db"
    store = machine.store(path)
    store.write([machine.record("a")])
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("DROP TABLE traffic; PRAGMA user_version = 4")
    store = machine.store(path)
    assert names(store) == ["a"]
    assert store.traffic() == b""
    assert store.write_traffic(b"new")
    store.close()
    assert [each.name for each in tmp_path.iterdir()] == ["d.db"]


def test_a_document_that_would_take_the_decisions_room_is_left_out(
    monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    monkeypatch.setattr(store_module, "_MOST_OF_TRAFFIC", 1e-6)
    store = machine.store()
    assert store.write_traffic(bytes(9))
    assert store.traffic() == b""
    assert store.write_traffic(bytes(8))
    assert store.traffic() == bytes(8)
    store.close()


async def test_the_recorder_writes_the_last_document_at_the_end(tmp_path: Path) -> None:
    settings = HistorySettings(tmp_path / "d.db")
    recorder = Recorder(settings)
    assert await recorder.traffic() == b""  # before it starts
    recorder.start()
    recorder.put_traffic(b"first")
    recorder.put_traffic(b"second")
    await recorder.stop()
    again = Recorder(settings)
    again.start()
    try:
        assert await again.traffic() == b"second"
    finally:
        await again.stop()
