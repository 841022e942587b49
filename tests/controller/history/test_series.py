"""Measured series in the file of decisions: merged, bounded, and safe from clocks and damage."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest
from leadline_controller.history import series
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.store import HistorySettings
from leadline_controller.telemetry.series import COARSE, FINE, MEAN, Block, SeriesKey, resampled

from tests.controller.history.decision_builder import Machine, ended, names
from tests.controller.history.series_builder import CPU, MIB, START_S, block


def noise(start_s: int, seed: int) -> Block:
    """A block of 12 series that does not compress."""
    values = np.random.default_rng(seed).lognormal(3, 2, (12, FINE.points, 1))
    keys = tuple(SeriesKey("rtt_ms", f"pi-{number}") for number in range(12))
    return Block(FINE, start_s, keys, np.repeat(values, 3, axis=2) * (1.0, 0.5, 2.0))


def cpu(blocks: list[Block], steps: int = 60, step_s: int = 60) -> list[float | None]:
    """The known means from START_S on, in hundredths."""
    found = resampled(blocks, START_S, steps, step_s).get(CPU)
    values = [] if found is None else found[:, MEAN].tolist()
    return [None if np.isnan(value) else round(value, 1) for value in values]


def counts(path: Path) -> dict[int, int]:
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT step_s, count(*) FROM series GROUP BY step_s"
        return dict(connection.execute(sql).fetchall())


def test_blocks_are_there_after_a_restart_and_grow_on(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    database = machine.store(path, 64)
    database.write_series([("a", block(at=0)), ("b", block(at=0, value=1.0))])
    database.close()
    database = machine.store(path, 64)
    database.write_series([("a", block(at=2, value=40.0))])
    found = database.series("a", START_S, START_S + 900)
    assert cpu(found, 4) == [20.0, None, 40.0, None]
    # The point of the quarter is of both.
    assert cpu([each for each in found if each.resolution is COARSE], 1, 900) == [30.0]
    assert database.series("c", START_S, START_S + 900) == []
    database.close()
    assert counts(path) == {60: 2, 900: 2}


def test_the_same_block_twice_is_one_row(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    database = machine.store(path, 64)
    for value in (20.0, 20.0, 30.0):
        database.write_series([("a", block(value=value))])
    assert cpu(database.series("a", START_S, START_S + 60), 1) == [30.0]
    database.close()
    assert counts(path) == {60: 1, 900: 1}


def test_what_is_too_old_is_deleted_and_quarters_are_kept_longer() -> None:
    machine = Machine()
    database = machine.store()
    for _ in range(20):
        assert machine.unix_s is not None
        for hour in range(24):
            start_s = int(machine.unix_s) // 900 * 900 + 3600 * hour
            database.write_series([("a", block(start_s))])
        machine.wait(86_400)
        database.write_series([])
    machine.wait(-86_400)
    now_s = int(machine.unix_s or 0)
    found = database.series("a", now_s - 30 * 86_400, now_s + 86_400)
    fine_s = [each.start_s for each in found if each.resolution is FINE]
    coarse_s = [each.start_s for each in found if each.resolution is COARSE]
    assert now_s - 2 * 86_400 < min(fine_s)
    assert len(fine_s) >= 24
    assert now_s - 16 * 86_400 < min(coarse_s) < now_s - 13 * 86_400


@pytest.mark.parametrize("jump_s", [20 * 365 * 86_400.0, -20 * 86_400.0])
def test_a_clock_that_is_wrong_for_a_moment_costs_little(jump_s: float) -> None:
    machine = Machine()
    database = machine.store()
    assert machine.unix_s is not None
    for number in range(96):
        database.write_series([("a", block(START_S + 900 * number))])
        machine.wait(900)
    machine.unix_s += jump_s
    database.write_series([("a", block(int(machine.unix_s) // 900 * 900))])
    machine.unix_s -= jump_s
    database.write_series([("a", block(START_S + 900 * 96))])
    found = database.series("a", START_S, START_S + 97 * 900)
    assert len([each for each in found if each.resolution is FINE]) >= 97 - 4


@pytest.mark.slow
@pytest.mark.parametrize("max_mb", [1, 4])
def test_series_in_a_full_file_leave_decisions_alone(max_mb: int, tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    database = machine.store(path, max_mb)
    database.write([machine.record(f"p{number}") for number in range(50)])
    for quarter in range(14 * max_mb):
        blocks = [(f"board-{board}", noise(START_S + 900 * quarter, board)) for board in range(100)]
        database.write_series(blocks)
        machine.wait(900)
        assert path.stat().st_size <= max_mb * MIB
    newest = START_S + 900 * (14 * max_mb - 1)
    assert all(database.series(f"board-{board}", newest, newest + 1) for board in range(100))
    fine = [each.resolution is FINE for each in database.series("board-1", START_S, START_S + 900)]
    assert True not in fine  # only its quarter is left
    assert len(names(database)) == 50
    database.close()


@pytest.mark.slow
def test_decisions_take_half_of_a_full_file_from_series(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    database = machine.store(path)
    for quarter in range(14):
        database.write_series(
            [(f"board-{board}", noise(START_S + 900 * quarter, board)) for board in range(100)]
        )
    random = Random(1)
    for batch in range(40):
        database.write(
            machine.record(f"p{batch}-{number}", explanation=random.randbytes(1500))
            for number in range(20)
        )
    assert 200 < len(names(database)) < 500
    newest = START_S + 900 * 13
    assert all(database.series(f"board-{board}", newest, newest + 1) for board in range(100))
    database.close()


@pytest.mark.slow
def test_a_lowered_limit_deletes_series_before_decisions(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    database = machine.store(path, 64)
    database.write([machine.record(f"p{number}") for number in range(50)])
    for quarter in range(20):
        blocks = [(f"b{board}", noise(START_S + 900 * quarter, board)) for board in range(100)]
        database.write_series(blocks)
    database.close()
    database = machine.store(path, 1)
    database.write([machine.record("after")])
    assert len(names(database)) == 51
    database.close()
    assert path.stat().st_size <= MIB


def test_the_time_that_is_asked_for_costs_nothing_where_nothing_is_stored() -> None:
    database = Machine().store()
    for each in (START_S, START_S + COARSE.block_s):
        database.write_series([("a", block(each)), ("b", block(each))])
    statements: list[str] = []
    assert database._connection is not None
    database._connection.set_trace_callback(statements.append)
    for from_s, to_s in ((0, 12), (0, 2**62), (-(2**62), 2**62), (START_S + 1, 2**62)):
        found = database.series("a", from_s, to_s)
        assert len(found) == (0 if to_s == 12 else 4)
    assert len(statements) == 8


def test_the_blocks_of_a_time_come_a_few_boards_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_AT_ONCE", 2)
    store, boards = Machine().store(), [f"b{each}" for each in range(5)]
    store.write_series([(board, block()) for board in boards])
    slices = store.series_at(START_S + 59)
    for _ in range(3):  # decisions are written between them
        next(slices)
    found = ended(slices)
    assert [board for board, each in found if each.resolution is FINE] == boards
    assert [board for board, each in found if each.resolution is COARSE] == boards


def test_a_damaged_block_costs_only_itself(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    store = machine.store(path)
    store.write([machine.record("a")])
    for number in range(8):
        store.write_series([("a", block(START_S + 900 * number, keys=5))])
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE series SET points = substr(points, 1, 20) || x'00' || substr(points, 22)"
            " WHERE step_s = 60 AND start_unix_s = ?",
            (START_S + 900,),
        )
    store = machine.store(path)
    found = store.series("a", START_S, START_S + 7200)
    starts = [each.start_s for each in found if each.resolution is FINE]
    assert starts == [START_S + 900 * number for number in (0, 2, 3, 4, 5, 6, 7)]
    store.write_series([("a", block(START_S + 900))])
    assert len(store.series("a", START_S + 900, START_S + 1800)) == 2
    store.close()
    assert not path.with_name("d.db.corrupt").exists()


async def test_without_a_disk_series_wait_in_memory(tmp_path: Path) -> None:
    machine, folder = Machine(), tmp_path / "away"
    folder.touch()  # no folder can be made here
    recorder = Recorder(HistorySettings(folder / "d.db"), machine.now)
    recorder.start()
    recorder.put_series([("a", block(at=0)), ("b", block(at=0))])
    assert cpu(await recorder.series("a", START_S, START_S + 60), 1) == [20.0]
    assert [board for board, _ in await recorder.series_at(START_S)] == ["a", "b"]
    folder.unlink()
    machine.wait(61)
    recorder.put_series([("a", block(at=1, value=30.0))])
    assert cpu(await recorder.series("a", START_S, START_S + 60), 2) == [20.0, 30.0]
    await recorder.stop()
    assert counts(folder / "d.db") == {60: 2, 900: 2}


async def test_a_controller_ends_with_series_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "away").touch()
    recorder = Recorder(HistorySettings(tmp_path / "away" / "d.db"))
    recorder.start()
    recorder.put_series([("a", block())])
    await recorder.stop()


async def test_the_recorder_writes_what_is_queued_before_it_answers_and_at_its_end(
    tmp_path: Path,
) -> None:
    machine = Machine()
    recorder = Recorder(HistorySettings(tmp_path / "d.db"), machine.now)
    recorder.start()
    recorder.put_series([("a", block(at=0)), ("b", block(at=1))])
    assert cpu(await recorder.series("a", START_S, START_S + 60), 1) == [20.0]
    recorder.put_series((f"board-{number}", block()) for number in range(500))
    await recorder.stop()
    assert counts(tmp_path / "d.db") == {60: 502, 900: 502}


async def test_a_disk_that_hangs_costs_the_oldest_blocks_and_no_memory(tmp_path: Path) -> None:
    recorder = Recorder(HistorySettings(tmp_path / "d.db"), Machine().now)  # its thread hangs
    for _ in range(3):
        recorder.put_series((f"board-{number}", block()) for number in range(10_000))
        await asyncio.sleep(0)
    assert len(recorder._blocks) == 20_000


WRITES = """
import sys
from pathlib import Path
from tests.controller.history.series_builder import START_S, block
from tests.controller.history.decision_builder import Machine
database = Machine().store(Path(sys.argv[1]))
for number in range(100_000):
    minute = block(START_S + 60 * number // 900 * 900, number % 15)
    database.write_series([(f"b{board}", minute) for board in "abc"])
    print(number, flush=True)
"""


@pytest.mark.parametrize("count", [1, 7, 40])
def test_a_process_killed_while_it_writes_leaves_what_it_had_written(
    count: int, tmp_path: Path
) -> None:
    path = tmp_path / "d.db"
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", WRITES, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        for _ in range(count):
            written = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database = Machine().store(path)
    for board in "abc":
        found = database.series(f"b{board}", START_S, START_S + 60 * written + 60)
        assert cpu(found, written + 1) == [20.0] * (written + 1)
    database.close()
