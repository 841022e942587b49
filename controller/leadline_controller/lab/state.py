"""What a running lab is made of, in a file, so that any later process can inspect and end it.

``/run/leadline-lab/<name>/state.json``, written atomically before each thing it speaks of exists.
The boot id is in it: after a reboot the recorded pids mean nothing.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leadline_controller.lab.errors import LabError
from leadline_controller.lab.processes import Process
from leadline_controller.lab.spec import LabSpec, lab_name, parse_spec

RUN_DIR = Path("/run/leadline-lab")


@dataclass(frozen=True)
class LabState:
    """The record of one lab; ``complete`` is false while (or if) building it was cut short."""

    spec: LabSpec
    complete: bool = False
    processes: tuple[Process, ...] = ()

    def with_process(self, process: Process) -> "LabState":
        """The same with a process more; one of the same name is replaced."""
        others = tuple(one for one in self.processes if one.name != process.name)
        return replace(self, processes=(*others, process))

    def process(self, name: str) -> Process | None:
        """The process recorded under a name."""
        return next((one for one in self.processes if one.name == name), None)


def directory(name: str) -> Path:
    """The folder of a lab's state and logs."""
    return RUN_DIR / lab_name(name)


@contextmanager
def locked() -> Iterator[None]:
    """Only one process at a time changes labs; the kernel frees the lock if that one dies."""
    try:
        RUN_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (RUN_DIR / ".lock").open("w")
    except OSError as error:
        raise LabError(f"{RUN_DIR}: {error.strerror}: labs belong to root; use sudo") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def names() -> list[str]:
    """Names of the labs that are on record here."""
    return sorted(path.parent.name for path in RUN_DIR.glob("*/state.json"))


def save(state: LabState) -> None:
    """Write the record so that a reader finds the old one or the new one, never half of one."""
    folder = directory(state.spec.name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / "state.json.new"
    fresh.write_text(json.dumps(_to_json(state), indent=1), encoding="utf-8")
    fresh.replace(folder / "state.json")


def load(name: str) -> LabState | None:
    """Read a lab's record; None when there is no such lab."""
    path = directory(name) / "state.json"
    try:
        return _from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except PermissionError:
        raise LabError(f"{path}: cannot be read: the lab belongs to root; use sudo") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, LabError) as error:
        raise LabError(f"{path}: is no record of a lab ({error}); remove it by hand") from None


def forget(name: str) -> None:
    """Remove the record and the logs."""
    shutil.rmtree(directory(name), ignore_errors=True)


def _to_json(state: LabState) -> dict[str, Any]:
    return {
        "boot_id": _boot_id(),
        "complete": state.complete,
        "spec": state.spec.to_mapping(),
        "processes": [
            {
                "name": one.name,
                "host": one.host,
                "pid": one.pid,
                "start_ticks": one.start_ticks,
                "log": str(one.log),
            }
            for one in state.processes
        ],
    }


def _from_json(given: dict[str, Any]) -> LabState:
    same_boot = given["boot_id"] == _boot_id()
    processes = tuple(Process(**{**one, "log": Path(one["log"])}) for one in given["processes"])
    return LabState(
        spec=parse_spec(given["spec"]),
        complete=bool(given["complete"]) and same_boot,
        processes=processes if same_boot else (),
    )


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
