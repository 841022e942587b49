"""The store on disks that are full, missing or broken, and with files of older versions."""

import gzip
import logging
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from leadline_controller.history import older
from leadline_controller.history.record import OutcomeChange
from leadline_controller.history.store import Store
from leadline_controller.telemetry.series import COARSE, FINE

from tests.controller.history.decision_builder import UNIX_S, Machine, ended, names

MINUTE_S = 61.0
OLDER = Path(__file__).with_name("decisions-version-2.db.gz")


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture(autouse=True)
def _capture_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leadline_controller.history")


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
def test_without_a_usable_path_decisions_wait_in_memory_and_that_is_logged_once(
    make: Callable[[Path], Path],
    tmp_path: Path,
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = make(tmp_path)
    kept = machine.store(path)
    for i in range(5):
        assert kept.write([machine.record(f"p{i}")]) == 0
        machine.wait(MINUTE_S)
    assert names(kept) == [f"p{i}" for i in range(5)]
    assert [each.pod for each in kept.about("default/p3", 9)] == ["default/p3"]
    assert kept.write(machine.record(f"q{i}") for i in range(5000)) == 5005 - 4096
    assert names(kept)[-1] == "q4999"
    kept.close()
    (line,) = caplog.messages
    assert line.startswith(f"{path}: ")
    assert "kept in memory" in line
    assert "\n" not in line


def test_when_the_folder_is_back_the_decisions_are_moved_to_disk(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder_missing(tmp_path)
    kept = machine.store(path)
    kept.write([machine.record("a"), machine.record("b")])
    (tmp_path / "file").unlink()
    kept.write([machine.record("c")])  # too soon to look again
    assert not path.exists()
    machine.wait(MINUTE_S)
    kept.write([machine.record("d")])
    assert names(kept) == ["a", "b", "c", "d"]
    kept.close()
    assert caplog.messages[1:] == [f"decisions are written to {path} again"]
    kept = machine.store(path)
    assert names(kept) == ["a", "b", "c", "d"]
    kept.close()


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Writes beyond fail as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def write_to_full_disk(kept: Store, machine: Machine) -> None:
    for i in range(50):
        kept.write([machine.record(f"p{i}", explanation=bytes(10_000))])
        machine.wait(1)


def test_a_full_disk_loses_no_decision(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    kept = machine.store(tmp_path / "d.db")
    kept.write([machine.record("before")])
    with no_file_larger_than(128 * 1024):
        write_to_full_disk(kept, machine)
        everything = ["before", *(f"p{i}" for i in range(50))]
        assert names(kept) == everything  # some from disk, the others from memory
        kept.write([OutcomeChange("default/before", "uid-before", "bound")])
        kept.write([OutcomeChange("default/p49", "uid-p49", "bound")])
        assert kept.problem
    (line,) = caplog.messages
    assert "kept in memory" in line
    machine.wait(MINUTE_S)
    kept.write([machine.record("after")])
    assert kept.problem == ""
    size, free = kept.usage()
    assert size >= (tmp_path / "d.db").stat().st_size > 0
    assert free is not None
    assert free > 0
    assert names(kept) == [*everything, "after"]
    kept.close()
    kept = machine.store(tmp_path / "d.db")
    assert names(kept) == [*everything, "after"]
    for name, outcome in (("before", "bound"), ("p49", "bound"), ("p48", "pending")):
        assert [x.outcome for x in kept.about(f"default/{name}", 9)] == [outcome]
    kept.close()


def test_close_tries_to_write_what_is_in_memory(tmp_path: Path, machine: Machine) -> None:
    kept = machine.store(tmp_path / "d.db")
    with no_file_larger_than(128 * 1024):
        write_to_full_disk(kept, machine)
    kept.close()
    kept = machine.store(tmp_path / "d.db")
    assert names(kept) == [f"p{i}" for i in range(50)]
    kept.close()


@pytest.mark.network
def test_a_real_disk_that_is_full(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], check=True)
    try:
        kept = machine.store(folder / "d.db")
        write_to_full_disk(kept, machine)
        assert names(kept) == [f"p{i}" for i in range(50)]
        (line,) = caplog.messages
        assert "full" in line
        subprocess.run(["mount", "-o", "remount,size=4m", folder], check=True)
        machine.wait(MINUTE_S)
        kept.write([machine.record("after")])
        kept.close()
        kept = machine.store(folder / "d.db")
        assert names(kept) == [*(f"p{i}" for i in range(50)), "after"]
        kept.close()
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        kept = machine.store(folder / "d.db")
        kept.write([machine.record("read only")])
        assert "read only" in names(kept)
        kept.close()
        assert "kept in memory" in caplog.messages[-1]
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_locked_file_is_retried_later(
    tmp_path: Path,
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leadline_controller.history.schema._BUSY_S", 0.05)
    path = tmp_path / "d.db"
    kept = machine.store(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        kept.write([machine.record("a")])
        assert names(kept) == ["a"]
        assert "locked" in caplog.messages[0]
    machine.wait(MINUTE_S)
    kept.write([machine.record("b")])
    kept.close()
    kept = machine.store(path)
    assert names(kept) == ["a", "b"]
    kept.close()


# Broken files.


def write_many(path: Path, machine: Machine, count: int = 60) -> None:
    kept = machine.store(path)
    kept.write([machine.record(f"p{i}", why="x" * 1500) for i in range(count)])
    kept.close()


def rubbish(path: Path) -> None:
    path.write_bytes(b"nonsense" * 1000)


def rubbish_after_the_magic(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + b"x" * 5000)


def a_broken_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xaa" * 4096)
    path.with_name("d.db-wal").write_bytes(b"was not closed")


def another_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE boots")


@pytest.mark.parametrize("damage", [rubbish, rubbish_after_the_magic, a_broken_page, another_table])
def test_a_broken_file_is_put_aside_and_a_new_one_begins(
    damage: Callable[[Path], None],
    tmp_path: Path,
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "d.db"
    write_many(path, machine)
    damage(path)
    size = path.stat().st_size
    kept = machine.store(path)
    kept.write([machine.record("a")])
    assert names(kept) == ["a"]
    assert kept.problem == ""
    kept.close()
    assert path.with_name("d.db.corrupt").stat().st_size == size
    (line,) = caplog.messages
    assert line.startswith(f"{path}: no sound database any more (")
    assert line.endswith("): kept aside as d.db.corrupt, and a new one begins")
    kept = machine.store(path)
    assert names(kept) == ["a"]
    kept.close()


def test_an_empty_file_is_a_new_one(tmp_path: Path, machine: Machine) -> None:
    (tmp_path / "d.db").touch()
    kept = machine.store(tmp_path / "d.db")
    kept.write([machine.record("a")])
    kept.close()
    assert [each.name for each in tmp_path.iterdir()] == ["d.db"]


def test_a_file_that_is_damaged_during_use_is_replaced_with_what_is_written_then(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "d.db"
    write_many(path, machine)
    kept = machine.store(path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (path.stat().st_size - 4096))
    kept.write([machine.record("during")])
    kept.write([machine.record("after")])
    assert names(kept) == ["during", "after"]
    kept.close()
    assert path.with_name("d.db.corrupt").exists()
    assert "no sound database any more" in caplog.messages[0]
    kept = machine.store(path)
    assert names(kept) == ["during", "after"]
    kept.close()


def test_a_disk_that_damages_every_file_is_not_retried_all_the_time(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "d.db"
    kept = machine.store(path)
    for i in range(20):
        with path.open("r+b") as file:
            file.seek(100)
            file.write(b"\xaa" * path.stat().st_size)
        path.with_name("d.db-wal").unlink(missing_ok=True)
        kept.write([machine.record(f"p{i}")])
        machine.wait(1)
    assert "p19" in names(kept)
    kept.close()
    assert len(caplog.messages) <= 4


def test_a_row_that_cannot_be_read_costs_only_itself(tmp_path: Path, machine: Machine) -> None:
    path = tmp_path / "d.db"
    write_many(path, machine)
    with closing(sqlite3.connect(path)) as connection, connection:
        wrong: tuple[object, ...] = "soon", -1, 9e999, b"\0"
        for number, value in enumerate(wrong):
            connection.execute("UPDATE decisions SET up_s = ? WHERE id = ?", (value, number + 1))
        wrong = 17, "[]", b"\xff", '["u", "n1", "w", "s", "lower", {}, "bound", 0]'
        for number, value in enumerate(wrong):
            connection.execute("UPDATE decisions SET record = ? WHERE id = ?", (value, number + 5))
        connection.execute("UPDATE decisions SET explanation = x'789c00' WHERE id = 9")
        connection.execute("UPDATE decisions SET first_boot = 99 WHERE id = 10")
    kept = machine.store(path)
    assert names(kept) == ["p8", *(f"p{i}" for i in range(10, 60))]
    (record,) = kept.about("default/p8", 1)
    assert (record.node, record.explain().nodes) == ("n1", ())
    kept.write([machine.record("p0")])
    assert names(kept)[-1] == "p0"
    kept.close()
    assert not path.with_name("d.db.corrupt").exists()


# Older files.


def put_older(path: Path) -> None:
    path.write_bytes(gzip.decompress(OLDER.read_bytes()))


def check_converted(kept: Store, *, series: bool = True) -> None:
    records, _ = ended(kept.since(None, 10))
    assert [(each.pod, each.node, each.outcome, each.times) for each in records] == [
        ("default/placed", "n1", "bound", 1),
        ("default/stuck", None, "pending", 3),
        ("default/plain", "n2", "failed: 503", 1),
    ]
    assert records[1].last.up_s - records[1].first.up_s == 60.0
    assert records[2].last.boot == "boot-2"
    assert records[2].why == "é ✓"
    assert records[1].options["beta_cs"] == 1e-6
    (placed,), (stuck,) = kept.about("default/placed", 9), kept.about("default/stuck", 9)
    explained = placed.explain()
    assert (explained.nodes, explained.total.tolist()) == (("n1", "n2", "n3"), [10.0, 0.0, 0.0])
    assert explained.ages_s["bandwidth"].tolist() == [70.0] * 3
    assert explained.measured["cpu_percent"].tolist() == [50.0] * 3
    assert explained.reasons == {"n4": ("NodeUnschedulable: the node is cordoned",)}
    assert stuck.explain().failing == {"NodeUnschedulable": 1, "NodeResourcesFit": 4}
    found = kept.series("n1", 0, int(UNIX_S) + 900)
    assert [each.resolution for each in found] == ([COARSE, FINE] if series else [])


def test_a_file_of_the_version_before_is_converted_once(
    tmp_path: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    put_older(tmp_path / "d.db")
    for _ in range(2):
        kept = machine.store(tmp_path / "d.db")
        check_converted(kept)
        kept.close()
    assert caplog.messages == []
    assert [each.name for each in tmp_path.iterdir()] == ["d.db"]


def test_a_file_of_the_first_version_is_converted(tmp_path: Path, machine: Machine) -> None:
    put_older(tmp_path / "d.db")
    with closing(sqlite3.connect(tmp_path / "d.db")) as connection:
        connection.executescript("DROP TABLE series; PRAGMA user_version = 1")
    kept = machine.store(tmp_path / "d.db")
    check_converted(kept, series=False)
    kept.close()


def test_an_older_file_is_converted_completely_or_not_at_all(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_older(tmp_path / "d.db")

    def broken(_: sqlite3.Connection) -> None:
        raise OSError(5, "the power went")

    with monkeypatch.context() as patched:
        patched.setattr(older, "end", broken)
        kept = machine.store(tmp_path / "d.db")
        assert kept.problem == "the power went"
        kept.close()
    kept = machine.store(tmp_path / "d.db")
    check_converted(kept)
    kept.close()


def test_an_unreadable_row_of_an_older_file_is_left_out(tmp_path: Path, machine: Machine) -> None:
    put_older(tmp_path / "d.db")
    with closing(sqlite3.connect(tmp_path / "d.db")) as connection, connection:
        connection.execute("UPDATE decisions SET times = 'often' WHERE pod = 'default/stuck'")
        connection.execute("UPDATE decisions SET account = x'00' WHERE pod = 'default/placed'")
    kept = machine.store(tmp_path / "d.db")
    assert names(kept) == ["placed", "plain"]
    assert kept.about("default/placed", 1)[0].explain().nodes == ()
    kept.close()
