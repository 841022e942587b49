"""Processes under test as a system sees them: a command, a log, signals, an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from tests.support.certificates import Certificate
from tests.support.mosquitto import mosquitto
from tests.support.ports import free_port

Seen = TypeVar("Seen")
STOP_S = 20.0
PATIENCE_S = 40.0
# What would win over the files of a test, or speak to another process than ours.
FOREIGN = ("LEADLINE_", "KUBERNETES_", "NOTIFY_SOCKET", "STATE_DIRECTORY", "WATCHDOG_")


def clean_environ() -> dict[str, str]:
    """This process's environment without settings for daemons."""
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}


def eventually(
    look: Callable[[], Seen],
    right: Callable[[Seen], object],
    what: str,
    timeout_s: float = PATIENCE_S,
    every_s: float = 0.1,
) -> Seen:
    """Look until it is right. Raises AssertionError with what was seen last."""
    deadline_s = time.monotonic() + timeout_s
    while not right(seen := look()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {timeout_s:g} s in vain: {what}; last seen: {seen!r}")
        time.sleep(every_s)
    return seen


class Daemon:
    """One of our commands, restartable; its log is kept over restarts."""

    def __init__(self, module: str, config: Path, log: Path) -> None:
        self._argv = [sys.executable, "-m", module, "run", "--config", str(config)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        log.touch()
        state = log.with_suffix(".state")
        state.mkdir(exist_ok=True)
        # What a controller decided is kept; one of a test must not read another's, nor a real one.
        self._own = {"STATE_DIRECTORY": str(state)} if module == "leadline_controller" else {}

    def start(self) -> None:
        """Start it; fine if it runs."""
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._argv, stdout=log, stderr=log, env=clean_environ() | self._own
                )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """Send it a signal and return its exit code; None if it did not run."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.send_signal(number)
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{self._argv} did not end on {number.name}") from None

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._process.pid if self._process else None

    def lines(self) -> list[str]:
        """All that it ever said."""
        return self._log.read_text(errors="replace").splitlines()

    def said(self, text: str) -> int:
        """How many lines of its log hold this."""
        return sum(text in line for line in self.lines())

    def wait_said(self, text: str, times: int = 1) -> None:
        """Wait until that many lines hold this."""
        eventually(
            self.lines,
            lambda lines: sum(text in line for line in lines) >= times,
            f"the log says {text!r}",
        )


class RestartableBroker:
    """A mosquitto that comes back at the same place, and asks for client certificates where it is
    given its own."""

    def __init__(self, certificate: Certificate | None) -> None:
        self._certificate = certificate
        self._running = ExitStack()
        self._pid: int | None = None
        self.port = free_port()

    def start(self) -> None:
        """Start it; fine if it runs."""
        if self._pid is None:
            broker = mosquitto(tls=self._certificate, port=self.port)
            self._pid = self._running.enter_context(broker).pid

    def kill(self) -> None:
        """End it without a goodbye to anybody; fine if it does not run."""
        pid, self._pid = self._pid, None
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self._running.close()


def leadline(*arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    command: Sequence[str] = [sys.executable, "-m", "leadline_controller.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=clean_environ(), timeout=timeout_s
    )


def unreachable_kubeconfig(folder: Path, ca_file: Path | str) -> Path:
    """A kubeconfig of a cluster where nobody answers."""
    file = folder / "kubeconfig"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nusers: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: "
        f"{{server: 'https://127.0.0.1:{free_port()}', certificate-authority: {ca_file}}}}}]\n"
    )
    return file
