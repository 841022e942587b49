"""What the store keeps, for how long, and what it answers."""

import random
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.history import schema, store
from leadline_controller.history.record import DecisionRecord, OutcomeChange, ages_s
from leadline_controller.history.store import Store
from leadline_controller.telemetry.series import FINE

from tests.controller.history.decision_builder import Machine, ended, names
from tests.controller.history.series_builder import START_S, block

MIB = 1024 * 1024
DAY_S = 86_400.0


@pytest.fixture
def machine() -> Machine:
    return Machine()


def names_since(store: Store, age_s: float | None = None, limit: int = 1000) -> list[str]:
    found, _ = ended(store.since(age_s, limit))
    return [each.pod.removeprefix("default/") for each in found]


def outcomes(store: Store, name: str) -> list[str]:
    return [record.outcome for record in store.about(f"default/{name}", 10)]


@pytest.mark.parametrize("max_mb", [0, 1])
@pytest.mark.parametrize("has_path", [True, False])
def test_written_decisions_are_read_back(
    max_mb: int, has_path: bool, machine: Machine, tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "down" / "d.db" if has_path else None
    rows = [machine.record("a"), machine.record("b", None, outcome="failed: because", why="é ✓")]
    kept = machine.store(path, max_mb)
    kept.write(rows)
    for number, row in enumerate(rows):
        assert kept.about(row.pod, 10) == rows[number : number + 1]
    assert kept.about("default/c", 10) == []
    kept.close()
    again = machine.store(path, max_mb)
    assert again.about("default/b", 10) == (rows[1:] if path and max_mb else [])
    again.close()
    files = [each.name for each in tmp_path.rglob("*") if each.is_file()]
    assert files == (["d.db"] if path and max_mb else [])  # no journal is left over


def test_only_its_owner_may_read_it(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "own" / "d.db"
    path.parent.mkdir()
    path.touch(0o644)
    kept = machine.store(path)
    kept.write([machine.record("a")])
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    kept.close()
    assert modes == dict.fromkeys(("d.db", "d.db-wal", "d.db-shm"), 0o600)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_repeated_decision_is_counted_and_not_stored_twice(
    at_once: bool, machine: Machine
) -> None:
    kept, first = machine.store(), machine.record("stuck", None)
    rows = [first, machine.record("other")]
    for _ in range(20):
        machine.wait(60)
        rows.append(machine.record("stuck", None))
    for batch in (rows,) if at_once else ([row] for row in rows):
        kept.write(batch)
    assert names(kept) == ["other", "stuck"]  # by the last time
    (row,) = kept.about("default/stuck", 10)
    assert (row.times, row.first) == (21, first.first)
    assert row.last.age_s(machine.now()) == 0.0


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("before", "changed"),
    [
        ({}, {"why": "for another reason"}),
        ({}, {"node": "n2"}),
        ({}, {"uid": "another"}),
        ({}, {"options": {"cpu": 4.0}}),
        ({"outcome": "bound"}, {}),
    ],
    ids=str,
)
def test_another_decision_about_the_pod_is_another_row(
    before: dict[str, Any], changed: dict[str, Any], at_once: bool, machine: Machine
) -> None:
    kept, rows = machine.store(), [machine.record("p", **before), machine.record("p", **changed)]
    for batch in (rows,) if at_once else ([row] for row in rows):
        kept.write(batch)
    assert kept.about("default/p", 10) == rows[::-1]


def test_an_outcome_belongs_to_the_last_decision_about_exactly_this_pod(machine: Machine) -> None:
    kept = machine.store()
    kept.write([machine.record("p", "n1"), machine.record("p", "n2")])
    kept.write([OutcomeChange("default/p", "uid-p", "bound")])
    assert outcomes(kept, "p") == ["bound", "pending"]
    kept.write([OutcomeChange("default/p", "another's uid", "gone")])
    kept.write([OutcomeChange("default/nobody", "x", "gone")])
    assert outcomes(kept, "p") == ["bound", "pending"]
    kept.write([machine.record("q"), OutcomeChange("default/q", "uid-q", "gone")])
    assert outcomes(kept, "q") == ["gone"]


def test_a_record_that_cannot_be_written_does_not_affect_the_others(machine: Machine) -> None:
    errors: list[Exception] = []
    kept = machine.store()
    kept._failed = errors.append
    rows = [machine.record(f"p{number}") for number in range(40)]
    wrong: tuple[dict[str, Any], ...] = {"why": "a\ud800"}, {"outcome": object()}
    for at, changed in enumerate(wrong):
        rows[7 * at] = rows[7 * at]._replace(**changed)
    kept.write([*rows, OutcomeChange("default/p39", "uid-p39", "bound")])
    assert names(kept) == [f"p{number}" for number in range(40) if number not in (0, 7)]
    assert outcomes(kept, "p39") == ["bound"]
    assert len(errors) == 2


# What is listed.


def test_the_last_decision_about_each_pod_oldest_first(machine: Machine) -> None:
    kept = machine.store()
    for name, node in (("a", None), ("b", "n1"), ("a", "n2")):
        kept.write([machine.record(name, node)])
        machine.wait(10)
    records, truncated = ended(kept.since(None, 10))
    assert [(each.pod, each.node, each.last.age_s(machine.now())) for each in records] == [
        ("default/b", "n1", 20.0),
        ("default/a", "n2", 10.0),
    ]
    assert not truncated


def test_a_pod_recreated_with_the_same_name_is_another(machine: Machine) -> None:
    kept = machine.store()
    kept.write([machine.record("web-0", "n1"), machine.record("web-0", "n2", uid="second")])
    assert names_since(kept) == ["web-0", "web-0"]


def test_since_returns_only_younger_decisions(machine: Machine) -> None:
    kept = machine.store()
    for number in range(5):
        kept.write([machine.record(f"p{number}")])
        machine.wait(10)
    assert names_since(kept, 30) == ["p2", "p3", "p4"]
    assert names_since(kept, 5) == []


@pytest.mark.parametrize(
    ("limit", "expected", "more"), [(3, [2, 3, 4], True), (5, [0, 1, 2, 3, 4], False)]
)
def test_since_returns_the_newest_and_reports_that_there_are_more(
    limit: int, expected: list[int], more: bool, machine: Machine
) -> None:
    kept = machine.store()
    kept.write([machine.record(f"p{number}") for number in range(5)])
    assert names_since(kept, None, limit) == [f"p{number}" for number in expected]
    assert ended(kept.since(None, limit))[1] is more


def test_decisions_are_written_between_the_slices_of_a_listing(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_AT_ONCE", 2)
    kept = machine.store(tmp_path / "d.db")
    kept.write([machine.record(f"p{number}") for number in range(5)])
    listing = kept.since(None, 10)
    for number in range(3):
        next(listing)
        kept.write([machine.record(f"new-{number}")])
        assert kept.about(f"default/new-{number}", 1)
    records, truncated = ended(listing)
    listed = [each.pod for each in records if not each.pod.startswith("default/new-")]
    assert listed == [f"default/p{number}" for number in range(5)]
    assert not truncated
    assert names_since(kept) == [*(f"p{n}" for n in range(5)), *(f"new-{n}" for n in range(3))]
    kept.close()


def test_a_listing_of_a_large_file_ends_in_time_and_says_that_there_are_more(
    machine: Machine,
) -> None:
    kept = machine.store()
    kept.write([machine.record(f"p{number}") for number in range(60)])

    def slowly(record: DecisionRecord) -> DecisionRecord | None:
        machine.wait(1.0)
        return record if record.pod.endswith("9") else None

    records, truncated = ended(kept.since(None, 1000, slowly))
    assert [each.pod for each in records] == ["default/p59"]
    assert truncated
    assert not kept.problem
    assert len(names_since(kept)) == 60


# Clocks.


@pytest.mark.parametrize("jump_s", [-30 * DAY_S, +30 * DAY_S])
def test_since_holds_when_the_clock_jumps(jump_s: float, machine: Machine) -> None:
    kept = machine.store()
    kept.write([machine.record("long ago")])
    machine.wait(7200)
    assert machine.unix_s is not None
    machine.unix_s += jump_s
    kept.write([machine.record("now")])
    machine.wait(60)
    assert names_since(kept, 3600) == ["now"]
    assert names_since(kept, 10_000) == ["long ago", "now"]


def test_since_after_a_restart_of_a_machine_without_a_clock(machine: Machine) -> None:
    kept = machine.store()
    kept.write([machine.record("before")])
    machine.reboot("boot-2")
    machine.unix_s, machine.up_s = None, 300.0
    kept.write([machine.record("after")])
    assert names_since(kept, 60) == ["after"]  # what was before this start is older than it
    assert names_since(kept, 301) == ["before", "after"]


def test_a_decision_is_never_younger_than_the_next_one() -> None:
    """An earlier run of the machine had a clock that was a year ahead."""
    machine = Machine(unix_s=1_831_536_000.0)
    kept = machine.store()
    kept.write([machine.record("a year ahead")])
    machine.reboot("boot-2")
    machine.unix_s = 1_800_000_000.0
    kept.write([machine.record("next")])
    machine.wait(1000)
    records, _ = ended(kept.since(None, 10))
    ages = list(ages_s(reversed(records), machine.now()))
    assert len(ages) == 2
    assert ages == sorted(ages)
    assert names_since(kept, 900) == []


def test_a_wrong_clock_deletes_nothing() -> None:
    machine = Machine(unix_s=None)
    kept = machine.store(max_age_days=10)
    kept.write([machine.record("without a clock")])
    machine.reboot("boot-2")
    machine.unix_s = 1_900_000_000.0
    kept.write([machine.record("with one")])
    machine.unix_s += 50 * 365 * DAY_S  # within one run of the machine it does not count
    kept.write([machine.record("after a jump")])
    assert names(kept) == ["without a clock", "with one", "after a jump"]


def test_a_clock_that_jumped_and_was_set_back_dates_as_if_it_had_not(machine: Machine) -> None:
    kept = machine.store()
    for jump_s in (0.0, DAY_S, -DAY_S):
        before = machine.record(f"before a jump of {jump_s} s")
        assert machine.unix_s is not None
        machine.unix_s += jump_s
        kept.write([before])
    kept.write([machine.record("last")])
    machine.reboot("boot-2", off_s=3600.0)
    ages = [record.last.age_s(machine.now()) for record in next_rows(kept)]
    assert ages == pytest.approx([3600.0] * 4, abs=1.0)


def next_rows(kept: Store) -> list[DecisionRecord]:
    return [record for records in kept.newest_first() for record in records]


# Bounds.


def size_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.iterdir())


def test_the_file_stays_below_its_size_and_the_oldest_rows_are_deleted(
    machine: Machine, tmp_path: Path
) -> None:
    path, noise = tmp_path / "d.db", random.Random(1)
    kept = machine.store(path)
    for turn in range(200):
        rows = [
            machine.record(f"p{turn * 20 + i}", explanation=noise.randbytes(noise.randrange(3000)))
            for i in range(20)
        ]
        kept.write(rows)
        assert path.stat().st_size <= MIB
    found = names(kept)
    assert found == [f"p{i}" for i in range(4000 - len(found), 4000)]
    assert len(found) > 350
    kept.close()
    assert size_of(path) <= MIB


def test_a_lower_limit_shrinks_the_file(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    kept = machine.store(path, 4)
    kept.write([machine.record(f"p{i}", explanation=bytes(2000)) for i in range(1000)])
    kept.close()
    assert size_of(path) > 2 * MIB
    kept = machine.store(path, 1)
    kept.write([machine.record("last")])
    assert names(kept)[-1] == "last"
    kept.close()
    assert size_of(path) <= MIB


def test_one_decision_larger_than_the_limit_does_no_harm(machine: Machine, tmp_path: Path) -> None:
    kept = machine.store(tmp_path / "d.db")
    for name, size in (("a", 0), ("huge", 2 * MIB), ("b", 0)):
        kept.write([machine.record(name, explanation=bytes(size))])
    assert names(kept)[-1:] == ["b"]
    kept.close()


def test_old_decisions_are_deleted(machine: Machine) -> None:
    kept = machine.store(max_age_days=10)
    for name in ("a", "b", "c"):
        machine.wait(4 * DAY_S)
        kept.write([machine.record(name)])
    assert names(kept) == ["a", "b", "c"]
    machine.wait(4 * DAY_S)
    kept.write([machine.record("d")])
    assert names(kept) == ["b", "c", "d"]


# Power cuts and other users of the file.


def test_a_power_cut_at_any_moment_leaves_a_sound_beginning(
    machine: Machine, tmp_path: Path
) -> None:
    """The journal is cut off, or filled with rubbish, at every place where a write might have
    ended; what was checkpointed is there in any case."""
    path = tmp_path / "d.db"
    kept = machine.store(path)
    kept.write([machine.record(f"old{i}") for i in range(5)])
    kept.checkpoint()
    for i in range(8):
        kept.write([machine.record(f"new{i}")])
        kept.write_series([(board, block(START_S + 900 * i)) for board in "ab"])
    whole = path.with_name("d.db-wal").read_bytes()
    noise, seen = random.Random(3), set()
    for case in range(60):
        copy = tmp_path / str(case) / "d.db"
        copy.parent.mkdir()
        shutil.copy(path, copy)
        cut = noise.randrange(len(whole) + 1)
        rubbish = noise.randbytes(len(whole) - cut) if case % 2 else b""
        copy.with_name("d.db-wal").write_bytes(whole[:cut] + rubbish)
        survivor = machine.store(copy)
        found = names(survivor)
        assert found[:5] == [f"old{i}" for i in range(5)]
        assert found[5:] == [f"new{i}" for i in range(len(found) - 5)]
        blocks = [survivor.series(board, START_S, START_S + 9000) for board in "ab"]
        fine = [[each.start_s for each in of if each.resolution is FINE] for of in blocks]
        assert fine[0] == fine[1] == [START_S + 900 * i for i in range(len(fine[0]))]
        assert len(found) - 6 <= len(fine[0]) <= len(found) - 5
        survivor.write([machine.record("after")])
        assert names(survivor) == [*found, "after"]
        survivor.close()
        seen.add(len(found))
    kept.close()
    assert len(seen) > 4  # the cuts were at different places


def test_two_controllers_on_one_file_take_turns(machine: Machine, tmp_path: Path) -> None:
    both = [machine.store(tmp_path / "d.db") for _ in range(2)]
    for i in range(10):
        both[i % 2].write([machine.record(f"p{i}", options={"alpha": float(i)})])
    assert names(both[0]) == names(both[1]) == [f"p{i}" for i in range(10)]
    for each in both:
        each.close()


# Files of others.


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute("PRAGMA journal_mode = WAL")


def newer(path: Path) -> None:
    Machine().store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")


@pytest.mark.parametrize(
    ("make", "said"), [(foreign, "another program"), (newer, "a newer Leadline wrote it")]
)
def test_a_file_that_is_not_ours_is_left_alone(
    make: Callable[[Path], None], said: str, machine: Machine, tmp_path: Path
) -> None:
    path = tmp_path / "d.db"
    make(path)
    before = path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes()
    kept = machine.store(path)
    kept.write([machine.record("a")])
    assert said in kept.problem
    kept.close()
    assert (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes()) == before
    assert [each.name for each in tmp_path.iterdir()] == ["d.db"]
