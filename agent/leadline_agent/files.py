"""Reads single values of /proc and /sys, each with its own guard.

A value that cannot be read (a driver answers EIO, EBUSY or EAGAIN) or understood (`<unknown>`,
nothing, a number that nothing can have) is None, so that it never takes others along.
"""

from pathlib import Path
from typing import Any

import psutil
from leadline_wire import codec

MOST_CPU_S = codec.MOST_CORES * codec.MOST_BOOT_MS / 1000  # since boot, of all cores


def text(path: Path) -> str | None:
    """The text of a file without the white space around it; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError, TypeError):
        # ValueError: a path that cannot be one. TypeError: Python's for EAGAIN, by which a driver
        # says that a sensor is off, or has measured nothing yet.
        return None


def proc(name: str) -> str:
    """The text of a file in /proc, "" if it cannot be read."""
    return text(Path(psutil.PROCFS_PATH, name)) or ""


def entries(folder: Path) -> list[Path]:
    """What is in a folder, sorted by name; nothing if it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except (OSError, ValueError):
        return []


def exists(path: Path) -> bool:
    """Whether it is there, as far as that can be told."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def number(read: str | None, least: int, most: int, base: int = 10) -> int | None:
    """The whole number that was read, None if it is none or outside of `least` to `most`."""
    try:
        value = int(read or "", base)
    except ValueError:
        return None
    return value if least <= value <= most else None


def decimal(read: str, most: float) -> float | None:
    """The decimal number that was read, None if it is none or outside of 0 to `most`."""
    try:
        value = float(read)
    except ValueError:
        return None
    return value if 0 <= value <= most else None


def cpu_times_s() -> Any | None:
    """psutil's CPU times, None if they cannot be read. In some containers of LXC the kernel's are
    replaced by fewer, or by some that no computer has reached."""
    try:
        times = psutil.cpu_times()
    except (OSError, ValueError, TypeError):  # TypeError: psutil found too few of them
        return None
    return times if all(0 <= each <= MOST_CPU_S for each in times) else None
