"""Process 1 of the testbed's namespaces: it starts the machines, and they end with it.

`namespaces.py` creates its namespaces (mounts, network, processes). Each line on its standard input
is a request: `{"start": NAME, "command": [...]}`, `{"cut": NAME}`, or `{"finally": [...]}` for a
command to run at the end. It answers each with one line. When the input closes, because the tests
have ended or were killed, it ends, and with it every machine and every mount.

It runs as a plain script and imports nothing of this repository.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# nspawn's exit code after a reboot; the machine must be started again.
REBOOTED = 133
CGROUPS = Path("/sys/fs/cgroup")
POLL_S = 0.2
END_S = 10.0


class MachineSupervisor:
    """The running machines: their processes by name, and their commands."""

    def __init__(self, group: Path) -> None:
        self._group = group
        self._commands: dict[str, list[str]] = {}
        self._running: dict[int, str] = {}
        self._final_commands: list[list[str]] = []

    def handle(self, request: dict[str, object]) -> None:
        """Carry out a request."""
        if "start" in request:
            name, command = str(request["start"]), request["command"]
            assert isinstance(command, list)
            self._commands[name] = command
            self._start(name)
        elif "cut" in request:
            self._cut(str(request["cut"]))
        elif "finally" in request:
            command = request["finally"]
            assert isinstance(command, list)
            self._final_commands.append(command)

    def reap(self) -> None:
        """Reap children and orphans, and start rebooted machines again."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                name = self._running.pop(ended[0], None)
                if name and os.waitstatus_to_exitcode(ended[1]) == REBOOTED:
                    self._start(name)

    def end(self) -> None:
        """Kill every machine, remove the control groups and run the final commands."""
        for name in set(self._running.values()):
            self._cut(name)
        _remove(self._group)
        for command in self._final_commands:
            subprocess.run(command, check=False, timeout=END_S, stdout=subprocess.DEVNULL)

    def _start(self, name: str) -> None:
        command = self._commands[name]
        self._group.mkdir(exist_ok=True)
        _enable_controllers(self._group)
        pid = os.fork()
        if pid == 0:
            # In a shared control group, machines would see each other's services.
            group = self._group / name
            group.mkdir(exist_ok=True)
            (group / "cgroup.procs").write_text("0")
            log = os.open(command[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for target, source in enumerate((nothing, log, log)):
                os.dup2(source, target)
            os.execvp(command[1], command[1:])  # noqa: S606 - no shell, and the words are ours
        self._running[pid] = name

    def _cut(self, name: str) -> None:
        pids = [pid for pid, running in self._running.items() if running == name]
        with suppress(FileNotFoundError):
            (self._group / name / "cgroup.kill").write_text("1")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            del self._running[pid]
        _remove(self._group / name)


def _enable_controllers(group: Path) -> None:
    """Let the machines limit memory and processes, if the controllers are in cgroup2."""
    for controller in {"memory", "pids"} & set((group / "cgroup.controllers").read_text().split()):
        (group / "cgroup.subtree_control").write_text(f"+{controller}")


def _remove(group: Path) -> None:
    """Remove a control group and its children; retry, as the kernel needs time to empty them."""
    deadline_s = time.monotonic() + END_S
    while group.exists() and time.monotonic() < deadline_s:
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        if group.exists():
            time.sleep(0.02)


def _lines() -> Iterator[str | None]:
    """Each line of the input, and None whenever there is none for `POLL_S`."""
    waiting = b""
    while True:
        if not select.select([0], [], [], POLL_S)[0]:
            yield None
            continue
        read = os.read(0, 65536)
        if not read:
            return
        *whole, waiting = (waiting + read).split(b"\n")
        yield from (line.decode() for line in whole)


def main(group: str) -> None:
    """Serve until the input closes."""
    supervisor = MachineSupervisor(CGROUPS / group)
    print("done", flush=True)
    try:
        for line in _lines():
            supervisor.reap()
            if line is not None:
                supervisor.handle(json.loads(line))
                print("done", flush=True)
    finally:
        supervisor.end()


if __name__ == "__main__":
    main(sys.argv[1])
