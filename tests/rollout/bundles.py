"""Bundles to roll out: this checkout's, a later one, and a later one whose agent does not start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.release import REPOSITORY, VERSION

BUILDER = REPOSITORY / "ansible" / "bundle"
BUILD_S = 600
# The parts of a checkout that the builder reads.
SOURCES = (
    *("agent", "controller", "proto", "systemd"),
    *("pyproject.toml", "LICENSE", "README.md"),
)
BROKEN_MAIN = 'raise SystemExit("leadline-agent: a release that cannot start")\n'


def build(out: Path, source: Path = REPOSITORY) -> str:
    """Build the bundle of a checkout at `out`, as `make bundle` does, and return its release id."""
    command = [sys.executable, "-m", "leadline_bundle", "--source", source, "--out", out]
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        env={**os.environ, "PYTHONPATH": str(BUILDER)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (out / "VERSION").read_text().strip()


def later(folder: Path, version: str, *, broken: bool = False) -> Path:
    """Copy this checkout into `folder`, and set another version in all of it. With `broken`, its
    agent ends at its start."""
    for name in SOURCES:
        place = REPOSITORY / name
        if place.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "dist", "build")
            shutil.copytree(place, folder / name, ignore=ignored)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(place, folder / name)
    for project in ("", "agent", "agent/flows", "controller", "proto"):
        _replace(
            folder / project / "pyproject.toml", f'version = "{VERSION}"', f'version = "{version}"'
        )
    for package in (
        "agent/leadline_agent",
        "agent/flows/leadline_flows",
        "controller/leadline_controller",
    ):
        _replace(
            folder / package / "__init__.py",
            f'__version__ = "{VERSION}"',
            f'__version__ = "{version}"',
        )
    if broken:
        main = folder / "agent" / "leadline_agent" / "__main__.py"
        main.write_text(BROKEN_MAIN + main.read_text())
    return folder


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, f"{file} does not have {old}"
    file.write_text(text.replace(old, new))
