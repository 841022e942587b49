"""Times that outlast a process, on boards whose clock is wrong until the network sets it.

A moment is kept as seconds since the machine started. Within one run of the machine that
gives exact ages, however the wall clock jumps, and over restarts of the controller too. For
earlier runs of the machine the start is kept by the wall clock, corrected for as long as that
run lasted.
"""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A clock before this was never set: boards without one start in 1970, or where they stopped.
_EARLIEST_UNIX_S = 1_735_689_600.0  # 2025-01-01
_LATEST_UNIX_S = 1e11  # and one after the year 5000 is as wrong


@dataclass(frozen=True, slots=True)
class Now:
    """boot: names the machine's present run. up_s: seconds since its start, asleep or awake.
    unix_s: the wall clock, None where it was plainly never set."""

    boot: str
    up_s: float
    unix_s: float | None

    @property
    def started_unix_s(self) -> float | None:
        """When this run of the machine began, as far as the wall clock is right now."""
        return None if self.unix_s is None else self.unix_s - self.up_s


def now() -> Now:
    """The moment it is."""
    unix_s = time.time()
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Now(_boot(), time.clock_gettime(clock), unix_s if _is_set(unix_s) else None)


def _is_set(unix_s: float) -> bool:
    return _EARLIEST_UNIX_S < unix_s < _LATEST_UNIX_S


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was: in which run of the machine, and how long after its start."""

    boot: str
    up_s: float
    started_unix_s: float | None

    def age_s(self, now: Now) -> float:
        """Seconds since then: exact in the same run of the machine, else by the wall clocks of
        both, but never less than this run has lasted."""
        if self.boot == now.boot:
            return max(0.0, now.up_s - self.up_s)
        if self.started_unix_s is None or now.unix_s is None:
            return now.up_s
        return max(now.up_s, now.unix_s - self.started_unix_s - self.up_s)

    def unix_s(self, now: Now) -> float | None:
        """When that was by the wall clock, corrected where it was set since."""
        started = now.started_unix_s if self.boot == now.boot else self.started_unix_s
        return None if started is None else started + self.up_s


@cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid4())  # another system: each run of the controller stands for itself
