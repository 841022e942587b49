"""Times that stay valid after a restart, on boards whose clock is wrong until the network sets it.

A moment is stored as seconds since the machine's boot. Within one boot this gives exact ages, also
after a restart of the controller or a jump of the wall clock. For earlier boots the wall-clock
time of the boot is stored, corrected as long as that boot lasted.
"""

import time
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple
from uuid import uuid4

from msgspec import Meta

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# An earlier clock was never set: boards without a battery start in 1970, or where they stopped.
_EARLIEST_UNIX_S = 1_735_689_600.0  # 2025-01-01
_LATEST_UNIX_S = 1e11  # the year 5138


class Moment(NamedTuple):
    """When something happened; of a stored one the bounds are checked."""

    boot: Annotated[str, Meta(max_length=64)]  # the id of the machine's boot
    up_s: Annotated[float, Meta(ge=0, le=1e10)]  # seconds since then, with those asleep
    # When the machine booted; None if the wall clock was never set.
    started_unix_s: Annotated[float, Meta(ge=0, le=2e11)] | None

    def age_s(self, now: "Moment") -> float:
        """Seconds since then: exact within one boot, else by the wall clocks of both boots, but at
        least as long as the present boot."""
        if self.boot == now.boot:
            return max(0.0, now.up_s - self.up_s)
        if self.started_unix_s is None or now.started_unix_s is None:
            return now.up_s
        return max(now.up_s, now.started_unix_s + now.up_s - self.started_unix_s - self.up_s)

    def unix_s(self, now: "Moment") -> float | None:
        """The wall-clock time, corrected if the clock was set later in the same boot."""
        started = now.started_unix_s if self.boot == now.boot else self.started_unix_s
        return None if started is None else started + self.up_s


def now() -> Moment:
    """Read the clocks."""
    unix_s, up_s = time.time(), time.clock_gettime(_CLOCK)
    is_set = _EARLIEST_UNIX_S < unix_s < _LATEST_UNIX_S
    return Moment(_boot(), up_s, unix_s - up_s if is_set else None)


@cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid4())  # not Linux: each process counts as a boot
