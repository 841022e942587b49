"""The store on disks that are full, missing or broken."""

import logging
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.decisions import database
from leadline_controller.decisions.record import DecisionRecord, OutcomeChange, ages_s
from leadline_controller.decisions.store import HistorySettings, Store

from tests.controller.decisions.decision_builder import Machine, ended

MINUTE_S = 61.0


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture(autouse=True)
def _capture_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leadline_controller.decisions")


def open_store(path: Path | None, machine: Machine, max_mb: int = 1) -> Store:
    return Store(HistorySettings(path, max_mb), machine.now)


def names_since(store: Store, age_s: float | None = None, limit: int = 1000) -> list[str]:
    found, _ = ended(store.since(age_s, limit))
    return [each.pod.removeprefix("default/") for each in found]


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("max_mb", [0, 1])
def test_without_a_file_it_keeps_them_in_memory(
    max_mb: int, machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(None if max_mb else tmp_path / "d.db", machine, max_mb)
    store.write([machine.record("a")])
    store.write([OutcomeChange("default/a", "uid-a", "bound")])
    assert [found.outcome for found in store.about("default/a", 1)] == ["bound"]
    store.close()
    assert list(tmp_path.iterdir()) == []
    assert log_lines(caplog) == []


def test_the_last_decision_about_each_pod_oldest_first(machine: Machine) -> None:
    store = open_store(None, machine)
    for name, node in (("a", None), ("b", "n1"), ("a", "n2")):
        store.write([machine.record(name, node)])
        machine.wait(10)
    records, truncated = ended(store.since(None, 10))
    assert [(each.pod, each.node, each.last.age_s(machine.now())) for each in records] == [
        ("default/b", "n1", 20.0),
        ("default/a", "n2", 10.0),
    ]
    assert not truncated


def test_a_pod_recreated_with_the_same_name_is_another(machine: Machine) -> None:
    store = open_store(None, machine)
    store.write([machine.record("web-0", "n1"), machine.record("web-0", "n2", uid="second")])
    assert names_since(store) == ["web-0", "web-0"]


def test_since_returns_only_younger_decisions(machine: Machine) -> None:
    store = open_store(None, machine)
    for i in range(5):
        store.write([machine.record(f"p{i}")])
        machine.wait(10)
    assert names_since(store, 30) == ["p2", "p3", "p4"]
    assert names_since(store, 5) == []


def test_since_returns_the_newest_and_reports_that_there_are_more(machine: Machine) -> None:
    store = open_store(None, machine)
    store.write([machine.record(f"p{i}") for i in range(5)])
    assert [names_since(store, None, limit) for limit in (3, 5)] == [
        ["p2", "p3", "p4"],
        ["p0", "p1", "p2", "p3", "p4"],
    ]
    assert [ended(store.since(None, limit))[1] for limit in (3, 5)] == [True, False]


def test_decisions_are_written_between_the_slices_of_a_listing(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_AT_ONCE", 2)
    store = open_store(tmp_path / "d.db", machine)
    store.write([machine.record(f"p{i}") for i in range(5)])
    listing = store.since(None, 10)
    for i in range(3):
        next(listing)
        store.write([machine.record(f"new-{i}")])
        assert store.about(f"default/new-{i}", 1)
    records, truncated = ended(listing)
    listed = [each.pod for each in records if not each.pod.startswith("default/new-")]
    assert listed == [f"default/p{i}" for i in range(5)]
    assert not truncated
    assert names_since(store) == [*(f"p{i}" for i in range(5)), *(f"new-{i}" for i in range(3))]
    store.close()


def test_a_listing_of_a_large_file_ends_in_time_and_says_that_there_are_more(
    tmp_path: Path, machine: Machine
) -> None:
    store = open_store(tmp_path / "d.db", machine)
    store.write([machine.record(f"p{i}") for i in range(60)])

    def slowly(record: DecisionRecord) -> DecisionRecord | None:
        machine.wait(1.0)
        return record if record.pod.endswith("9") else None

    records, truncated = ended(store.since(None, 1000, slowly))
    assert [each.pod for each in records] == ["default/p59"]
    assert truncated
    assert not store.problem
    assert len(names_since(store)) == 60
    store.close()


@pytest.mark.parametrize("jump_s", [-30 * 86400.0, +30 * 86400.0])
def test_since_holds_when_the_clock_jumps(jump_s: float, tmp_path: Path, machine: Machine) -> None:
    store = open_store(tmp_path / "d.db", machine)
    store.write([machine.record("long ago")])
    machine.wait(7200)
    assert machine.unix_s is not None
    machine.unix_s += jump_s
    store.write([machine.record("now")])
    machine.wait(60)
    assert names_since(store, 3600) == ["now"]
    assert names_since(store, 10_000) == ["long ago", "now"]
    store.close()


def test_since_after_a_restart_of_a_machine_without_a_clock(
    tmp_path: Path, machine: Machine
) -> None:
    store = open_store(tmp_path / "d.db", machine)
    store.write([machine.record("before")])
    store.close()
    machine.reboot("boot-2")
    machine.unix_s, machine.up_s = None, 300.0
    store = open_store(tmp_path / "d.db", machine)
    store.write([machine.record("after")])
    assert names_since(store, 60) == ["after"]  # what was before this start is older than it
    assert names_since(store, 301) == ["before", "after"]
    store.close()


def test_a_decision_is_never_younger_than_the_next_one(tmp_path: Path) -> None:
    """An earlier run of the machine had a clock that was a year ahead."""
    machine = Machine(unix_s=1_831_536_000.0)
    store = open_store(tmp_path / "d.db", machine)
    store.write([machine.record("a year ahead")])
    machine.reboot("boot-2")
    machine.unix_s = 1_800_000_000.0
    store.write([machine.record("next")])
    machine.wait(1000)
    records, _ = ended(store.since(None, 10))
    ages = list(ages_s(reversed(records), machine.now()))
    assert len(ages) == 2
    assert ages == sorted(ages)
    assert names_since(store, 900) == []
    store.close()


def folder_missing(tmp_path: Path) -> Path:
    (tmp_path / "file").touch()
    return tmp_path / "file" / "d.db"


def folder_in_the_way(tmp_path: Path) -> Path:
    (tmp_path / "d.db").mkdir()
    return tmp_path / "d.db"


def foreign_file(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "d.db")) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")
    return tmp_path / "d.db"


@pytest.mark.parametrize("make", [folder_missing, folder_in_the_way, foreign_file])
def test_without_a_usable_path_it_uses_memory_and_logs_that_once(
    make: object, tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(make)
    path = make(tmp_path)
    store = open_store(path, machine)
    for i in range(5):
        store.write([machine.record(f"p{i}")])
        machine.wait(MINUTE_S)
    assert names_since(store) == [f"p{i}" for i in range(5)]
    store.close()
    (line,) = log_lines(caplog)
    assert line.startswith(f"{path}: ")
    assert "kept in memory" in line
    assert "\n" not in line


def test_when_the_folder_is_back_the_decisions_are_moved_to_disk(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder_missing(tmp_path)
    store = open_store(path, machine)
    store.write([machine.record("a"), machine.record("b")])
    (tmp_path / "file").unlink()
    store.write([machine.record("c")])  # too soon to look again
    assert not path.exists()
    machine.wait(MINUTE_S)
    store.write([machine.record("d")])
    assert names_since(store) == ["a", "b", "c", "d"]
    store.close()
    assert log_lines(caplog)[1:] == [f"decisions are written to {path} again"]
    store = open_store(path, machine)
    assert names_since(store) == ["a", "b", "c", "d"]
    store.close()


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Writes beyond fail as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def write_to_full_disk(store: Store, machine: Machine) -> None:
    for i in range(50):
        store.write([machine.record(f"p{i}", explanation=bytes(10_000))])
        machine.wait(1)


def test_a_full_disk_loses_no_decision(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path / "d.db", machine)
    store.write([machine.record("before")])
    with no_file_larger_than(128 * 1024):
        write_to_full_disk(store, machine)
        everything = ["before", *(f"p{i}" for i in range(50))]
        assert names_since(store) == everything  # some from disk, the others from memory
        store.write([OutcomeChange("default/before", "uid-before", "bound")])
        store.write([OutcomeChange("default/p49", "uid-p49", "bound")])
        assert store.problem
    (line,) = log_lines(caplog)
    assert "kept in memory" in line
    machine.wait(MINUTE_S)
    store.write([machine.record("after")])
    assert store.problem == ""
    size, free = store.usage()
    assert size >= (tmp_path / "d.db").stat().st_size > 0
    assert free is not None
    assert free > 0
    assert names_since(store) == [*everything, "after"]
    store.close()
    store = open_store(tmp_path / "d.db", machine)
    assert names_since(store) == [*everything, "after"]
    for name in ("before", "p49"):
        assert [x.outcome for x in store.about(f"default/{name}", 9)] == ["bound"]
    assert [found.outcome for found in store.about("default/p48", 9)] == ["pending"]
    store.close()


def test_close_tries_to_write_what_is_in_memory(tmp_path: Path, machine: Machine) -> None:
    store = open_store(tmp_path / "d.db", machine)
    with no_file_larger_than(128 * 1024):
        write_to_full_disk(store, machine)
    store.close()
    store = open_store(tmp_path / "d.db", machine)
    assert names_since(store) == [f"p{i}" for i in range(50)]
    store.close()


@pytest.mark.network
def test_a_real_disk_that_is_full(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], check=True)
    try:
        store = open_store(folder / "d.db", machine)
        write_to_full_disk(store, machine)
        assert names_since(store) == [f"p{i}" for i in range(50)]
        (line,) = log_lines(caplog)
        assert "full" in line
        subprocess.run(["mount", "-o", "remount,size=4m", folder], check=True)
        machine.wait(MINUTE_S)
        store.write([machine.record("after")])
        store.close()
        store = open_store(folder / "d.db", machine)
        assert names_since(store) == [*(f"p{i}" for i in range(50)), "after"]
        store.close()
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        store = open_store(folder / "d.db", machine)
        store.write([machine.record("read only")])
        assert "read only" in names_since(store)
        store.close()
        assert "kept in memory" in log_lines(caplog)[-1]
    finally:
        subprocess.run(["umount", folder], check=True)


def write_many(path: Path, machine: Machine, count: int = 60) -> None:
    store = open_store(path, machine)
    store.write([machine.record(f"p{i}", why="x" * 1500) for i in range(count)])
    store.close()


def moved_aside(path: Path) -> Path:
    return path.with_name("d.db.corrupt")


@pytest.mark.parametrize("rubbish", [b"", b"nonsense" * 1000, b"SQLite format 3\x00" + b"x" * 5000])
def test_a_file_that_is_no_database_is_moved_aside(
    rubbish: bytes, tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "d.db"
    path.write_bytes(rubbish)
    store = open_store(path, machine)
    store.write([machine.record("a")])
    assert names_since(store) == ["a"]
    store.close()
    if rubbish:
        assert moved_aside(path).read_bytes() == rubbish
        (line,) = log_lines(caplog)
        assert "kept aside as d.db.corrupt; 0 decisions were rescued" in line
    store = open_store(path, machine)
    assert names_since(store) == ["a"]
    store.close()


def test_the_readable_rest_of_a_file_with_broken_pages_is_rescued(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "d.db"
    write_many(path, machine)
    broken = bytearray(path.read_bytes())
    middle = len(broken) // 2 // 4096 * 4096
    broken[middle : middle + 4096] = b"\xaa" * 4096
    path.write_bytes(broken)
    path.with_name("d.db-wal").write_bytes(b"was not closed")  # so it is looked through
    store = open_store(path, machine)
    kept = names_since(store)
    store.write([machine.record("after")])
    assert names_since(store) == [*kept, "after"]
    store.close()
    assert 40 < len(kept) < 60
    assert kept == sorted(kept, key=lambda name: int(name[1:]))
    assert {"p0", "p59"} <= set(kept)  # from both ends
    assert moved_aside(path).stat().st_size == len(broken)
    assert f"{len(kept)} decisions were rescued" in log_lines(caplog)[0]


def test_a_file_that_is_damaged_during_use_is_replaced(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "d.db"
    write_many(path, machine)
    store = open_store(path, machine)
    with path.open("r+b") as file:  # the last leaf of the decisions, and what follows it
        file.seek(4096)
        file.write(b"\xaa" * (path.stat().st_size - 4096))
    store.write([machine.record("during")])
    store.write([machine.record("after")])
    assert names_since(store)[-2:] == ["during", "after"]
    store.close()
    assert moved_aside(path).exists()
    assert "no sound database any more" in log_lines(caplog)[0]
    store = open_store(path, machine)
    assert names_since(store)[-2:] == ["during", "after"]
    store.close()


def test_a_disk_that_damages_every_file_is_not_retried_all_the_time(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "d.db"
    store = open_store(path, machine)
    for i in range(20):
        with path.open("r+b") as file:
            file.seek(100)
            file.write(b"\xaa" * path.stat().st_size)
        path.with_name("d.db-wal").unlink(missing_ok=True)
        store.write([machine.record(f"p{i}")])
        machine.wait(1)
    assert names_since(store) == [f"p{i}" for i in range(20)]
    store.close()
    assert len(log_lines(caplog)) <= 4


def test_a_damaged_explanation_is_left_out(tmp_path: Path, machine: Machine) -> None:
    path = tmp_path / "d.db"
    store = open_store(path, machine)
    store.write([machine.record("a", explanation=b"\x78\x9crubbish"), machine.record("b")])
    (record,) = store.about("default/a", 1)
    assert (record.node, record.explain().nodes) == ("n1", ())
    store.close()


def test_a_locked_file_is_retried_later(
    tmp_path: Path,
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leadline_controller.decisions.schema._BUSY_S", 0.05)
    path = tmp_path / "d.db"
    store = open_store(path, machine)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store.write([machine.record("a")])
        assert names_since(store) == ["a"]
        assert "locked" in log_lines(caplog)[0]
    machine.wait(MINUTE_S)
    store.write([machine.record("b")])
    store.close()
    store = open_store(path, machine)
    assert names_since(store) == ["a", "b"]
    store.close()


def test_a_copy_made_in_the_middle_of_writing_can_be_opened(
    tmp_path: Path, machine: Machine
) -> None:
    path = tmp_path / "d.db"
    store = open_store(path, machine)
    for i in range(30):
        store.write([machine.record(f"p{i}")])
        copies = tmp_path / f"copy{i}"
        copies.mkdir()
        for ending in ("", "-wal"):
            shutil.copy(tmp_path / f"d.db{ending}", copies)
        copy = open_store(copies / "d.db", machine)
        assert names_since(copy) == [f"p{n}" for n in range(i + 1)]
        copy.close()
    store.close()


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_a_record_that_cannot_be_written_does_not_affect_the_others(
    where: str, tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path / "d.db" if where == "disk" else None, machine)
    wrong: list[dict[str, Any]] = [
        {"why": "a\ud800"},
        {"times": 2**63},
        {"explanation": None},
        {"outcome": object()},
    ]
    rows = [machine.record(f"p{i}") for i in range(40)]
    for at, changed in enumerate(wrong):
        rows[7 * at] = rows[7 * at]._replace(**changed)
    store.write([*rows, OutcomeChange("default/p39", "uid-p39", "bound")])
    sound = [f"p{i}" for i in range(40) if i not in (0, 7, 14, 21)]
    assert names_since(store) == sound
    assert [found.outcome for found in store.about("default/p39", 1)] == ["bound"]
    store.close()
    (line,) = log_lines(caplog)  # the others within a minute
    assert line.startswith("1 changes of decisions can't be written and are left out")
    assert not moved_aside(tmp_path / "d.db").exists()


def test_a_file_with_unreadable_rows_is_replaced_by_one_with_the_others(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "d.db"
    write_many(path, machine)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE decisions SET up_s = 'soon' WHERE id % 3 = 0")
    store = open_store(path, machine)
    kept = [f"p{i}" for i in range(60) if (i + 1) % 3]
    assert names_since(store) == kept
    store.write([machine.record("after")])
    assert names_since(store) == [*kept, "after"]
    store.close()
    (line,) = log_lines(caplog)
    assert "decisions in it can't be read" in line
    assert "40 decisions were rescued" in line


def test_a_file_of_another_program_is_not_changed(tmp_path: Path, machine: Machine) -> None:
    path = foreign_file(tmp_path)
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("PRAGMA journal_mode = WAL")
    before = path.stat(), path.read_bytes()
    store = open_store(path, machine)
    store.write([machine.record("a")])
    store.close()
    assert (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes()) == (
        *(before[0].st_mode, before[0].st_mtime_ns),
        before[1],
    )
    assert [each.name for each in tmp_path.iterdir()] == ["d.db"]
