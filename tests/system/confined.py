"""Other machines than this one, by mount namespaces: one without iperf3, one where we are nobody.
Nothing outside of the command is changed."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from leadline_agent.probes.iperf3 import LIBRARY_FOLDERS
from leadline_agent.probes.iperf3_child import LIBRARY

NOBODY = 65534
_REPOSITORY = Path(__file__).parents[2]


def as_nobody(argv: Sequence[str], room: Path) -> list[str]:
    """The command line that runs `argv` as nobody; it has to be started by root.

    room: an empty folder; it stays empty, as what is mounted there goes with the namespace.
    """
    python = (Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), _REPOSITORY)
    nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    return _elsewhere(_opening(python), [*nobody, *argv], room)


def without_iperf3(argv: Sequence[str], room: Path) -> list[str]:
    """The command line that runs `argv` where iperf3 is not installed; as `as_nobody`."""
    return _elsewhere(_hiding(_iperf3()), argv, room)


def _elsewhere(steps: Iterable[str], argv: Sequence[str], room: Path) -> list[str]:
    pieces = f"room={shlex.quote(str(room))}; mount -t tmpfs -o mode=755 tmpfs $room"
    script = "\n".join(["set -e", pieces, *steps, 'exec "$@"'])
    return ["unshare", "--mount", "sh", "-c", script, "sh", *argv]


def _iperf3() -> list[Path]:
    program = shutil.which("iperf3")
    libraries = [f for folder in LIBRARY_FOLDERS for f in Path("/").glob(f"{folder}{LIBRARY}*")]
    return [*([Path(program)] if program else []), *libraries]


def _hiding(files: Iterable[Path]) -> list[str]:
    """An overlay over each file's folder with a whiteout (a device 0:0) in the file's place."""
    steps = []
    for folder in sorted({file.parent.resolve() for file in files}):
        over = f"$room/hidden{shlex.quote(str(folder))}"
        names = [file.name for file in files if file.parent.resolve() == folder]
        steps.append(f"mkdir -p {over}")
        steps += [f"mknod {over}/{shlex.quote(name)} c 0 0" for name in sorted(set(names))]
        steps.append(f"mount -t overlay overlay -o lowerdir={over}:{folder} {folder}")
    return steps


def _opening(folders: Iterable[Path]) -> list[str]:
    """Where a home that is closed to others is on the way to these, an open one instead, which
    holds nothing but them."""
    folders = list(folders)
    homes = sorted({home for folder in folders if (home := _closed(folder))})
    steps = []
    for number, folder in enumerate(folders):
        if _closed(folder):
            stash = f"$room/{number}"
            steps.append(f"mkdir {stash}; mount --rbind {shlex.quote(str(folder))} {stash}")
    steps += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(home))}" for home in homes]
    for number, folder in enumerate(folders):
        if _closed(folder):
            target = shlex.quote(str(folder))
            steps.append(f"mkdir -p {target}; mount --rbind $room/{number} {target}")
    return steps


def _closed(folder: Path) -> Path | None:
    for parent in reversed([folder, *folder.parents]):
        if not parent.stat().st_mode & stat.S_IXOTH:
            return parent
    return None


def give_to_nobody(folder: Path) -> None:
    """Let a folder belong to the one as whom the command runs."""
    os.chown(folder, NOBODY, NOBODY)
