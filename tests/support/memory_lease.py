"""A Lease in memory, for any number of candidates. It answers like the API server."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import count

from leadline_controller.framework.ports import ClusterError, LeaseChangedError, LeaseRecord


class MemoryLease:
    """See framework.ports.LeaseStore. Every write gets a new version."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self._writes = count(1)
        self._errors: deque[ClusterError] = deque()
        self._followers: list[asyncio.Queue[str]] = []

    def fail_next(self, error: ClusterError) -> None:
        """Let the next call raise `error` and do nothing; repeated calls queue up."""
        self._errors.append(error)

    def overwrite(self, holder: str, duration_s: int) -> None:
        """Overwrite the Lease regardless of its version."""
        self.record = self._write(holder, duration_s, self.record)

    def remove(self) -> None:
        """Delete the Lease."""
        self.record = None
        self._notify("")

    async def read(self) -> LeaseRecord | None:
        """The Lease, or None if it does not exist."""
        self._raise_error()
        return self.record

    async def write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        """Replace exactly `over`, or create the Lease if it is None. Raises LeaseChangedError."""
        self._raise_error()
        current = self.record.version if self.record else None
        if current != (over.version if over else None):
            raise LeaseChangedError("409: another wrote the Lease")
        self.record = self._write(holder, duration_s, over)
        return self.record

    async def follow(self) -> AsyncGenerator[str, None]:
        """Watch the holder: yields it now and after each write."""
        holders: asyncio.Queue[str] = asyncio.Queue()
        self._followers.append(holders)
        try:
            if self.record is not None:
                yield self.record.holder
            while True:
                yield await holders.get()
        finally:
            self._followers.remove(holders)

    def _notify(self, holder: str) -> None:
        for holders in self._followers:
            holders.put_nowait(holder)

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors.popleft()

    def _write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        self._notify(holder)
        version = str(next(self._writes))
        if over is None:
            return LeaseRecord(holder, duration_s, version, version, 0, version)
        kept = replace(over, duration_s=duration_s, renewed=version, version=version)
        if holder == over.holder:
            return kept
        taken = over.transitions + bool(holder)
        return replace(kept, holder=holder, acquired=version, transitions=taken)
