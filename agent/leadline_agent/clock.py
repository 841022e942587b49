"""The clock of every measurement."""

import time


def boot_ms() -> int:
    """Milliseconds since boot, suspended time included. This clock is never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
