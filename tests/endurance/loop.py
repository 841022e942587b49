"""An event loop whose clock jumps to the next thing that is due, so that days pass in minutes.

What the controller gives to a thread pool runs in the loop, in no time of its clock. Its thread for
the database is a real one; before each jump the loop waits until `is_awaited` says that nobody
waits for it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

_POLL_S = 0.005


class _JumpingSelector(selectors.EpollSelector):
    """Never waits for a time: it moves the loop's clock on."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: SimulatedLoop | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.loop is None or (timeout is not None and timeout <= 0):
            return super().select(0)
        while self.loop.is_awaited():
            if found := super().select(_POLL_S):
                return found
        if found := super().select(0):
            return found
        if timeout is None:
            raise RuntimeError("nothing is due any more, so the simulated clock would stand still")
        self.loop.now_s += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """See the module. now_s: its time, seconds. is_awaited: whether somebody waits for a thread."""

    def __init__(self) -> None:
        selector = _JumpingSelector()
        self.now_s = 0.0
        self.is_awaited: Callable[[], bool] = lambda: False
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.now_s

    def run_in_executor(  # type: ignore[override]  # a future that is done is one, too
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # whoever waits gets it
            done.set_exception(error)
        return done
