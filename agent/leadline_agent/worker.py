"""A supervised thread: it restarts after a failure, with exponential back-off.

A failure is logged and appears in the next report. The watchdog asks `unhealthy_reason`: a thread
is unhealthy when it exceeds its own time limit or fails again and again, not after one failure.
"""

import logging
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)
FIRST_BACK_OFF_S, MAX_BACK_OFF_S = 1.0, 60.0
MAX_FAILURES = 5  # in a row; more are unhealthy


class Worker:
    """Runs `run` in a thread until it returns; `run` must return after `stop`.

    `run` calls `begin` with a time limit before each piece of work, and `done` after it.
    """

    def __init__(
        self, name: str, run: Callable[[], None], first_back_off_s: float | None = None
    ) -> None:
        """The thread does not run before `start`."""
        self.name = name
        self._run = run
        self._first_back_off_s = FIRST_BACK_OFF_S if first_back_off_s is None else first_back_off_s
        self._failures = 0  # in a row
        self._has_failed = False  # since the last `take_failed`
        self._due_s = float("inf")  # `done` must come before this, on the monotonic clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def begin(self, limit_s: float) -> None:
        """Called by `run`: work begins that must end within `limit_s`."""
        self._due_s = time.monotonic() + limit_s

    def done(self) -> None:
        """Called by `run`: the work succeeded."""
        self._due_s = float("inf")
        self._failures = 0

    def take_failed(self) -> bool:
        """Whether `run` failed since the last call."""
        has_failed, self._has_failed = self._has_failed, False
        return has_failed

    def unhealthy_reason(self, now_s: float) -> str:
        """Why the thread is unhealthy, in a few words; "" if it is healthy. `now_s`: monotonic."""
        if now_s > self._due_s:
            return f"{self.name} is late by {now_s - self._due_s:.0f} s"
        if self._failures > MAX_FAILURES:
            return f"{self.name} failed {self._failures} times in a row"
        if not (self._stopped.is_set() or self._thread.is_alive()):
            return f"{self.name} has ended"
        return ""

    def stop(self, timeout_s: float) -> None:
        """Prevent a restart, and wait for `run` to return."""
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
                    "%s: failed, restarts in %g s, please report it: %s: %s",
                    *(self.name, back_off_s, type(error).__name__, error),
                )
                self._stopped.wait(back_off_s)
            else:
                return
