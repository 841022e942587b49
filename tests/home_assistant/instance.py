"""Runs Home Assistant's own MQTT integration, from its Python package in an environment of its own.

The last release for Python 3.11 is 2024.3; later ones read the same discovery messages.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kube.gobuild import cache, kept
from tests.support.processes import waited_for

LOCK = Path(__file__).parents[2] / "requirements-home-assistant.lock"
DRIVER = Path(__file__).with_name("driver.py")
_UV = Path(sys.executable).with_name("uv")
_PYTHONS = ((3, 11), (3, 12))


class HomeAssistant:
    """A running instance."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def look(self) -> dict[str, Any]:
        """Its entities by id, and what it complained of. Waits until it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Home Assistant ended with {self._process.wait(60)}"
        seen: dict[str, Any] = json.loads(line)
        return seen


@contextmanager
def home_assistant(folder: Path, settings: Mapping[str, Any]) -> Iterator[HomeAssistant]:
    """Run it until the block ends, with its files in `folder`. settings: the MQTT integration's."""
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [python(), str(DRIVER), str(folder), json.dumps(dict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with process:
        yield HomeAssistant(process)
        assert process.stdin is not None
        process.stdin.close()
        waited_for(process, 60)


def python(environ: Mapping[str, str] = os.environ) -> Path:
    """The interpreter that has Home Assistant, which is installed unless the cache has it."""
    if sys.version_info[:2] not in _PYTHONS:
        sys.exit("Home Assistant 2024.3 needs Python 3.11 or 3.12: make .venv with one of these")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    digest = hashlib.sha256(version.encode() + LOCK.read_bytes()).hexdigest()[:16]

    def install(folder: Path) -> None:
        print("installing Home Assistant (a minute, once)", file=sys.stderr)
        made = folder / "venv"
        subprocess.run([_UV, "venv", "-q", "-p", sys.executable, made], check=True)
        argv = [str(_UV), "pip", "install", "-q", "-p", str(made / "bin/python")]
        subprocess.run([*argv, "--require-hashes", "-r", str(LOCK)], check=True)

    return kept(cache(environ) / f"home-assistant-{digest}" / "venv", install) / "bin/python"


if __name__ == "__main__":
    print(python())
