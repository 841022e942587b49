"""`leadline replay` on a file, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from leadline_controller.cli.__main__ import OPTIONAL, run
from leadline_controller.history.recording_files import write_recording

from tests.lab.replay.small import Recording, board, web


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    told = Recording([board("n1"), board("n2", cores=8)])
    lives = [told.life(web(f"p{at}"), "n1", 10.0 + at, 12.0 + at) for at in range(5)]
    told.put_in_order([each for life in lives for each in life])
    path = tmp_path / "five.recording"
    write_recording(path, told.end(100.0, "n1"))
    return path


def test_strategies_are_compared(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["replay", str(recording), "--strategy", "netsched", "--seeds", "2", "-o", "json"]
    assert run([*arguments, "--strategy", "kube-scheduler"]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown)
    assert "netsched" in shown
    assert "kube-scheduler" in shown


def test_decisions_are_made_again(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(recording), "--check", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["decisions"] == 5
    assert found["same"] + len(found["differences"]) == 5
    assert run(["replay", str(recording), "--check"]) == 0
    assert "of 5 decisions are the same" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--strategy", "nonsense"], "strategy 'nonsense': unknown; known: kube-scheduler"),
        (["--option", "alpha=1"], "option 'alpha': none of kube-default, kube-scheduler has it"),
        (["--option", "alpha"], "option 'alpha': expected KEY=VALUE"),
        (["--check", "-o", "csv"], "--check: prints no csv"),
    ],
)
def test_wrong_arguments_are_answered_in_a_line(
    recording: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", str(recording), *arguments]) != 0
    assert said in capsys.readouterr().err


def test_what_is_no_recording_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text"
    path.write_text("no recording\n")
    assert run(["replay", str(path)]) != 0
    assert f"{path}: no recording" in capsys.readouterr().err


def test_without_the_lab_the_package_to_install_is_named() -> None:
    assert "pip install 'leadline-controller[demo]'" in OPTIONAL["replay"][1]
