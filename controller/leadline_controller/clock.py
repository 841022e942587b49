"""The real clock."""

import asyncio
import time


class SystemClock:
    """Core's Clock port on the machine's monotonic clock."""

    def now_s(self) -> float:
        """Seconds on CLOCK_MONOTONIC."""
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        """Wait that long."""
        await asyncio.sleep(duration_s)
