"""What strategies without effect would have decided is kept, bounded, and measured later."""

import gzip
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.shadowed import ShadowDecision
from leadline_controller.history.store import HistorySettings, Store
from leadline_controller.telemetry.series import COARSE, FINE, Block, SeriesKey

from tests.controller.history.decision_builder import Machine, ended, names
from tests.controller.history.shadow_builder import shadow

OLDER = Path(__file__).with_name("decisions-version-3.db.gz")
DAY_S = 86_400.0
CPU, BANDWIDTH, TO_USER = SeriesKey("cpu_percent"), SeriesKey("bandwidth_mbps"), "rtt_ms"
_numbers = count()


@pytest.fixture
def machine() -> Machine:
    return Machine()


def kept(store: Store, age_s: float = np.inf) -> list[ShadowDecision]:
    return ended(store.shadows(age_s, 10_000))[0]


def measured(store: Store, machine: Machine, board: str, values: dict[SeriesKey, float]) -> None:
    """The board has these values in all minutes of the next hour."""
    assert machine.unix_s is not None
    first_s = int(machine.unix_s) - int(machine.unix_s) % FINE.block_s
    points = np.stack([np.full((FINE.points, 3), value) for value in values.values()])
    blocks = [
        (board, Block(FINE, first_s + number * FINE.block_s, tuple(values), points))
        for number in range(4)
    ]
    assert store.write_series(blocks)


def placed(store: Store, machine: Machine, **changed: object) -> ShadowDecision:
    """A pod that was bound to n1 just now, and what a shadow found."""
    name = f"web-{next(_numbers)}"
    store.write([machine.record(name, outcome="bound")])
    made = shadow(machine, name, **changed)
    assert store.write_shadows([made])
    return made


def test_it_comes_back_as_it_was_written_the_newest_first(tmp_path: Path, machine: Machine) -> None:
    first = shadow(machine, choice="n1", total=None, total_of_node=None, rank=None, user="")
    machine.wait(10.0)
    second = shadow(machine, "web-2", choice=None, tied=True, missed=7)
    store = machine.store(tmp_path / "d.db")
    assert store.write_shadows([first, second])
    store.close()
    store = machine.store(tmp_path / "d.db")
    assert kept(store) == [second, first]
    assert kept(store, 5.0) == [second]
    assert ended(store.shadows(np.inf, 1)) == ([second], True)
    store.close()


def test_it_is_dated_by_the_boot_that_it_was_made_in(tmp_path: Path, machine: Machine) -> None:
    store = machine.store(tmp_path / "d.db")
    store.write_shadows([shadow(machine)])
    machine.reboot("boot-2", off_s=100.0)
    (one,) = kept(store)
    assert one.at.age_s(machine.now()) == pytest.approx(100.0)
    store.close()


def test_a_file_of_the_version_before_has_none_and_keeps_its_decisions(
    tmp_path: Path, machine: Machine
) -> None:
    path = tmp_path / "d.db"
    path.write_bytes(gzip.decompress(OLDER.read_bytes()))
    for number in range(2):
        store = machine.store(path)
        assert names(store) == [f"web-{i}" for i in range(5)]
        assert store.about("default/web-3", 1)[0].explain().nodes == ("n1", "n2")
        assert len(kept(store)) == number
        assert store.write_shadows([shadow(machine)])
        store.close()
    assert [each.name for each in tmp_path.iterdir()] == ["d.db"]


def test_both_boards_are_measured_over_the_ten_minutes_after_the_decision(machine: Machine) -> None:
    store = machine.store()
    placed(store, machine)
    before = {CPU: 99.0, BANDWIDTH: 9.0}
    measured(store, machine, "n1", before)
    machine.wait(60.0)
    measured(store, machine, "n1", {CPU: 80.0, BANDWIDTH: 10.0, SeriesKey(TO_USER, "n3"): 7.0})
    measured(store, machine, "n2", {CPU: 35.0, BANDWIDTH: 90.0})
    measured(store, machine, "n3", {SeriesKey(TO_USER, "n2"): 2.0})
    machine.wait(25 * 60.0)
    assert not store.measure_shadows()
    assert kept(store)[0].later is None  # the last block may not be written yet
    machine.wait(10 * 60.0)
    assert not store.measure_shadows()
    later = kept(store)[0].later
    assert later is not None
    assert {name: tuple(map(round, both)) for name, both in later.items()} == {
        "cpu_percent": (80, 35),
        "bandwidth_mbps": (10, 90),
        "rtt_ms": (7, 2),
    }


def test_on_the_users_own_board_the_round_trip_is_none(machine: Machine) -> None:
    store = machine.store()
    placed(store, machine, user="n2")
    measured(store, machine, "n1", {SeriesKey(TO_USER, "n2"): 7.0})
    machine.wait(3600.0)
    store.measure_shadows()
    later = kept(store)[0].later
    assert later is not None
    assert (round(later["rtt_ms"][0]), later["rtt_ms"][1]) == (7, 0.0)


@pytest.mark.parametrize("case", ["one board", "few minutes", "coarse", "other node", "no clock"])
def test_what_is_not_known_of_both_boards_is_not_claimed(machine: Machine, case: str) -> None:
    if case == "no clock":
        machine.unix_s = None
    store = machine.store()
    placed(store, machine, **({"node": "n3"} if case == "other node" else {}))
    if machine.unix_s is not None:
        measured(store, machine, "n1", {CPU: 80.0})
        if case == "few minutes":
            start_s = int(machine.unix_s) - int(machine.unix_s) % FINE.block_s
            points = np.full((1, FINE.points, 3), np.nan)
            points[:, 1:5] = 35.0
            store.write_series([("n2", Block(FINE, start_s, (CPU,), points))])
        elif case == "coarse":
            start_s = int(machine.unix_s) - int(machine.unix_s) % COARSE.block_s
            points = np.full((1, COARSE.points, 3), 35.0)
            store.write_series([("n2", Block(COARSE, start_s, (CPU,), points))])
        elif case == "other node":
            measured(store, machine, "n2", {CPU: 35.0})
            measured(store, machine, "n3", {CPU: 35.0})
    machine.wait(3600.0)
    assert not store.measure_shadows()
    assert not kept(store)[0].later
    assert not store.measure_shadows()


def test_more_than_is_measured_at_once_is_measured_in_turns(machine: Machine) -> None:
    store = machine.store()
    store.write([machine.record("web-1", outcome="bound")])
    store.write_shadows([shadow(machine) for _ in range(300)])
    for board in ("n1", "n2"):
        measured(store, machine, board, {CPU: 50.0})
    machine.wait(3600.0)
    assert store.measure_shadows()
    assert not store.measure_shadows()
    assert all(each.later for each in kept(store))


def test_old_ones_are_deleted(tmp_path: Path, machine: Machine) -> None:
    store = machine.store(tmp_path / "d.db", max_age_days=1)
    store.write_shadows([shadow(machine)])
    machine.wait(DAY_S + 1)
    store.write_shadows([shadow(machine, "web-2")])
    assert [each.pod for each in kept(store)] == ["default/web-2"]
    store.close()


@pytest.mark.slow
def test_they_take_a_share_of_the_file_and_decisions_keep_theirs(
    tmp_path: Path, machine: Machine
) -> None:
    store = machine.store(tmp_path / "d.db")
    for number in range(100):
        store.write([machine.record(f"kept-{number}")])
    for _ in range(40):
        store.write_shadows([shadow(machine) for _ in range(200)])
    assert 100 < len(kept(store)) < 8000
    assert len(names(store)) == 100
    store.close()
    assert (tmp_path / "d.db").stat().st_size < 1.1 * 2**20


def test_a_damaged_row_is_left_out(tmp_path: Path, machine: Machine) -> None:
    store = machine.store(tmp_path / "d.db")
    store.write_shadows([shadow(machine, str(number)) for number in range(4)])
    with closing(sqlite3.connect(tmp_path / "d.db")) as connection, connection:
        connection.execute("UPDATE shadows SET record = '[1]' WHERE id = 1")
        connection.execute("UPDATE shadows SET record = x'00ff' WHERE id = 2")
        connection.execute("UPDATE shadows SET outcome = '[' WHERE id = 3")
    machine.wait(3600.0)
    assert not store.measure_shadows()
    assert [each.pod for each in kept(store)] == ["default/3"]
    store.close()


async def test_the_recorder_writes_measures_and_reads_them(machine: Machine) -> None:
    recorder = Recorder(HistorySettings(), machine.now)
    recorder.put(machine.record("web-1", outcome="bound"))
    recorder.put_shadows([shadow(machine)])
    recorder.start()
    try:
        found, truncated = await recorder.shadows(60.0)
        assert ([each.pod for each in found], truncated) == (["default/web-1"], False)
        assert machine.unix_s is not None
        start_s = int(machine.unix_s) - int(machine.unix_s) % FINE.block_s
        points = np.full((1, FINE.points, 3), 50.0)
        blocks = [
            (board, Block(FINE, start_s + at * FINE.block_s, (CPU,), points))
            for board in ("n1", "n2")
            for at in range(2)
        ]
        machine.wait(3600.0)
        recorder.put_series(blocks)
        await recorder.shadows(DAY_S)
        found, _ = await recorder.shadows(DAY_S)
        assert found[0].later is not None
        assert recorder.losses() == {"changes": 0, "scores": 0, "errors": 0}
    finally:
        await recorder.stop()
