"""The processes of network namespaces on this machine."""

import re
from contextlib import suppress
from itertools import count
from os import getpid
from pathlib import Path

from leadline_lab import lab as labs
from leadline_lab import network, state
from leadline_lab.processes import Process, stop

_NUMBERS = count()
_FRESH = re.compile(r"t(\d+)x\d+b?")


def fresh_name() -> str:
    """A lab name that no other test run on this machine uses at the same time."""
    return f"t{getpid()}x{next(_NUMBERS)}"


def end_stale_labs() -> None:
    """End the labs of test runs that were killed, which could not do so themselves."""
    for folder in state.RUN_DIR.glob("t*x*"):
        if (run := _FRESH.fullmatch(folder.name)) and not Path("/proc", run[1]).exists():
            labs.down(folder.name)


def namespace_inodes(namespaces: list[str]) -> set[int]:
    """The inodes of named namespaces; /proc shows these also after the names are removed."""
    return {Path("/run/netns", one).stat().st_ino for one in namespaces}


def processes_inside(inodes: set[int]) -> set[int]:
    """The pids of the processes in these network namespaces."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "ns/net").stat().st_ino in inodes:
                    found.add(int(entry.name))
    return found


def recorded(lab_name: str) -> dict[str, Process]:
    """The recorded processes of a lab, by name."""
    lab_state = state.load(lab_name)
    assert lab_state is not None
    return {process.name: process for process in lab_state.processes}


def stop_processes(lab_name: str, *names: str) -> None:
    """End some processes of a lab, with their children."""
    processes = recorded(lab_name)
    stop([processes[name] for name in names], network.namespaces(lab_name))
