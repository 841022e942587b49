"""Time that stands still until it is moved, so that tests and simulations need not wait."""

import asyncio
import heapq
from itertools import count

_TURNS = 50


class ManualClock:
    """A clock that moves only by `advance`. See core.ports.Clock."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_s(self) -> float:
        """Seconds on this clock."""
        return self._now_s

    async def sleep(self, duration_s: float) -> None:
        """Wait until the clock has moved that far."""
        woken = asyncio.get_running_loop().create_future()
        due_s = self._now_s + max(duration_s, 0.0)
        heapq.heappush(self._sleepers, (due_s, next(self._order), woken))
        await woken

    async def advance(self, duration_s: float) -> None:
        """Move the clock, wake whoever is due in the order of time, and let them run.

        Who wakes and sleeps again before the end is woken again, as on a clock that runs. Only
        what needs no real waiting gets done meanwhile.
        """
        end_s = self._now_s + duration_s
        await _let_others_run()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            due_s, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():  # else its sleeper was cancelled
                self._now_s = due_s
                woken.set_result(None)
                await _let_others_run()
        self._now_s = end_s


async def _let_others_run() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
