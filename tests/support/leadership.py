"""A leadership that a test ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass
class Leads:
    """A leadership that a test ends, as a fence that closes."""

    live: bool = True
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def leads(self) -> bool:
        return self.live

    def left_s(self) -> float:
        return 10.0 if self.live else 0.0

    def holder(self) -> str:
        return "me" if self.live else ""

    async def wait(self) -> None:
        if not self.live:
            await self._ended.wait()
