"""Times that stay valid after a restart, on boards whose clock is wrong until the network sets it.

A moment is stored as seconds since the machine's boot. Within one boot this gives exact ages, also
after a restart of the controller or a jump of the wall clock. For earlier boots the wall-clock
time of the boot is stored, corrected as long as that boot lasted.
"""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# An earlier clock was never set: boards without a battery start in 1970, or where they stopped.
_EARLIEST_UNIX_S = 1_735_689_600.0  # 2025-01-01
_LATEST_UNIX_S = 1e11  # the year 5138


@dataclass(frozen=True, slots=True)
class Now:
    """The present time. boot: the id of the machine's boot. up_s: seconds since then, with those
    asleep. unix_s: the wall clock, None if it was never set."""

    boot: str
    up_s: float
    unix_s: float | None

    @property
    def started_unix_s(self) -> float | None:
        """When the machine booted, by the present wall clock."""
        return None if self.unix_s is None else self.unix_s - self.up_s


def now() -> Now:
    """Read the clocks."""
    unix_s = time.time()
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Now(_boot(), time.clock_gettime(clock), unix_s if _is_set(unix_s) else None)


def _is_set(unix_s: float) -> bool:
    return _EARLIEST_UNIX_S < unix_s < _LATEST_UNIX_S


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened: the machine's boot, and seconds since then."""

    boot: str
    up_s: float
    started_unix_s: float | None

    def age_s(self, now: Now) -> float:
        """Seconds since then: exact within one boot, else by the wall clocks of both boots, but at
        least as long as the present boot."""
        if self.boot == now.boot:
            return max(0.0, now.up_s - self.up_s)
        if self.started_unix_s is None or now.unix_s is None:
            return now.up_s
        return max(now.up_s, now.unix_s - self.started_unix_s - self.up_s)

    def unix_s(self, now: Now) -> float | None:
        """The wall-clock time, corrected if the clock was set later in the same boot."""
        started = now.started_unix_s if self.boot == now.boot else self.started_unix_s
        return None if started is None else started + self.up_s


@cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid4())  # not Linux: each process counts as a boot
