import random
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.decisions import schema
from leadline_controller.decisions.database import MEMORY, Database
from leadline_controller.decisions.record import OutcomeChange
from leadline_controller.decisions.schema import ForeignFileError

from tests.controller.decisions.decision_builder import Machine

MIB = 1024 * 1024
DAY_S = 86400.0


def open_database(
    path: Path | str, max_bytes: int = 64 * MIB, max_age_s: float = 90 * DAY_S
) -> Database:
    return Database(path, max_bytes, max_age_s)


def names(database: Database) -> list[str]:
    return [row.pod.removeprefix("default/") for row in database.all()]


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_written_decisions_are_read_back(where: str, tmp_path: Path) -> None:
    machine = Machine()
    database = open_database(tmp_path / "d.db" if where == "disk" else MEMORY)
    rows = [machine.record("a"), machine.record("b", None, outcome="failed: because", why="é ✓")]
    database.write(rows, machine.now())
    assert list(database.all()) == rows
    assert database.about("default/b", 10) == rows[1:]
    assert database.about("default/c", 10) == []
    database.close()


def test_decisions_are_there_after_closing_and_opening(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "deep" / "down" / "d.db"
    database = open_database(path)
    database.write([row := machine.record("a")], machine.now())
    database.close()
    assert [each.name for each in path.parent.iterdir()] == ["d.db"]  # no journal is left over
    database = open_database(path)
    assert list(database.all()) == [row]
    database.close()


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "own" / "d.db"
    path.parent.mkdir()
    path.touch(0o644)
    database = open_database(path)
    database.write([machine.record("a")], machine.now())
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    database.close()
    assert modes == dict.fromkeys(("d.db", "d.db-wal", "d.db-shm"), 0o600)


def test_a_repeated_decision_is_counted_and_not_stored_twice() -> None:
    machine, database = Machine(), open_database(MEMORY)
    first = machine.record("stuck", None)
    database.write([first, machine.record("other")], machine.now())
    for _ in range(20):
        machine.wait(60)
        database.write([machine.record("stuck", None)], machine.now())
    assert names(database) == ["other", "stuck"]  # by the last time
    (row,) = database.about("default/stuck", 10)
    assert (row.times, row.first) == (21, first.first)
    assert row.last.age_s(machine.now()) == 0.0


@pytest.mark.parametrize(
    "changed",
    [{"why": "for another reason"}, {"node": "n2"}, {"uid": "another"}],
    ids=lambda changed: next(iter(changed)),
)
def test_another_decision_about_the_pod_is_another_row(changed: dict[str, Any]) -> None:
    machine, database = Machine(), open_database(MEMORY)
    for row in (machine.record("p"), machine.record("p", **changed)):
        database.write([row], machine.now())
    assert [row.times for row in database.about("default/p", 10)] == [1, 1]


def test_a_decision_after_a_bound_one_is_another_row() -> None:
    machine, database = Machine(), open_database(MEMORY)
    database.write([machine.record("p", outcome="bound")], machine.now())
    database.write([machine.record("p")], machine.now())
    assert [row.outcome for row in database.about("default/p", 10)] == ["pending", "bound"]


def test_an_outcome_belongs_to_the_last_decision_about_exactly_this_pod() -> None:
    machine, database = Machine(), open_database(MEMORY)
    database.write([machine.record("p", "n1"), machine.record("p", "n2")], machine.now())
    database.write([OutcomeChange("default/p", "uid-p", "bound")], machine.now())
    assert [row.outcome for row in database.about("default/p", 2)] == ["bound", "pending"]
    database.write([OutcomeChange("default/p", "another's uid", "gone")], machine.now())
    database.write([OutcomeChange("default/nobody", "x", "gone")], machine.now())
    assert [row.outcome for row in database.about("default/p", 2)] == ["bound", "pending"]


def test_a_batch_is_written_as_a_whole_or_not_at_all() -> None:
    machine, database = Machine(), open_database(MEMORY)
    unwritable = machine.record("b", explanation=None)
    with pytest.raises(sqlite3.IntegrityError):
        database.write([machine.record("a"), unwritable], machine.now())
    assert names(database) == []
    database.write([machine.record("a")], machine.now())  # and it can go on
    assert names(database) == ["a"]


def size_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.iterdir())


def test_the_file_stays_below_its_size_and_the_oldest_rows_are_deleted(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    database, noise = open_database(path, MIB), random.Random(1)
    for turn in range(200):
        rows = [
            machine.record(f"p{turn * 20 + i}", explanation=noise.randbytes(noise.randrange(3000)))
            for i in range(20)
        ]
        database.write(rows, machine.now())
        assert path.stat().st_size <= MIB
    kept = names(database)
    assert kept == [f"p{i}" for i in range(4000 - len(kept), 4000)]
    assert len(kept) > 400
    database.close()
    assert size_of(path) <= MIB


def test_a_lower_limit_shrinks_the_file(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    database = open_database(path, 4 * MIB)
    database.write(
        [machine.record(f"p{i}", explanation=bytes(2000)) for i in range(1000)], machine.now()
    )
    database.close()
    assert size_of(path) > 2 * MIB
    database = open_database(path, MIB)
    database.write([machine.record("last")], machine.now())
    assert names(database)[-1] == "last"
    database.close()
    assert size_of(path) <= MIB


def test_one_decision_larger_than_the_limit_does_no_harm() -> None:
    machine, database = Machine(), open_database(MEMORY, 64 * 1024)
    database.write([machine.record("a")], machine.now())
    database.write([machine.record("huge", explanation=bytes(MIB))], machine.now())
    database.write([machine.record("b")], machine.now())
    assert names(database)[-1:] == ["b"]


def test_old_decisions_are_deleted() -> None:
    machine, database = Machine(), open_database(MEMORY, max_age_s=10 * DAY_S)
    for name in ("a", "b", "c"):
        machine.wait(4 * DAY_S)
        database.write([machine.record(name)], machine.now())
    assert names(database) == ["a", "b", "c"]
    machine.wait(4 * DAY_S)
    database.write([machine.record("d")], machine.now())
    assert names(database) == ["b", "c", "d"]


def test_a_wrong_clock_deletes_nothing() -> None:
    machine = Machine(unix_s=None)
    database = open_database(MEMORY, max_age_s=10 * DAY_S)
    database.write([machine.record("without a clock")], machine.now())
    machine.reboot("boot-2")
    machine.unix_s = 1_900_000_000.0
    database.write([machine.record("with one")], machine.now())
    machine.unix_s += 50 * 365 * DAY_S  # within one run of the machine it does not count
    database.write([machine.record("after a jump")], machine.now())
    assert names(database) == ["without a clock", "with one", "after a jump"]


def test_a_clock_that_jumped_and_was_set_back_dates_as_if_it_had_not() -> None:
    machine, database = Machine(), open_database(MEMORY)
    for jump_s in (0.0, DAY_S, -DAY_S):
        before = machine.record(f"before a jump of {jump_s} s")
        assert machine.unix_s is not None
        machine.unix_s += jump_s
        database.write([before], machine.now())
    database.write([machine.record("last")], machine.now())
    machine.reboot("boot-2", off_s=3600.0)
    ages_s = [record.last.age_s(machine.now()) for record in database.all()]
    assert ages_s == pytest.approx([3600.0] * 4, abs=1.0)


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")


def newer(path: Path) -> None:
    open_database(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")


@pytest.mark.parametrize(
    ("make", "said"), [(foreign, "another program"), (newer, "a newer Leadline wrote it")]
)
def test_a_file_that_is_not_ours_is_left_alone(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "d.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(ForeignFileError, match=said):
        open_database(path)
    assert path.read_bytes() == before


def test_an_older_file_is_migrated_completely_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    monkeypatch.setattr(schema, "MIGRATIONS", (schema._create,))
    database = open_database(path)
    database.write([machine.record("a")], machine.now())
    database.close()

    def second(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE decisions ADD COLUMN score REAL")

    def broken(connection: sqlite3.Connection) -> None:
        second(connection)
        raise sqlite3.OperationalError("the power went")

    for step in (broken, second):
        monkeypatch.setattr(schema, "MIGRATIONS", (schema._create, step))
        if step is broken:
            with pytest.raises(sqlite3.OperationalError):
                open_database(path)
        else:
            database = open_database(path)
            assert names(database) == ["a"]
            database.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_a_power_cut_at_any_moment_leaves_a_sound_beginning(tmp_path: Path) -> None:
    """The journal is cut off, or filled with rubbish, at every place where a write might have
    ended; what was checkpointed is there in any case."""
    machine, path = Machine(), tmp_path / "d.db"
    database = open_database(path)
    database.write([machine.record(f"old{i}") for i in range(5)], machine.now())
    database.checkpoint()
    for i in range(8):
        database.write([machine.record(f"new{i}")], machine.now())
    whole = path.with_name("d.db-wal").read_bytes()
    noise, seen = random.Random(3), set()
    for case in range(60):
        copy = tmp_path / str(case) / "d.db"
        copy.parent.mkdir()
        shutil.copy(path, copy)
        cut = noise.randrange(len(whole) + 1)
        rubbish = noise.randbytes(len(whole) - cut) if case % 2 else b""
        copy.with_name("d.db-wal").write_bytes(whole[:cut] + rubbish)
        survivor = open_database(copy)
        kept = names(survivor)
        assert kept[:5] == [f"old{i}" for i in range(5)]
        assert kept[5:] == [f"new{i}" for i in range(len(kept) - 5)]
        survivor.write([machine.record("after")], machine.now())
        assert names(survivor) == [*kept, "after"]
        survivor.close()
        seen.add(len(kept))
    database.close()
    assert len(seen) > 4  # the cuts were at different places


def test_two_controllers_on_one_file_take_turns(tmp_path: Path) -> None:
    machine, path = Machine(), tmp_path / "d.db"
    one, two = open_database(path), open_database(path)
    for i in range(10):
        (one, two)[i % 2].write(
            [machine.record(f"p{i}", options={"alpha": float(i)})], machine.now()
        )
    assert names(one) == names(two) == [f"p{i}" for i in range(10)]
    one.close()
    two.close()
