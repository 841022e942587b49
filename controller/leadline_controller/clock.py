"""The real clocks."""

import asyncio
import time

# Linux' monotonic clock stands still while the machine sleeps; this one does not.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Core's Clock port on the machine's monotonic clock."""

    def now_s(self) -> float:
        """Seconds on CLOCK_MONOTONIC."""
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        """Wait that long."""
        await asyncio.sleep(duration_s)


class LeaseClock(SystemClock):
    """The clock for what others count as well: it goes on while this machine sleeps."""

    def now_s(self) -> float:
        """Seconds on CLOCK_BOOTTIME, or on CLOCK_MONOTONIC where there is none."""
        return time.clock_gettime(_SINCE_BOOT)
