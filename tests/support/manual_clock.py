"""A clock for tests and simulations that stands still until `advance`."""

import asyncio
import heapq
from itertools import count

# No task that never waits hangs a test, and one that waits for a thread has a moment.
_TURNS, _IDLE_TURNS = 50, 3


class ManualClock:
    """A clock that moves only by `advance`. See framework.ports.Clock."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_s(self) -> float:
        """The time, seconds."""
        return self._now_s

    async def sleep(self, duration_s: float) -> None:
        """Wait until the clock has moved by this time."""
        wake_up = asyncio.get_running_loop().create_future()
        due_s = self._now_s + max(duration_s, 0.0)
        heapq.heappush(self._sleepers, (due_s, next(self._order), wake_up))
        await wake_up

    async def advance(self, duration_s: float) -> None:
        """Move the clock, wake the sleepers that are due in order of time, and let them run.

        A sleeper that sleeps again within the time is woken again. Tasks that wait for anything
        but this clock make no progress.
        """
        end_s = self._now_s + duration_s
        await _run_other_tasks()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            due_s, _, wake_up = heapq.heappop(self._sleepers)
            if not wake_up.done():  # else its sleeper was cancelled
                self._now_s = due_s
                wake_up.set_result(None)
                await _run_other_tasks()
        self._now_s = end_s


async def _run_other_tasks() -> None:
    ready, idle = vars(asyncio.get_running_loop())["_ready"], 0
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        idle = 0 if ready else idle + 1
        if idle == _IDLE_TURNS:
            return
