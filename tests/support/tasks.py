"""Work beside a test, and a wait for what it does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """The work goes on for the time of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], object], timeout_s: float = 90.0) -> None:
    """Wait until something holds. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)
