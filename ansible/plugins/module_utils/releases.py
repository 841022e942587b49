"""The releases of one daemon on one board, so that a power cut at any moment leaves one that works.

A release is a folder with a virtual environment and a unit. It counts as made once `complete`
is in it, which is written after everything else is on the disk; `current` is a symlink that one
rename switches. `running` says what was healthy last: which release, and the hashes of the files
that it read at its start. So whatever was interrupted, the next run sees what is left to do.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PIP_S = 1800  # an SD card that is nearly worn out is slow


class ReleaseError(Exception):
    """What went wrong, in one line."""


class Releases:
    """The releases below `root`, such as /opt/leadline/agent, and the link to their unit."""

    def __init__(self, root: Path, unit: Path) -> None:
        self._root, self._unit = root, unit
        self._wanted = unit.parent / "multi-user.target.wants" / unit.name
        self._all = root / "releases"

    @property
    def current(self) -> str | None:
        """The release that the unit starts."""
        return self._target("current")

    @property
    def previous(self) -> str | None:
        """The one to go back to."""
        found = self._target("previous")
        return None if found == self.current else found

    def is_complete(self, release: str) -> bool:
        """Whether it was made to its end, with a Python that is still there."""
        folder = self._all / release
        return (folder / "complete").is_file() and os.access(folder / "venv/bin/python", os.X_OK)

    def make(self, release: str, archive: Path, python: str) -> None:
        """Install the archive's wheels into an environment of `python`. Raises ReleaseError."""
        folder = self._all / release
        old_umask = os.umask(0o022)
        try:
            _remove(folder)
            folder.mkdir(parents=True)
            _install(folder, archive, python)
            os.sync()
            _write(folder / "complete", python + "\n", 0o644)
        except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
            _remove(folder)
            raise ReleaseError(f"{folder}: {_reason(error)}") from None
        finally:
            os.umask(old_umask)

    def is_switched(self, release: str) -> bool:
        """Whether the unit is linked, starts at boot, and starts this release."""
        is_linked = _link_of(self._unit) == self._unit_source()
        return self.current == release and is_linked and _link_of(self._wanted) == str(self._unit)

    def switch(self, release: str) -> None:
        """Let the unit start this release from now on."""
        before = self.current
        if before and before != release:
            _link(self._root / "previous", f"releases/{before}")
        _link(self._root / "current", f"releases/{release}")
        _link(self._unit, self._unit_source())
        # `systemctl enable` would follow the links and name this release, which goes one day.
        self._wanted.parent.mkdir(exist_ok=True)
        _link(self._wanted, str(self._unit))

    def is_running(self, files: Sequence[Path]) -> bool:
        """Whether the current release was healthy with these files as they are now."""
        return self.current is not None and self._running() == self._state(files)

    def confirm(self, settings: Sequence[Path], watched: Sequence[Path]) -> None:
        """Write down that the current release is healthy; drop all but it and the one before."""
        assert self.current is not None  # noqa: S101 - the module asked
        kept = self._all / self.current / "settings"
        kept.mkdir(exist_ok=True)
        for path in settings:
            _write(kept / path.name, path.read_text(), 0o644)
        state = json.dumps(self._state([*settings, *watched]))
        _write(self._root / "running", state, 0o600)
        for folder in self._all.iterdir():
            if folder.name not in (self.current, self.previous):
                _remove(folder)

    def revert(self, settings: Sequence[Path]) -> bool:
        """Back to what was healthy last, with its settings; whether that changed anything."""
        good = self._running().get("release")
        if not good or not self.is_complete(good):
            return False
        bad = self.current
        if bad != good:
            self.switch(good)
            _link(self._root / "previous", self._newest_but({good, bad}))
        return self._restore(good, settings) or bad != good

    def roll_back(self, settings: Sequence[Path]) -> bool:
        """To the release before, with its settings; False where there is none."""
        target = self.previous
        if target is None or not self.is_complete(target):
            return False
        self.switch(target)
        _link(self._root / "previous", None)
        self._restore(target, settings)
        return True

    def remove(self) -> bool:
        """Remove all of it; whether there was anything."""
        there = self._unit.is_symlink() or self._root.exists()
        for link in (self._wanted, self._unit):
            link.unlink(missing_ok=True)
        _remove(self._root)
        if self._root.parent.is_dir() and not any(self._root.parent.iterdir()):
            self._root.parent.rmdir()
        return there

    def _unit_source(self) -> str:
        return str(self._root / "current/units" / self._unit.name)

    def _target(self, link: str) -> str | None:
        target = _link_of(self._root / link)
        name = Path(target).name if target else ""
        return name if name and (self._all / name).is_dir() else None

    def _running(self) -> dict[str, Any]:
        try:
            found = json.loads((self._root / "running").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _state(self, files: Sequence[Path]) -> dict[str, Any]:
        return {"release": self.current, "files": {str(path): _hash(path) for path in files}}

    def _newest_but(self, others: set[str | None]) -> str | None:
        healthy = [
            path
            for path in self._all.iterdir()
            if path.name not in others and (path / "settings").is_dir()
        ]
        newest = max(healthy, key=lambda path: path.stat().st_mtime, default=None)
        return f"releases/{newest.name}" if newest else None

    def _restore(self, release: str, settings: Sequence[Path]) -> bool:
        kept = {path: self._all / release / "settings" / path.name for path in settings}
        others = {path: copy for path, copy in kept.items() if copy.is_file()}
        others = {path: copy for path, copy in others.items() if _hash(copy) != _hash(path)}
        for path, copy in others.items():
            _write(path, copy.read_text(), 0o644)
        return bool(others)


def _install(folder: Path, archive: Path, python: str) -> None:
    delivery = folder / "delivery"
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(delivery)
    _run([python, "-m", "venv", "--without-pip", str(folder / "venv")])
    (pip,) = delivery.glob("pip/pip-*.whl")
    environment = str(folder / "venv/bin/python")
    offline = ["--no-index", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
    source = ["--find-links", str(delivery / "wheels"), "--require-hashes", "--only-binary=:all:"]
    wanted = ["-r", str(delivery / "requirements.txt")]
    _run([python, f"{pip}/pip", "--python", environment, "install", *offline, *source, *wanted])
    shutil.move(str(delivery / "units"), str(folder / "units"))
    _remove(delivery)  # the SD card is small


def _run(command: list[str]) -> None:
    # A stray PIP_* or PYTHON* variable, or pip's own configuration, must not have a say.
    environ = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PIP_CONFIG_FILE": os.devnull}
    subprocess.run(  # noqa: S603 - our own arguments
        command, check=True, capture_output=True, text=True, timeout=PIP_S, env=environ
    )


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = [line for line in str(error.stderr).splitlines() if line.strip()]
        return " / ".join(lines[-3:]) or f"exit code {error.returncode}"
    return str(error)


def _hash(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def _link_of(path: Path) -> str | None:
    return str(path.readlink()) if path.is_symlink() else None


def _link(path: Path, target: str | None) -> None:
    """Point the link there in one step; None removes it."""
    if target is None:
        path.unlink(missing_ok=True)
    if target is None or _link_of(path) == target:
        return
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(path)
    _sync_folder(path.parent)


def _write(path: Path, text: str, mode: int) -> None:
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    new.touch(mode)
    with new.open("w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    if folder.exists():
        # Without its marker first: half a folder must not pass for a whole one.
        (folder / "complete").unlink(missing_ok=True)
        shutil.rmtree(folder)
