"""A Lease in memory, for any number of candidates; answers as the API server does."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import count

from leadline_controller.framework.ports import ClusterError, LeaseChangedError, LeaseRecord


class MemoryLease:
    """See core.ports.LeaseStore. Every write has a version of its own."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self._writes = count(1)
        self._errors: deque[ClusterError] = deque()
        self._followers: list[asyncio.Queue[str]] = []

    def fail_next(self, error: ClusterError) -> None:
        """Let the next call that has no such failure before it raise `error` and do nothing."""
        self._errors.append(error)

    def steal(self, holder: str, duration_s: int) -> None:
        """Write over whatever there is, as one who keeps to no rules."""
        self.record = self._written(holder, duration_s, self.record)

    def remove(self) -> None:
        """Delete the Lease."""
        self.record = None
        self._tell("")

    async def read(self) -> LeaseRecord | None:
        """The Lease; None when there is none yet."""
        self._fail()
        return self.record

    async def write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        """Replace exactly `over`, or create the Lease for None. Raises LeaseChangedError."""
        self._fail()
        there = self.record.version if self.record else None
        if there != (over.version if over else None):
            raise LeaseChangedError("409: another wrote the Lease")
        self.record = self._written(holder, duration_s, over)
        return self.record

    async def follow(self) -> AsyncGenerator[str, None]:
        """Who holds it, now and after each write."""
        holders: asyncio.Queue[str] = asyncio.Queue()
        self._followers.append(holders)
        try:
            if self.record is not None:
                yield self.record.holder
            while True:
                yield await holders.get()
        finally:
            self._followers.remove(holders)

    def _tell(self, holder: str) -> None:
        for holders in self._followers:
            holders.put_nowait(holder)

    def _fail(self) -> None:
        if self._errors:
            raise self._errors.popleft()

    def _written(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        self._tell(holder)
        version = str(next(self._writes))
        if over is None:
            return LeaseRecord(holder, duration_s, version, version, 0, version)
        kept = replace(over, duration_s=duration_s, renewed=version, version=version)
        if holder == over.holder:
            return kept
        taken = over.transitions + bool(holder)
        return replace(kept, holder=holder, acquired=version, transitions=taken)
