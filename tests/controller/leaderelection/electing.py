"""Electors at work on a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leadline_controller.leaderelection.elector import LeaderElector

from tests.support.manual_clock import ManualClock


@asynccontextmanager
async def running(
    clock: ManualClock, *electors: LeaderElector
) -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks = [asyncio.create_task(elector.run()) for elector in electors]
    try:
        await clock.advance(0)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
