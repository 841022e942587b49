"""Bytes that all requests together may hold."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """So many bytes; who finds no room waits, first come, first served."""

    def __init__(self, size_bytes: int) -> None:
        self._free_bytes = size_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, size_bytes: int) -> AsyncIterator[None]:
        """Wait for the room, and hold it for as long as the context lasts."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (size_bytes, turn)
        self._waiting.append(waiting)
        self._admit()
        try:
            await turn
            yield
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self._free_bytes += size_bytes
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free_bytes:
            size_bytes, turn = self._waiting.popleft()
            self._free_bytes -= size_bytes
            if not turn.done():
                turn.set_result(None)
