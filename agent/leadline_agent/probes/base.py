"""What every probe is and receives.

A probe's thread restarts after a failure, with exponential back-off. A failure is logged and
appears in the next report. The watchdog asks `unhealthy_reason`: a thread is unhealthy when it
exceeds its own time limit or fails again and again, not after one failure.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import config
from leadline_agent.lease import Result

LOG = logging.getLogger(__name__)
FIRST_BACK_OFF_S, MAX_BACK_OFF_S = 1.0, 60.0
MAX_FAILURES = 5  # in a row; more are unhealthy
WatchHindrances = Callable[[], Callable[[], Sequence[pb.BandwidthReport.Hindrance]]]


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """This board's limits on leases, and callbacks to the rest of the agent.

    `own_address` may return "" (unknown). `broker_rtts_ms` returns the round trips to the broker
    since its last call, None for one without an answer. `report` takes a result. `watch_hindrances`
    begins to watch the board and the calling thread; what it returns says what has held them back
    since.
    """

    limits: config.Probe
    own_address: Callable[[], str]
    broker_rtts_ms: Callable[[], Sequence[float | None]]
    report: Callable[[Result], None]
    watch_hindrances: WatchHindrances


class Probe(ABC):
    """Loads the network under a lease, in a supervised thread that runs `_run` until it returns.

    `_run` must return after `stop`. It calls `begin` with a time limit before each piece of work,
    and `done` after it.
    """

    def __init__(self, name: str, capabilities: tuple[str, ...] = ()) -> None:
        """The thread does not run before `start`.

        capabilities: what it can measure on this board, for the birth message.
        """
        self.name, self.capabilities = name, capabilities
        self._failures = 0  # in a row
        self._has_failed = False  # since the last `take_failed`
        self._due_s = float("inf")  # `done` must come before this, on the monotonic clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name=name, daemon=True)

    @abstractmethod
    def start_lease(self, lease: Any) -> None:
        """Start the lease, or refuse it. Returns at once."""

    @abstractmethod
    def stop(self) -> None:
        """Stop within seconds."""

    @abstractmethod
    def _run(self) -> None:
        """The body of the thread."""

    def has_loaded_since(self, _since_s: float) -> bool:
        """Whether the network counters include its traffic since then (monotonic)."""
        return False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def begin(self, limit_s: float) -> None:
        """Called by `_run`: work begins that must end within `limit_s`."""
        self._due_s = time.monotonic() + limit_s

    def done(self) -> None:
        """Called by `_run`: the work succeeded."""
        self._due_s = float("inf")
        self._failures = 0

    def take_failed(self) -> bool:
        """Whether `_run` failed since the last call."""
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

    def _end(self, timeout_s: float) -> None:
        """Prevent a restart, and wait for `_run` to return."""
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
                back_off_s = FIRST_BACK_OFF_S * 2 ** min(self._failures - 1, 10)
                back_off_s = min(back_off_s, MAX_BACK_OFF_S)
                LOG.error(
                    "%s: failed, restarts in %g s, please report it: %s: %s",
                    *(self.name, back_off_s, type(error).__name__, error),
                )
                self._stopped.wait(back_off_s)
            else:
                return
