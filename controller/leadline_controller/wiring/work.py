"""Work that runs beside a context, until one part of it fails or the context ends."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

Work = Coroutine[Any, Any, Any]


async def together(*work: Work) -> None:
    """Run all of these, until one of them fails or this is cancelled."""
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)


@asynccontextmanager
async def running(*work: Work) -> AsyncIterator["asyncio.Task[Any]"]:
    """Run `work` beside the context, which cancels it at its end and raises what it raised."""
    task = asyncio.create_task(work[0] if len(work) == 1 else together(*work))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()
