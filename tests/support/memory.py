"""The memory of a process under test: a limit as systemd sets it, and the peak."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_UNIT = Path(__file__).parents[2] / "systemd" / "leadline-controller.service"


def controller_limit_bytes(setting: str) -> int:
    """What the controller's unit says of its memory: MemoryMax or MemoryHigh."""
    found = re.search(rf"^{setting}=(\d+)([MG])$", _UNIT.read_text(), re.MULTILINE)
    assert found is not None, setting
    return int(found[1]) * {"M": 1 << 20, "G": 1 << 30}[found[2]]


@contextmanager
def limited_memory(limit_bytes: int) -> Iterator[None]:
    """What this process starts meanwhile may take so much memory at most, as under a unit's
    MemoryMax; the kernel kills it beyond that. Needs root."""
    first = (_CGROUPS / "memory").is_dir()
    parent = _CGROUPS / "memory" if first else _CGROUPS
    folder = parent / f"leadline-test-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    (folder / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit_bytes))
    line = re.search(r"^\d+:memory:(.*)$" if first else r"^0::(.*)$",
                     Path("/proc/self/cgroup").read_text(), re.MULTILINE)  # fmt: skip
    home = parent / (line[1].strip("/") if line else "")
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))


def peak_bytes(pid: int) -> int:
    """The most that was resident of a process since it was executed. (ru_maxrss is also what the
    process that started it had.)"""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
    assert peak is not None, status
    return int(peak[1]) * 1024
