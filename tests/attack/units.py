"""A unit on a booted machine: held to its limits, and watched during an attack.

Where the kernel gives systemd the controllers `memory` and `pids`, systemd holds the unit to
MemoryMax and TasksMax. Where they belong to the old hierarchies (version 1), as on the machine
that these attacks were written on, `Limits` puts the unit's processes into groups there with the
same two numbers, and the kernel kills what exceeds them just the same. MemoryHigh has no
counterpart there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.rollout.machines import Machine
from tests.support.ports import wait_until

POLL_S = 0.05
GONE_S = 10.0
TRACEBACK = "Traceback (most recent call last)"
# The limit's property of a unit, its controller, its file in a group of version 1.
OLD = {
    "MemoryMax": ("memory", "memory.limit_in_bytes"),
    "TasksMax": ("pids", "pids.max"),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A unit before an attack: which start of it, how often systemd restarted it, where its
    journal ends."""

    invocation: str
    restarts: int
    cursor: str


class Unit:
    """A unit on a machine, such as `leadline-agent`."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name

    def show(self, name: str) -> str:
        """A property, as `systemctl show` has it."""
        return self.machine.run(f"systemctl show --property {name} --value {self.name}").stdout[:-1]

    def is_active(self) -> bool:
        """Whether it is started and ready."""
        return self.show("ActiveState") == "active"

    def mark(self) -> Mark:
        """Remember how it is now."""
        shown = self.machine.run("journalctl --lines 0 --show-cursor").stdout
        cursor = shown.partition("cursor: ")[2].strip()
        return Mark(self.show("InvocationID"), int(self.show("NRestarts")), cursor)

    def lines_since(self, mark: Mark) -> list[str]:
        """What its journal, systemd's words about it included, got since then."""
        journal = f"journalctl --unit {self.name} --output cat --after-cursor '{mark.cursor}'"
        return self.machine.run(journal).stdout.splitlines()

    def groups(self) -> list[Path]:
        """Its control groups in the unified hierarchy, as they are seen from outside."""
        top = mounted("cgroup2") / f"leadline-rollout-{os.getpid()}" / self.machine.name
        return [Path(at) for at, _, _ in os.walk(top) if at.endswith(f"/{self.name}.service")]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a unit used: its memory at most, and how many processes the kernel killed for it."""

    peak_bytes: int
    killed: int


class Limits:
    """A unit's limits, while the block of `enforced` lasts."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.memory_bytes = int(unit.show("MemoryMax"))
        self._old: Mapping[str, Path] = {}

    def usage(self) -> Usage:
        """Since `enforced` began, or since the unit was started where systemd enforces."""
        if not self._old:
            group = self.unit.groups()[0]
            events = (group / "memory.events").read_text().split()
            killed = int(events[events.index("oom_kill") + 1])
            return Usage(int((group / "memory.peak").read_text()), killed)
        group = self._old["MemoryMax"]
        control = (group / "memory.oom_control").read_text().split()
        killed = int(control[control.index("oom_kill") + 1])
        return Usage(int((group / "memory.max_usage_in_bytes").read_text()), killed)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """The unit, whose processes must start in this block, is held to its limits."""
        if "memory" in (mounted("cgroup2") / "cgroup.controllers").read_text().split():
            yield
            return
        self._old = {name: self._made(name) for name in OLD}
        over = threading.Event()
        thread = threading.Thread(target=self._gather, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for name, group in self._old.items():
                _removed(group, _home(OLD[name][0]))
            self._old = {}

    def _made(self, name: str) -> Path:
        controller, file = OLD[name]
        stem = f"leadline-attack-{os.getpid()}-{self.unit.machine.name}-{self.unit.name}"
        group = mounted("cgroup", controller) / stem
        group.mkdir()
        (group / file).write_text(self.unit.show(name))
        return group

    def _gather(self, over: threading.Event) -> None:
        """Put each process in as soon as it is there; its children are then there, too."""
        while not over.wait(POLL_S):
            for group in self.unit.groups():
                for pid in _pids(group):
                    for old in self._old.values():
                        with suppress(OSError):  # it has ended meanwhile
                            (old / "cgroup.procs").write_text(str(pid))


def mounted(kind: str, controller: str = "") -> Path:
    """Where this machine has a hierarchy of control groups. Raises LookupError."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, found, options = line.split()[:4]
        if found == kind and (not controller or controller in options.split(",")):
            return Path(place)
    raise LookupError(f"no {kind} {controller} is mounted here")


def _pids(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _removed(group: Path, home: Path) -> None:
    """Remove an old group; what is still in it goes to `home`."""

    def empty() -> bool:
        for pid in _pids(group):
            with suppress(OSError):
                (home / "cgroup.procs").write_text(str(pid))
        return not _pids(group)

    wait_until(empty, f"nothing is left in {group}", GONE_S)
    group.rmdir()


def _home(controller: str) -> Path:
    """The old group that this process is in, where its children would be without us."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return mounted("cgroup", controller) / path.lstrip("/")
    raise LookupError(f"this process is in no group of {controller}")
