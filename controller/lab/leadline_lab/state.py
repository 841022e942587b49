"""The recorded state of a lab, with which any later process can inspect and end it.

``/run/leadline-lab/<name>/state.json`` is written atomically before a process or network in it
exists. It has the boot id, as the recorded pids are invalid after a reboot.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from leadline_lab.errors import LabError
from leadline_lab.processes import Process
from leadline_lab.spec import LabSpec, lab_name, parse_spec

RUN_DIR = Path("/run/leadline-lab")
# RUN_DIR is in memory on most machines; images and containers are not.
DATA_DIR = Path("/var/lib/leadline-lab")


@dataclass(frozen=True)
class LabState:
    """The record of a lab. ``complete`` is false until its build has ended."""

    spec: LabSpec
    complete: bool = False
    processes: tuple[Process, ...] = ()

    def with_process(self, process: Process) -> "LabState":
        """A copy with this process; it replaces one of the same name."""
        others = tuple(each for each in self.processes if each.name != process.name)
        return replace(self, processes=(*others, process))


def directory(name: str) -> Path:
    """The folder of a lab's state and logs."""
    return RUN_DIR / lab_name(name)


def data_directory(name: str) -> Path:
    """The folder of a lab's images and containers, which exists while something is in it."""
    return DATA_DIR / lab_name(name)


@contextmanager
def locked() -> Iterator[None]:
    """Hold the lock for changes of labs; the kernel releases it if this process dies."""
    try:
        RUN_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (RUN_DIR / ".lock").open("w")
    except OSError as error:
        raise LabError(f"{RUN_DIR}: {error.strerror}: labs belong to root; use sudo") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def save(state: LabState) -> None:
    """Replace the record atomically."""
    folder = directory(state.spec.name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = folder / "state.json.new"
    data = {
        "boot_id": _boot_id(),
        "complete": state.complete,
        "spec": state.spec.to_mapping(),
        "processes": [asdict(process) | {"log": str(process.log)} for process in state.processes],
    }
    temporary.write_text(json.dumps(data, indent=1), encoding="utf-8")
    temporary.replace(folder / "state.json")


def load(name: str) -> LabState | None:
    """Read a lab's record; None if there is no such lab."""
    path = directory(name) / "state.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["boot_id"] != _boot_id():
            data |= {"complete": False, "processes": []}
        processes = [Process(**{**each, "log": Path(each["log"])}) for each in data["processes"]]
        return LabState(parse_spec(data["spec"]), bool(data["complete"]), tuple(processes))
    except FileNotFoundError:
        return None
    except PermissionError:
        raise LabError(f"{path}: cannot be read: the lab belongs to root; use sudo") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, LabError) as error:
        raise LabError(f"{path}: is no record of a lab ({error}); remove it by hand") from None


def forget(name: str) -> None:
    """Remove the data, the record and the logs."""
    # Only labs with kubelets have data. What cannot be removed now, the next `up` tries again.
    shutil.rmtree(data_directory(name), ignore_errors=True)
    with suppress(OSError):
        DATA_DIR.rmdir()
    shutil.rmtree(directory(name), ignore_errors=True)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
