"""The cgroups of a lab's boards, versions 1 and 2: all processes of a board are in its own.

A container outlives the containerd that started it and has namespaces of its own, but it can't
leave its cgroup, so this is how nothing is missed when a lab ends.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from leadline_lab.errors import LabError
from leadline_lab.spec import lab_name

_ROOT = Path("/sys/fs/cgroup")
_END_S = 10.0
_POLL_S = 0.02


def name(lab: str, board: str) -> str:
    """Name of a board's cgroup. A lab's name has no dash, so no other lab's begins like it."""
    return f"leadline-lab-{lab_name(lab)}-{board}"


def make(lab: str, board: str) -> Path:
    """Make a board's cgroup in every hierarchy. Returns the cgroup for the board's own daemons.

    Raises LabError where this machine refuses it.
    """
    daemons = []
    try:
        for hierarchy in _hierarchies():
            cgroup = hierarchy / name(lab, board)
            cgroup.mkdir()
            _enable(hierarchy, cgroup)
            daemons.append(cgroup / "daemons")
            daemons[-1].mkdir()
    except OSError as error:
        raise LabError(f"kubelets need cgroups, which are refused here: {error}") from None
    if not daemons:
        raise LabError(f"kubelets need cgroups: mount them at {_ROOT}")
    # One hierarchy is enough to find them. A new cpuset admits no process.
    return next(each for each in daemons if "cpuset" not in each.parts[-3])


def end(lab: str) -> None:
    """Kill all processes in the cgroups of a lab's boards and remove these; no error without any.

    Raises LabError if this takes longer than 10 s.
    """
    deadline = time.monotonic() + _END_S
    while cgroups := list(existing(lab)):
        pids = {pid for cgroup in cgroups for pid in _pids(cgroup)}
        if time.monotonic() > deadline:
            raise LabError(
                f"cgroup {cgroups[-1]}: processes {sorted(pids)} did not end; look at them with "
                "ps, then try again"
            )
        for pid in pids - {0}:  # one of another PID namespace; to kill 0 is to kill one's own group
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for cgroup in cgroups:
            with suppress(OSError):  # a process in it is still ending
                cgroup.rmdir()
        time.sleep(_POLL_S)


def existing(lab: str) -> Iterator[Path]:
    """The existing cgroups of a lab's boards, children before their parents."""
    for hierarchy in _hierarchies():
        for board in hierarchy.glob(name(lab, "*")):
            for folder, _, _ in os.walk(board, topdown=False):
                yield Path(folder)


def _pids(cgroup: Path) -> list[int]:
    with suppress(OSError):
        return [int(line) for line in (cgroup / "cgroup.procs").read_text("ascii").split()]
    return []


def _hierarchies() -> list[Path]:
    """The root itself with version 2; with version 1 one folder for each controller."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return sorted({path.parent.resolve() for path in _ROOT.glob("*/cgroup.procs")})


def _enable(hierarchy: Path, cgroup: Path) -> None:
    """Let kubelet limit its pods inside the new cgroup."""
    for setting in ("cpuset.cpus", "cpuset.mems"):  # version 1 leaves them empty
        if (hierarchy / setting).exists() and (cgroup / setting).exists():
            (cgroup / setting).write_text((hierarchy / setting).read_text("ascii"), "ascii")
    if (hierarchy / "cgroup.controllers").exists():
        for parent in (hierarchy, cgroup):
            for controller in (parent / "cgroup.controllers").read_text("ascii").split():
                with suppress(OSError):  # kubelet says which of them it misses
                    (parent / "cgroup.subtree_control").write_text(f"+{controller}", "ascii")
