"""The ring of files, the queue before it, and disks that take no more."""

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    NodeChanged,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.history import recording as recording_module
from leadline_controller.history import recording_ring
from leadline_controller.history.recorded import (
    Began,
    Changed,
    Decided,
    Entry,
    Missed,
    Pulled,
    Recorded,
)
from leadline_controller.history.recording import Recording
from leadline_controller.history.recording_files import Damage, path_of, read_recording, recordings
from leadline_controller.history.recording_ring import RecordingSettings, Ring
from leadline_controller.history.recording_start import Start
from leadline_controller.telemetry import accepted
from leadline_controller.telemetry.accepted import Born, Pinged, Reported
from leadline_controller.telemetry.state import TimesToLive

from tests.controller.history.recorded_values import BEGAN, report, story
from tests.support.leadership import Leads
from tests.support.manual_clock import ManualClock

FULL = "No space left on device"
KIB = 1024


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A MiB of the settings is a KiB."""
    monkeypatch.setattr(recording_ring, "_MIB", KIB)


def ring(folder: Path, max_mb: int = 300, file_mb: int = 8) -> Ring:
    made = RecordingSettings(True, folder, max_mb, file_mb)
    return Ring(made, lambda _: BEGAN, Start())


def record(made: Ring, told: list[Entry]) -> None:
    """As the thread does, once in a second of the entries' clock."""
    for entry in told:
        made.add(entry)
        made.tick(entry.at_s)


def what(read: Iterator[Entry]) -> list[Recorded]:
    return [entry.what for entry in read]


def reports(first: int, last: int, every_s: float = 1.0) -> list[Entry]:
    return [
        Entry(each * every_s, report(f"n{each % 7}", each, each * every_s, each * 0.1237))
        for each in range(first, last)
    ]


def test_the_disk_has_each_entry_before_it_is_a_minute_old(tmp_path: Path) -> None:
    made = ring(tmp_path)
    made.begin(100.0)
    told = story()[1:]
    record(made, told)
    last_s = told[-1].at_s
    read = list(read_recording(tmp_path))
    assert read[-1].at_s >= last_s - 60
    made.tick(last_s + 60)
    news = [
        each
        for each in told
        if not (isinstance(each.what, Changed) and isinstance(each.what.change, NodeChanged))
    ]
    assert list(read_recording(tmp_path)) == [Entry(100.0, BEGAN), *news]


def test_writes_are_a_minute_apart(tmp_path: Path) -> None:
    made = ring(tmp_path)
    made.begin(0.0)
    sizes = set[int]()
    for entry in reports(1, 600):
        record(made, [entry])
        sizes.add(path_of(tmp_path, 1).stat().st_size)
    assert 9 <= len(sizes) <= 12


@pytest.mark.usefixtures("small")
def test_the_oldest_files_go_and_each_file_can_be_read_by_itself(tmp_path: Path) -> None:
    made = ring(tmp_path, max_mb=64, file_mb=8)
    made.begin(0.0)
    node = Node("n1")
    record(made, [Entry(0.0, Changed(Relisted((node,), (Pod("d", "p", "u"),))))])
    told = reports(1, 5000)
    record(made, told)
    made.end(5000.0)
    files = recordings(tmp_path)
    assert 4 < len(files) < 12
    assert files[0] != path_of(tmp_path, 1)
    assert sum(each.stat().st_size for each in files) <= 64 * KIB
    assert made.size_bytes <= 72 * KIB
    for file in files:
        damage = Damage()
        read = what(read_recording(file, damage))
        assert read[0] == BEGAN
        assert read[1] == Changed(Relisted((node,), (Pod("d", "p", "u"),)))
        assert len({each.node for each in read if isinstance(each, Reported)}) == 7
        assert not damage.is_any
    joined = [e for e in read_recording(tmp_path) if isinstance(e.what, Reported)]
    assert joined[-3000:] == told[-3000:]


def test_a_controller_that_starts_again_makes_a_new_file(tmp_path: Path) -> None:
    for _ in range(2):
        made = ring(tmp_path)
        made.begin(100.0)
        record(made, story()[1:])
        made.end(999.0)
    assert [each.name for each in recordings(tmp_path)] == ["000001.recording", "000002.recording"]
    read = what(read_recording(tmp_path))
    assert read.count(BEGAN) == 2


def test_what_says_nothing_new_is_left_out(tmp_path: Path) -> None:
    made = ring(tmp_path)
    made.begin(0.0)
    pod = Pod("d", "p", "u")
    changes: list[ClusterChange] = [NodeChanged(Node("n")), PodChanged(pod)] * 3
    changes += [PodDeleted(pod)] * 2
    record(made, [Entry(1.0, Changed(each)) for each in changes])
    made.end(2.0)
    assert what(read_recording(tmp_path))[1:] == [
        Changed(each) for each in (*changes[:2], PodDeleted(pod))
    ]


def test_an_entry_that_cannot_be_kept_costs_only_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = ring(tmp_path)
    made.begin(0.0)
    good = Decided("u", "d/p", "n")
    record(made, [Entry(1.0, Decided("u", "\ud800", None)), Entry(1.0, good)])
    made.tick(100.0)
    record(made, [Entry(101.0, report("\ud800", 1, 1.0))])
    made.tick(200.0)
    record(made, [Entry(201.0, good)])
    made.end(300.0)
    assert what(read_recording(tmp_path)) == [BEGAN, Missed(1), good, Missed(1), good]
    assert made.failed == 2
    assert len(caplog.messages) == 1


# What a file begins with.


def test_a_start_has_what_a_replay_needs(tmp_path: Path) -> None:
    start = Start()
    told = story(20)
    for entry in told[1:]:
        start.add(entry.what)
    at_s = told[-1].at_s
    began = replace(BEGAN, unix_s=5.0)
    entries = list(start.entries(began, at_s))
    assert {entry.at_s for entry in entries} == {at_s}
    found = [entry.what for entry in entries]
    assert found[0] == began
    assert isinstance(found[1], Changed)
    relisted = found[1].change
    assert isinstance(relisted, Relisted)
    assert [pod.name for pod in relisted.pods] == ["old"]
    assert [type(each) for each in found[2:4]] == [Born, Born]
    assert len([each for each in found if isinstance(each, Reported)]) == 12
    rounds = [each for each in found if isinstance(each, Pinged)]
    assert [each.rounds["b"].rtt_ms for each in rounds] == [17.5, 18.5, 19.5]
    # Of the last half hour and of boards that are still there; old pulls tell no speed of a link.
    assert len([each for each in found if isinstance(each, accepted.Tested)]) == 20
    assert all(each.pull.is_old for each in found if isinstance(each, Pulled))
    later = [each.what for each in start.entries(began, at_s + 3600)]
    assert not any(isinstance(each, Pinged | accepted.Tested) for each in later)


def test_invented_boards_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline_controller.history.recording_start._BOARDS", 50)
    start = Start()
    for each in range(500):
        start.add(report(f"n{each}", 1, 1.0))
    found = [each.what for each in start.entries(BEGAN, 2.0)]
    assert len(found) == 51


# Disks.


def test_a_folder_that_cannot_be_written_is_one_problem_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    folder = tmp_path / "recordings"
    folder.write_text("a file")
    made = ring(folder)
    made.begin(0.0)
    record(made, reports(1, 3000))
    assert made.problem == "File exists"
    assert len(caplog.messages) == 1
    assert f"{folder}: File exists; nothing is recorded" in caplog.messages
    folder.unlink()
    record(made, reports(3000, 3700))
    assert made.problem == ""
    assert caplog.messages[1:] == [f"{folder}: recording again"]
    read = what(read_recording(folder))
    assert read[0] == BEGAN
    assert len({each.node for each in read if isinstance(each, Reported)}) == 7


@pytest.mark.network
def test_a_real_disk_that_is_full(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    try:
        made = ring(folder / "recordings")
        made.begin(0.0)
        record(made, reports(1, 9000))
        assert made.problem == FULL
        assert [each for each in caplog.messages if FULL in each] == caplog.messages
        assert len(caplog.messages) == 1
        damage = Damage()
        read = list(read_recording(folder / "recordings", damage))
        assert len(read) > 100
        assert not damage.is_any
        subprocess.run(["mount", "-o", "remount,size=4m", folder], check=True)
        record(made, reports(9000, 9700))
        made.end(9700.0)
        assert made.problem == ""
        read = list(read_recording(folder / "recordings"))
        assert read[-1] == reports(9699, 9700)[0]
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        made = ring(folder / "recordings")
        made.begin(0.0)
        assert made.problem == "Read-only file system"
    finally:
        subprocess.run(["umount", folder], check=True)


# The queue and the thread.


class Shown:
    """A controller that records."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.leadership = ManualClock(100.0), Leads()
        self.began = 0
        self.recording = Recording(
            RecordingSettings(True, folder),
            self.clock.now_s,
            self.leadership.leads,
            self._began,
            lambda pod: replace(pod, warnings=("profiled",)),
            lambda: Relisted((), (Pod("d", "all", "all"),)),
            TimesToLive(),
        )

    def _began(self, _: float) -> Began:
        self.began += 1
        return BEGAN


async def test_what_is_queued_is_written_at_the_end(tmp_path: Path) -> None:
    made = Shown(tmp_path)
    made.recording.start()
    made.recording.put(Decided("u", "d/p", "n"), 99.5)
    made.recording.observe(PodChanged(Pod("d", "p", "u")))
    await made.recording.stop()
    assert made.recording.status().missed == 0
    assert list(read_recording(tmp_path)) == [
        Entry(99.5, BEGAN),
        Entry(99.5, Decided("u", "d/p", "n")),
        Entry(100.0, Changed(PodChanged(Pod("d", "p", "u", warnings=("profiled",))))),
    ]


async def test_what_two_threads_tell_is_in_the_order_of_the_clock(tmp_path: Path) -> None:
    made = Shown(tmp_path)
    for at_s in (103.0, 101.0, 102.0):
        made.recording.put(Decided("u", f"d/{at_s}", None), at_s)
    made.recording.start()
    await made.recording.stop()
    assert [entry.at_s for entry in read_recording(tmp_path)][1:] == [101.0, 102.0, 103.0]


async def test_only_a_leader_writes_and_begins_with_what_it_knew_before(tmp_path: Path) -> None:
    made = Shown(tmp_path)
    made.leadership.live = False
    told = story()[1:]
    for entry in told[:20]:
        made.recording.put(entry.what, entry.at_s)
    made.recording._write(200.0)
    assert not recordings(tmp_path)
    assert made.began == 0
    made.leadership.live = True
    decided = Decided("u", "d/p", "n")
    made.recording.put(decided, 201.0)
    made.recording._write(201.0)
    made.leadership.live = False
    made.recording._write(202.0)
    made.recording.put(decided, 203.0)
    made.recording._write(203.0)
    read = list(read_recording(tmp_path))
    assert [type(entry.what) for entry in read[:4]] == [Began, Changed, Born, Born]
    assert read[-1] == Entry(201.0, decided)
    assert {entry.at_s for entry in read} == {201.0}


async def test_a_full_queue_leaves_out_says_so_and_shows_the_whole_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_module, "_MOST_WAITING", 10)
    made = Shown(tmp_path)
    pods = [Pod("d", f"p{each}", f"u{each}") for each in range(25)]
    for pod in pods:
        made.recording.observe(PodChanged(pod))
    assert made.recording.status().missed == 15
    made.recording._write(100.0)
    made.recording.observe(PodDeleted(pods[0]))
    made.recording.start()
    await made.recording.stop()
    read = what(read_recording(tmp_path))
    # The whole cluster is as it was after the change that came then.
    assert read[11:] == [Missed(15), Changed(Relisted((), (Pod("d", "all", "all"),)))]


async def test_nobody_waits_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_module, "_CLOSE_S", 0.05)
    made = Shown(tmp_path)
    hangs, goes_on = threading.Event(), threading.Event()

    def begin(_: float) -> None:
        hangs.set()
        goes_on.wait(60)

    monkeypatch.setattr(made.recording._ring, "begin", begin)
    made.recording.start()
    made.recording.put(Decided("u", "d/p", "n"))
    assert hangs.wait(60)
    await made.clock.advance(45.0)
    assert made.recording.status().problem == "the disk has not answered for 45 s"
    for _ in range(20_000):
        made.recording.put(Decided("u", "d/p", "n"))
    assert made.recording.status().missed > 3000
    await made.recording.stop()
    goes_on.set()
