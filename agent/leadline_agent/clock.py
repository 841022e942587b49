"""The clock of every measurement, and the wall clock, which is only reported."""

import time


def boot_ms() -> int:
    """Milliseconds since boot, suspended time included. This clock is never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def unix_ms() -> int:
    """Milliseconds since 1970 by the board's wall clock, which may be wrong."""
    return time.time_ns() // 1_000_000
