"""Hostile files through the commands, as `make attack PART=documents` does at length."""

import subprocess
import sys
from pathlib import Path

import pytest
from leadline_controller.__main__ import main
from leadline_controller.cli.__main__ import run

from tests.attack.hostile_texts import numbers_in_toml, snapshots_by_the_thousand

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]
MUTATIONS = 60


@pytest.mark.parametrize(
    ("name", "text"), list(snapshots_by_the_thousand(200_000)), ids=lambda each: each[:40]
)
def test_a_snapshot_with_thousands_of_one_thing_is_scored_or_refused(
    capsys: Capture, tmp_path: Path, name: str, text: str
) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(text)
    code = run(["score", "--snapshot", str(file)])
    captured = capsys.readouterr()
    assert (code, captured.err.count("\n")) in ((0, 0), (1, 0), (2, 1)), name
    assert "internal error" not in captured.err
    assert len(captured.err) < 1_000


@pytest.mark.parametrize(("name", "module", "text", "arguments"), list(numbers_in_toml()))
def test_unreadable_settings_are_one_line_and_exit_code_2(
    capsys: Capture, tmp_path: Path, name: str, module: str, text: str, arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    code = (main if module == "leadline_controller" else run)([*arguments, str(file)])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, ""), name
    assert captured.err.count("\n") == 1
    assert str(file) in captured.err
    assert len(captured.err) < 1_000
    assert "set_int_max_str_digits" not in captured.err, "nothing that this user can do"


def test_the_error_about_a_number_that_is_too_long_has_its_line(
    capsys: Capture, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'cluster = "a"\n\nwarm_up_s = {"9" * 5000}\n')
    assert main(["run", "--config", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("settings.toml: expected TOML: a number is too long (at line 3)")


@pytest.mark.parametrize("option", ["alpha=" + "9" * 100_000, "9" * 100_000, "x" * 100_000 + "=1"])
def test_a_long_option_is_one_short_line(capsys: Capture, tmp_path: Path, option: str) -> None:
    arguments = ["--snapshot", str(tmp_path), "--strategy", "dacs", "--option", option]
    assert run(["score", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("leadline: option ")
    assert len(line) < 1_000


@pytest.mark.slow
def test_mutated_snapshots_end_in_an_exit_code_and_one_line() -> None:
    """In a process of its own, as it forks."""
    attack = (
        f"from tests.attack.documents import mutation_check; print(mutation_check({MUTATIONS}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", attack], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("held"), ended.stdout + ended.stderr
