"""A thread that never ends unnoticed: it is started again when it fails, and can be asked.

A failure is logged, counted for the next report, and followed by a pause that grows with each
failure in a row. The watchdog asks `stuck`: a thread that overstays the time that it set itself,
or that fails again and again, is not healthy; one that failed and went on is.
"""

import logging
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)
FIRST_BACK_OFF_S, MAX_BACK_OFF_S = 1.0, 60.0
MAX_FAILURES = 5  # in a row; more are not healthy


class Worker:
    """Runs `run` in a thread until it returns; `run` must return after `stop`.

    `run` brackets what it does: `begin` with the longest time that it may take, then `done`.
    What it does between `done` and `begin` is waiting.
    """

    def __init__(
        self, name: str, run: Callable[[], None], first_back_off_s: float | None = None
    ) -> None:
        """It does not run before `start`."""
        self.name = name
        self._run = run
        self._first_back_off_s = FIRST_BACK_OFF_S if first_back_off_s is None else first_back_off_s
        self._failures = 0  # in a row
        self._has_failed = False  # since the last `take_failed`
        self._due_s = float("inf")  # `done` must come before this, on the monotonic clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name=name, daemon=True)

    def start(self) -> None:
        """Begin to run."""
        self._thread.start()

    def begin(self, limit_s: float) -> None:
        """Called by `run`: something begins that ends within `limit_s`."""
        self._due_s = time.monotonic() + limit_s

    def done(self) -> None:
        """Called by `run`: it ended well, and waiting begins."""
        self._due_s = float("inf")
        self._failures = 0

    def take_failed(self) -> bool:
        """Whether it failed since the last call."""
        has_failed, self._has_failed = self._has_failed, False
        return has_failed

    def unhealthy_reason(self, now_s: float) -> str:
        """Why it is not healthy, in a few words; "" if it is. `now_s`: the monotonic clock."""
        if now_s > self._due_s:
            return f"{self.name} is late by {now_s - self._due_s:.0f} s"
        if self._failures > MAX_FAILURES:
            return f"{self.name} failed {self._failures} times in a row"
        if not (self._stopped.is_set() or self._thread.is_alive()):
            return f"{self.name} has ended"
        return ""

    def stop(self, timeout_s: float) -> None:
        """Do not run again, and wait for it to end."""
        self._stopped.set()
        self._thread.join(timeout_s)

    def _supervise(self) -> None:
        while not self._stopped.is_set():
            try:
                self._run()
            except Exception as error:  # noqa: BLE001 - a thread that fails must not end unnoticed
                self._due_s = float("inf")
                self._has_failed = True
                self._failures += 1
                back_off_s = self._first_back_off_s * 2 ** min(self._failures - 1, 10)
                back_off_s = min(back_off_s, MAX_BACK_OFF_S)
                LOG.error(
                    "%s: failed and begins again in %g s, please report it: %s: %s",
                    *(self.name, back_off_s, type(error).__name__, error),
                )
                self._stopped.wait(back_off_s)
            else:
                return
