"""`leadline recording` on files that a controller left."""

import json
import os
from pathlib import Path

import pytest
from leadline_controller.framework.ports import Relisted
from leadline_controller.history.recorded import Began, Changed, Decided, Entry
from leadline_controller.history.recording_files import (
    RecordingFile,
    path_of,
    read_recording,
    write_recording,
)
from leadline_controller.telemetry.accepted import Reported

from tests.controller.cli.calling import Leadline, calling
from tests.controller.history.recorded_values import BEGAN, story

UNIX_S = 1.7e9  # of Began, at 100 s on the clock


@pytest.fixture
def leadline(capsys: pytest.CaptureFixture[str]) -> Leadline:
    return calling(capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ring of two files, of which the second goes on where the first ended: ten minutes."""
    told = story(10)
    at = next(at for at, each in enumerate(told) if each.at_s >= 400)
    write_recording(path_of(tmp_path, 3), told[:at])
    file = RecordingFile(path_of(tmp_path, 4), continues=True)
    began = Began(UNIX_S + 300, "1.2.3", "home", "dacs", {}, 7, ttl=BEGAN.ttl)
    file.write([Entry(400.0, began), told[1]._replace(at_s=400.0)], is_start=True)
    file.write(told[at:])
    file.close()
    return tmp_path


async def test_the_files_are_listed(folder: Path, leadline: Leadline) -> None:
    shown = await leadline("recording", "list", "--folder", str(folder))
    assert shown.code == 0
    assert [line.split()[0] for line in shown.out.splitlines()] == [
        "FILE",
        "000003.recording",
        "000004.recording",
    ]
    shown = await leadline("recording", "list", "--folder", str(folder), "-o", "json")
    first, second = json.loads(shown.out)["files"]
    assert (first["from_unix_s"], second["from_unix_s"]) == (UNIX_S, UNIX_S + 300)
    assert first["to_unix_s"] == UNIX_S + 291
    assert first["entries"] + second["entries"] == len(story(10)) + 2
    assert not first["damaged"]
    assert second["continues"]
    shown = await leadline("recording", "list", "--folder", str(folder), "-o", "name")
    assert shown.out.splitlines() == ["recording/000003.recording", "recording/000004.recording"]


async def test_a_file_of_a_clock_that_was_not_set_is_dated_by_its_own_time(
    tmp_path: Path, leadline: Leadline
) -> None:
    told = story()
    began = Began(None, "1.2.3", "home", "dacs", {}, 7)
    path = path_of(tmp_path, 1)
    write_recording(path, [Entry(100.0, began), *told[1:]])
    os.utime(path, (UNIX_S, UNIX_S))
    shown = await leadline("recording", "list", "--folder", str(tmp_path), "-o", "json")
    (file,) = json.loads(shown.out)["files"]
    assert file["to_unix_s"] == UNIX_S


async def test_what_is_damaged_is_listed_so(folder: Path, leadline: Leadline) -> None:
    path = path_of(folder, 3)
    path.write_bytes(path.read_bytes()[:-1])
    shown = await leadline("recording", "list", "--folder", str(folder))
    assert ["damaged" in line for line in shown.out.splitlines()] == [False, True, False]


async def test_nothing_recorded_is_said(tmp_path: Path, leadline: Leadline) -> None:
    shown = await leadline("recording", "list", "--folder", str(tmp_path))
    assert (shown.code, "no recordings yet" in shown.out) == (0, True)
    for arguments in (("list",), ("export", str(tmp_path / "x"))):
        shown = await leadline("recording", *arguments, "--folder", str(tmp_path / "none"))
        assert shown.code == 1
        assert "recording.enabled = true" in shown.err
        assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize("back_s", [150, 400])
async def test_an_export_begins_with_what_was_known_then(
    folder: Path, leadline: Leadline, monkeypatch: pytest.MonkeyPatch, back_s: int
) -> None:
    end_s = story(10)[-1].at_s
    module = "leadline_controller.cli.commands.recording"
    monkeypatch.setattr(f"{module}.time.time", lambda: UNIX_S + end_s - 100)
    to = folder / "part.recording"
    shown = await leadline(
        *("recording", "export", "--since", f"{back_s}s", str(to), "--folder", str(folder))
    )
    assert (shown.code, shown.err) == (0, "")
    read = list(read_recording(to))
    assert f"{len(read)} entries" in shown.out
    first = read[0]
    assert isinstance(first.what, Began)
    assert first.what.unix_s == UNIX_S + first.at_s - 100
    assert end_s - back_s <= first.at_s < end_s - back_s + 60
    assert isinstance(read[1].what, Changed)
    assert isinstance(read[1].what.change, Relisted)
    told = [each for each in story(10) if each.at_s >= first.at_s]
    assert read[-len(told) :] == told
    known = read[: -len(told)]
    assert {each.at_s for each in known} == {first.at_s}
    assert any(isinstance(each.what, Reported) for each in known)
    assert not any(isinstance(each.what, Decided) for each in known)
    shown = await leadline("recording", "check", str(to))
    assert shown.code == 0, shown.out


async def test_an_export_of_all_is_all_of_it_once(folder: Path, leadline: Leadline) -> None:
    to = folder / "all.recording"
    shown = await leadline(
        "recording", "export", "--since", "90000d", str(to), "--folder", str(folder)
    )
    assert shown.code == 0
    assert list(read_recording(to)) == story(10)


async def test_an_export_of_nothing_writes_nothing(folder: Path, leadline: Leadline) -> None:
    to = folder / "none.recording"
    shown = await leadline("recording", "export", "--since", "1h", str(to), "--folder", str(folder))
    assert (shown.code, shown.err) == (1, "leadline: nothing is recorded since then\n")
    assert not to.exists()


async def test_a_sound_recording(folder: Path, leadline: Leadline) -> None:
    shown = await leadline("recording", "check", str(folder), "-o", "json")
    assert shown.code == 0
    found = json.loads(shown.out)
    told = story(10)
    assert found == {
        "path": str(folder),
        "entries": len(told),
        "began_unix_s": UNIX_S,
        "span_s": round(told[-1].at_s - 100, 3),
        "runs": 1,
        "versions": ["1.2.3"],
        "strategies": ["dacs"],
        "boards": 2,
        "pods": 11,
        "decisions": 10,
        "missed": 1,
        "damaged_blocks": 0,
        "torn": False,
    }
    shown = await leadline("recording", "check", str(folder))
    assert "of 2 boards and 11 pods, 10 decisions" in shown.out
    assert "entries that the controller left out: 1" in shown.out


async def test_a_strangers_recording_does_not_write_on_the_terminal(
    tmp_path: Path, leadline: Leadline
) -> None:
    path = tmp_path / "x"
    began = Began(None, "1\x1b[2J", "home", "dacs\nfine", {}, 7)
    write_recording(path, [Entry(1.0, began)])
    shown = await leadline("recording", "check", str(path))
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert len(shown.out.splitlines()) == 2


async def test_a_damaged_recording(folder: Path, leadline: Leadline) -> None:
    path = path_of(folder, 3)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    shown = await leadline("recording", "check", str(path))
    assert shown.code == 1
    assert "damaged blocks: 1 (the check sum of a block is wrong)" in shown.out
    shown = await leadline("recording", "check", str(path), "-o", "json")
    assert shown.code == 1
    assert json.loads(shown.out)["damaged_blocks"] == 1
    path.write_bytes(data[:-3])
    assert "its end is torn" in (await leadline("recording", "check", str(path))).out


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"kind: ClusterSnapshot", "no recording of Leadline"),
        (None, "No such file or directory"),
    ],
)
async def test_what_is_no_recording_is_refused(
    tmp_path: Path, leadline: Leadline, data: bytes | None, said: str
) -> None:
    path = tmp_path / "x"
    if data is not None:
        path.write_bytes(data)
    shown = await leadline("recording", "check", str(path))
    assert (shown.code, shown.out) == (2, "")
    assert shown.err == f"leadline: {path}: {said}\n"
