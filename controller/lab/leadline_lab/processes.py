"""The processes of a lab: they are started detached and identified by pid and start time.

A lab outlives the command that built it, so its processes are nobody's children. The identity
``(boot id, pid, start time)`` cannot belong to a later process.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leadline_lab.errors import LabError

_POLL_S = 0.02
_KILL_WAIT_S = 5.0
_TCP_LISTEN = "0A"
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
# The shell waits for a line before it executes the command. So a process is recorded before it does
# anything, and if this process dies in between, the pipe closes and the shell ends.
_HOLD_SCRIPT = 'read -r go && exec "$@" </dev/null'


@dataclass(frozen=True)
class Process:
    """A recorded process. ``start_ticks`` is field 22 of ``/proc/<pid>/stat``."""

    name: str
    host: str
    pid: int
    start_ticks: int
    log: Path

    @property
    def running(self) -> bool:
        """Whether this process still runs; a zombie does not."""
        return start_ticks(self.pid) == self.start_ticks

    def last_line(self) -> str:
        """The last line of its log, "nothing" without one."""
        with suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        return "nothing"


def start_ticks(pid: int) -> int | None:
    """Clock ticks between boot and the process's start; None if it has ended."""
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def spawn(
    name: str, host: str, argv: Sequence[str], log: Path, record: Callable[[Process], None]
) -> Process:
    """Start a command in its own session, with its output appended to ``log``.

    It starts after ``record`` has returned. If ``record`` raises, it does not start.
    """
    hold_read, hold_write = os.pipe()
    try:
        pid = os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", _HOLD_SCRIPT, "sh", *argv],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, hold_read, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), _APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        process = Process(name, host, pid, start_ticks(pid) or 0, log)
        record(process)
        with suppress(BrokenPipeError):
            os.write(hold_write, b"go\n")
    finally:
        os.close(hold_read)
        os.close(hold_write)
    return process


def stop(processes: Iterable[Process], namespaces: Iterable[str], grace_s: float = 3.0) -> None:
    """End the processes and their children in ``namespaces``: SIGTERM, then SIGKILL.

    A child whose parent has ended is identified by its session, which is the recorded pid, and by
    its network namespace. Raises :class:`LabError` if a process does not end.
    """
    recorded = list(processes)
    inodes = {_inode(Path("/run/netns", namespace)) for namespace in namespaces} - {None}

    def remaining() -> list[int]:
        running = [process.pid for process in recorded if process.running]
        return running + _orphans({process.pid for process in recorded} - set(running), inodes)

    for signal_number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_WAIT_S)):
        for pid in remaining():
            with suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        if _wait_until(lambda: not remaining(), wait_s):
            break
    for process in recorded:  # children of this process would stay zombies
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
    if pids := remaining():
        raise LabError(f"processes {pids} did not end; look at them with ps, then try again")


def wait_listening(process: Process, port: int, limit_s: float) -> None:
    """Wait until a TCP port is open in the process's network namespace."""
    _wait_ready(process, f"port {port}", lambda: _listens(process.pid, port), limit_s)


def wait_logged(process: Process, text: str, limit_s: float) -> None:
    """Wait until the process's log has a text."""
    _wait_ready(process, text, lambda: text in process.log.read_text("utf-8", "replace"), limit_s)


def _wait_ready(process: Process, what: str, ready: Callable[[], bool], limit_s: float) -> None:
    in_time = _wait_until(lambda: not process.running or ready(), limit_s)
    if not in_time or not process.running:
        how = "it ended" if in_time else f"waited {limit_s:g} s"
        raise LabError(f"{process.name}: no {what} ({how}); last output: {process.last_line()}")


def _listens(pid: int, port: int) -> bool:
    lines: list[str] = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            text = Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii")
            lines += text.splitlines()[1:]
    rows = (line.split() for line in lines)
    return any(row[3] == _TCP_LISTEN and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def _orphans(sessions: set[int], inodes: set[int | None]) -> list[int]:
    if not sessions or not inodes:
        return []
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [
        pid
        for pid in pids
        if (stat := _stat(pid))
        and int(stat[3]) in sessions
        and _inode(Path(f"/proc/{pid}/ns/net")) in inodes
    ]


def _inode(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_ino
    return None


def _stat(pid: int) -> list[str] | None:
    """The fields of ``/proc/<pid>/stat`` after the command's name, which may contain anything; None
    if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields


def _wait_until(done: Callable[[], bool], limit_s: float) -> bool:
    deadline_s = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
