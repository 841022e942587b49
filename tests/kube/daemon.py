"""Runs the parts of a control plane that work on an API server: schedulers and controllers.

They are commands of the same Go binary as the control plane itself. Each says on its standard
output when it is ready and ends with its standard input, so none outlives the test run.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO

from tests.kube.gobuild import built
from tests.kube.sources import ControlPlaneError, GoToolchain, find_source
from tests.support.processes import end

START_S = 120.0
STOP_S = 60.0
LOG_LINES = 5
# A cluster or a folder that a person named stands for the API server, not for these parts.
ELSEWHERE = ("LEADLINE_TEST_KUBECONFIG", "KUBEBUILDER_ASSETS")


@dataclass(frozen=True)
class Daemon:
    """A running part; `url` serves /healthz and /metrics with a certificate of its own making."""

    url: str
    pid: int
    log: Path


def toolchain(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the go command to build with; raises ControlPlaneError where there is none."""
    source = find_source({name: environ[name] for name in environ if name not in ELSEWHERE})
    if not isinstance(source, GoToolchain):
        raise ControlPlaneError(f"no Go to build with, but {source}")
    return source.go


def program(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the Go binary that has every part, building it if need be.

    Raises ControlPlaneError where there is no Go that could.
    """
    return built(toolchain(environ), environ)


@contextmanager
def daemon(
    part: str, flags: Sequence[str], environ: Mapping[str, str] = os.environ
) -> Iterator[Daemon]:
    """Yield `part`, such as kube-scheduler, running and ready; end it with the block.

    Raises ControlPlaneError with its last words where it does not get ready.
    """
    with tempfile.TemporaryDirectory(prefix=f"leadline-{part}-") as folder:
        log = Path(folder) / f"{part}.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [program(environ), part, *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C is for the test run, which still needs the part to clean up.
                start_new_session=True,
            )
        try:
            yield Daemon(_ready_url(part, process, log), process.pid, log)
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End `process`, by force if it does not listen, and close its pipes."""
    if process.stdin:
        process.stdin.close()
    end(process, STOP_S)
    if process.stdout:
        process.stdout.close()


def _ready_url(part: str, process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    line = _first_line(process.stdout)
    if line.startswith("ready: "):
        return line.removeprefix("ready: ").strip()
    last = " | ".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    what = f"said {line!r}" if line else f"ended, or was silent for {START_S:.0f} s"
    raise ControlPlaneError(f"{part} did not start, it {what}: {last}")


def _first_line(pipe: IO[bytes]) -> str:
    """Return the first line from `pipe`, or what it had at its end or after START_S."""
    line = b""
    deadline = time.monotonic() + START_S
    with DefaultSelector() as ready:
        ready.register(pipe, EVENT_READ)
        while not line.endswith(b"\n") and ready.select(deadline - time.monotonic()):
            if not (more := os.read(pipe.fileno(), 4096)):
                break
            line += more
    return line.decode(errors="replace")
