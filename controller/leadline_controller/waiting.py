"""Waiting for something on a clock, with a limit."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from leadline_controller.framework.ports import Clock


async def within(clock: Clock, awaited: Awaitable[Any], limit_s: float) -> bool:
    """Wait for something, for `limit_s` seconds at most. Returns whether it is done; if not, it is
    cancelled. A future or task has its result or exception still."""
    waiting = asyncio.ensure_future(awaited)
    limit = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait((waiting, limit), return_when=asyncio.FIRST_COMPLETED)
        return waiting.done()
    finally:
        limit.cancel()
        waiting.cancel()
