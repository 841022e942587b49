"""Processes under test: a command, a log, signals and an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from tests.support.certificates import Certificate
from tests.support.mosquitto import mosquitto
from tests.support.ports import free_port

Observed = TypeVar("Observed")
STOP_S = 60.0
TIMEOUT_S = 120.0
# `make test-timing` also asserts how soon things happen, which a busy machine may not keep.
TIMED = os.environ.get("TIMED_TESTS") == "1"
# Variables that take precedence over a test's files, or point to another process.
DAEMON_VARIABLES = ("LEADLINE_", "KUBERNETES_", "NOTIFY_SOCKET", "STATE_DIRECTORY", "WATCHDOG_")


def clean_environ() -> dict[str, str]:
    """This process's environment without settings for daemons."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(DAEMON_VARIABLES)
    }


def eventually(
    observe: Callable[[], Observed],
    is_right: Callable[[Observed], object],
    what: str,
    timeout_s: float = TIMEOUT_S,
    every_s: float = 0.1,
) -> Observed:
    """Repeat an observation until `is_right` accepts it. Raises AssertionError with the last."""
    deadline_s = time.monotonic() + timeout_s
    while not is_right(observed := observe()):
        if time.monotonic() > deadline_s:
            raise AssertionError(
                f"waited {timeout_s:g} s in vain: {what}; last observed: {observed!r}"
            )
        time.sleep(every_s)
    return observed


class Daemon:
    """A daemon of Leadline that can be restarted; its log continues over restarts."""

    def __init__(
        self, module: str, config: Path, log: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self._argv = [sys.executable, "-m", module, "run", "--config", str(config)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        log.touch()
        state = log.with_suffix(".state")
        state.mkdir(exist_ok=True)
        # A controller stores its decisions, so each test has its own folder for them.
        own = {"STATE_DIRECTORY": str(state)} if module == "leadline_controller" else {}
        self._environ = {**own, **(environ or {})}

    def start(self) -> None:
        """Start it; no effect if it runs."""
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._argv, stdout=log, stderr=log, env=clean_environ() | self._environ
                )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """End it with a signal and return its exit code; None if it did not run."""
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
        """Its process id while it runs."""
        return self._process.pid if self._process else None

    def lines(self) -> list[str]:
        """All lines of its log."""
        return self._log.read_text(errors="replace").splitlines()

    def said(self, text: str) -> int:
        """The number of log lines that contain the text."""
        return sum(text in line for line in self.lines())

    def wait_said(self, text: str, times: int = 1) -> None:
        """Wait until at least `times` log lines contain the text."""
        eventually(
            self.lines,
            lambda lines: sum(text in line for line in lines) >= times,
            f"the log says {text!r}",
        )


class RestartableBroker:
    """A mosquitto that restarts on the same port. With a certificate it requires client
    certificates."""

    def __init__(self, certificate: Certificate | None) -> None:
        self._certificate = certificate
        self._running = ExitStack()
        self._pid: int | None = None
        self.port = free_port()

    def start(self) -> None:
        """Start it; no effect if it runs."""
        if self._pid is None:
            broker = mosquitto(tls=self._certificate, port=self.port)
            self._pid = self._running.enter_context(broker).pid

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._pid

    def kill(self) -> None:
        """Kill it, without a DISCONNECT to its clients; no effect if it does not run."""
        pid, self._pid = self._pid, None
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self._running.close()


def leadline(*arguments: str, timeout_s: float = 180.0) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    command: Sequence[str] = [sys.executable, "-m", "leadline_controller.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=clean_environ(), timeout=timeout_s
    )


def unreachable_kubeconfig(folder: Path, ca_file: Path | str) -> Path:
    """A kubeconfig of a cluster without a server."""
    file = folder / "kubeconfig"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nusers: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: "
        f"{{server: 'https://127.0.0.1:{free_port()}', certificate-authority: {ca_file}}}}}]\n"
    )
    return file
