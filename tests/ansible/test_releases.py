"""A board's releases: complete or absent after any interruption, and a rollback that works."""

import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.plugins import load

releases = load("module_utils/releases")

# Stands in for Python: makes what venv makes, installs as pip one program, or fails as pip does.
PYTHON = """#!/bin/sh
case "$1" in
-m) mkdir -p "$4/bin" && ln -s /bin/sh "$4/bin/python" ;;
*) for requirements; do :; done
   if grep -q broken "$requirements"; then
     echo "ERROR: No matching distribution found" >&2; exit 1
   fi
   cp "$requirements" "$(dirname "$3")/leadline-agent" ;;
esac
"""


class PowerCut(BaseException):
    """Nothing runs after it, as no `except Exception` and no `except OSError` would."""


class Board:
    """A board's folders below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = root / "etc/leadline/agent.toml"
        self.key = root / "etc/leadline/key.pem"
        self.unit = root / "etc/systemd/system/leadline-agent.service"
        for path in (self.settings, self.unit):
            path.parent.mkdir(parents=True)
        self.settings.write_text("interval_s = 10\n")
        self.key.write_text("first")
        self.python = root / "python3"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)

    @property
    def releases(self) -> Any:
        return releases.Releases(self.root / "opt/leadline/agent", self.unit)

    def archive(self, release: str) -> Path:
        path = self.root / f"{release}.zip"
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("pip/pip-1-py3-none-any.whl", "")
            packed.writestr("requirements.txt", release)
            packed.writestr("units/leadline-agent.service", release)
        return path

    def deliver(self, release: str) -> None:
        """As the module does."""
        there = self.releases
        if not there.is_complete(release):
            there.make(release, self.archive(release), str(self.python))
        if not there.is_switched(release):
            there.switch(release)

    def confirm(self) -> None:
        self.releases.confirm([self.settings], [self.key])

    def runs(self) -> str:
        """What systemd would start, found by the unit's own path: unit and program are of one."""
        unit = self.unit.read_text()
        program = self.root / "opt/leadline/agent/current/venv/bin/leadline-agent"
        assert program.read_text() == unit
        return unit

    def there(self) -> set[str]:
        return {path.name for path in (self.root / "opt/leadline/agent/releases").iterdir()}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sync", "fsync"):
        monkeypatch.setattr(releases.os, name, lambda *_: None)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def healthy(board: Board, *names: str) -> None:
    for name in names:
        board.deliver(name)
        board.confirm()


def test_a_release_is_delivered_linked_and_started_at_boot(board: Board) -> None:
    board.deliver("1-a")
    assert board.runs() == "1-a"
    wanted = board.unit.parent / "multi-user.target.wants/leadline-agent.service"
    assert wanted.readlink() == board.unit  # and not a release, which goes one day
    assert not (board.root / "opt/leadline/agent/releases/1-a/delivery").exists()


def test_only_the_release_before_is_kept(board: Board) -> None:
    healthy(board, "1-a", "2-b", "3-c")
    assert (board.releases.current, board.releases.previous) == ("3-c", "2-b")
    assert board.there() == {"3-c", "2-b"}


def test_nothing_is_to_be_restarted_until_something_changes(board: Board) -> None:
    files = [board.settings, board.key]
    board.deliver("1-a")
    assert not board.releases.is_running(files)  # not until it proved healthy
    board.confirm()
    assert board.releases.is_running(files)
    board.key.write_text("second")
    assert not board.releases.is_running(files)


def test_hashes_of_keys_are_for_root_only_and_keys_are_not_kept(board: Board) -> None:
    healthy(board, "1-a")
    running = board.root / "opt/leadline/agent/running"
    assert running.stat().st_mode & 0o777 == 0o600
    kept = [path for path in (board.root / "opt").rglob("*") if path.is_file()]
    assert not [path for path in kept if path.read_bytes() == b"first"]


def test_a_release_that_is_not_healthy_goes_with_its_settings(board: Board) -> None:
    healthy(board, "1-a", "2-b")
    board.deliver("3-c")
    board.settings.write_text("interval_s = 3\n")
    assert board.releases.revert([board.settings])
    assert board.runs() == "2-b"
    assert board.releases.previous == "1-a"
    assert board.settings.read_text() == "interval_s = 10\n"
    assert board.releases.is_running([board.settings, board.key])


def test_settings_that_are_not_healthy_go_and_the_release_stays(board: Board) -> None:
    healthy(board, "1-a", "2-b")
    board.settings.write_text("interval_s = 3\n")
    assert board.releases.revert([board.settings])
    assert (board.releases.current, board.releases.previous) == ("2-b", "1-a")
    assert board.settings.read_text() == "interval_s = 10\n"
    assert not board.releases.revert([board.settings])  # nothing is left to take back


def test_a_first_release_that_is_not_healthy_stays_to_be_looked_at(board: Board) -> None:
    board.deliver("1-a")
    assert not board.releases.revert([board.settings])
    assert board.runs() == "1-a"


def test_rolled_back_once_and_no_further(board: Board) -> None:
    healthy(board, "1-a")
    board.settings.write_text("interval_s = 3\n")
    healthy(board, "2-b")
    assert board.releases.roll_back([board.settings])
    assert board.runs() == "1-a"
    assert board.settings.read_text() == "interval_s = 10\n"
    assert not board.releases.is_running([board.settings, board.key])
    board.confirm()
    assert not board.releases.roll_back([board.settings])
    assert (board.runs(), board.there()) == ("1-a", {"1-a"})


def test_what_pip_says_is_said_and_nothing_half_made_stays(board: Board) -> None:
    healthy(board, "1-a")
    with pytest.raises(releases.ReleaseError, match="2-broken: ERROR: No matching distribution"):
        board.deliver("2-broken")
    assert (board.runs(), board.there()) == ("1-a", {"1-a"})


def test_without_its_python_a_release_is_made_anew(board: Board) -> None:
    healthy(board, "1-a")  # and then Debian is upgraded, with another Python
    python = board.root / "opt/leadline/agent/releases/1-a/venv/bin/python"
    python.unlink()
    python.symlink_to("/usr/bin/python2.7")
    assert not board.releases.is_complete("1-a")
    board.deliver("1-a")
    assert board.releases.is_complete("1-a")
    assert board.runs() == "1-a"


def test_nothing_is_left_after_remove(board: Board) -> None:
    healthy(board, "1-a", "2-b")
    assert board.releases.remove()
    assert not (board.root / "opt/leadline").exists()
    assert not [path for path in board.unit.parent.rglob("*") if not path.is_dir()]
    assert not board.releases.remove()


def test_what_the_other_daemon_has_stays_after_remove(board: Board) -> None:
    healthy(board, "1-a")
    other = board.root / "opt/leadline/controller"
    other.mkdir()
    board.releases.remove()
    assert other.is_dir()


STEPS = ["mkdir", "symlink_to", "replace", "unlink", "touch"]


class Steps:
    """Counts what changes the disk, and cuts the power before number `last`."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int) -> None:
        self.last, self.count = last, 0
        for name in STEPS:
            patch.setattr(Path, name, self._counted(getattr(Path, name)))
        for name in ("rmtree", "move"):
            patch.setattr(releases.shutil, name, self._counted(getattr(releases.shutil, name)))
        patch.setattr(releases.subprocess, "run", self._counted(releases.subprocess.run))

    def _counted(self, step: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.last:
                raise PowerCut
            return step(*args, **kwargs)

        return run


@pytest.mark.slow
def test_a_power_cut_at_any_step_leaves_what_works_and_the_next_run_repairs(tmp_path: Path) -> None:
    for last in range(1, 100):
        board = Board(tmp_path / str(last))
        healthy(board, "0-x", "1-a")
        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(patch, last)
            with suppress(PowerCut):
                healthy(board, "2-b")
        assert board.runs() in ("1-a", "2-b")
        healthy(board, "2-b")
        assert (board.runs(), board.releases.previous) == ("2-b", "1-a")
        assert board.there() == {"1-a", "2-b"}
        if steps.count < last:
            break
    assert 15 < last < 99  # each of so many steps was cut, and then one delivery came through
