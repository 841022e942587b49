"""Process 1 of a yard: it starts machines, and when it ends the kernel ends all that was there.

It stands in namespaces of its own (mounts, network, processes) that `yard.py` made for it, and
does what the lines on its standard input ask: `{"start": NAME, "command": [...]}` and
`{"cut": NAME}`, and `{"finally": [...]}` for a command to run at the end; each is answered by
one line. When that input closes, because the tests are over
or because somebody killed them, it ends, and with it every machine and every mount.

It runs as a plain script and imports nothing of ours.
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

# nspawn ends so when its machine rebooted, for somebody to start it again.
REBOOTED = 133
CGROUPS = Path("/sys/fs/cgroup")
POLL_S = 0.2
END_S = 10.0


class Keeper:
    """The machines that run: their processes by name, and the commands that started them."""

    def __init__(self, group: Path) -> None:
        self._group = group
        self._commands: dict[str, list[str]] = {}
        self._running: dict[int, str] = {}
        self._last: list[list[str]] = []

    def obey(self, order: dict[str, object]) -> None:
        """Do what one line asks."""
        if "start" in order:
            name, command = str(order["start"]), order["command"]
            assert isinstance(command, list)
            self._commands[name] = command
            self._start(name)
        elif "cut" in order:
            self._cut(str(order["cut"]))
        elif "finally" in order:
            command = order["finally"]
            assert isinstance(command, list)
            self._last.append(command)

    def reap(self) -> None:
        """Bury the dead, ours and the orphans of others; start again what only rebooted."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                name = self._running.pop(ended[0], None)
                if name and os.waitstatus_to_exitcode(ended[1]) == REBOOTED:
                    self._start(name)

    def end(self) -> None:
        """Cut every machine's power and leave no control group behind."""
        for name in set(self._running.values()):
            self._cut(name)
        _remove(self._group)
        for command in self._last:
            subprocess.run(command, check=False, timeout=END_S, stdout=subprocess.DEVNULL)

    def _start(self, name: str) -> None:
        command = self._commands[name]
        self._group.mkdir(exist_ok=True)
        _pass_on(self._group)
        pid = os.fork()
        if pid == 0:
            # Machines in one control group would take each other's services for their own.
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


def _pass_on(group: Path) -> None:
    """Let the machines limit memory and processes, where this kernel has the controllers here and
    not in the old hierarchies."""
    for controller in {"memory", "pids"} & set((group / "cgroup.controllers").read_text().split()):
        (group / "cgroup.subtree_control").write_text(f"+{controller}")


def _remove(group: Path) -> None:
    """Remove a control group and those in it; the kernel needs a moment to empty them."""
    deadline_s = time.monotonic() + END_S
    while group.exists() and time.monotonic() < deadline_s:
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        if group.exists():
            time.sleep(0.02)


def _lines() -> Iterator[str | None]:
    """Each line of the input as it comes, and None now and then in between."""
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
    keeper = Keeper(CGROUPS / group)
    print("done", flush=True)
    try:
        for line in _lines():
            keeper.reap()
            if line is not None:
                keeper.obey(json.loads(line))
                print("done", flush=True)
    finally:
        keeper.end()


if __name__ == "__main__":
    main(sys.argv[1])
