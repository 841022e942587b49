"""A systemd watchdog that is fed only while all loops of the controller run.

A running event loop is not enough, because one loop may hang while the others continue. So each
loop reports a heartbeat. An unreachable broker or API server does not stop the heartbeats, because
a restart of the controller would not help.
"""

import asyncio
import logging
from collections.abc import Callable

from leadline_wire.sd_notify import Notifier

log = logging.getLogger(__name__)

# The slowest loop takes 7 s between heartbeats: two requests to the API server, 3.5 s each.
LATE_S = 20.0


class Heartbeats:
    """The time of each loop's last heartbeat. A loop that has not begun is not expected."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._last_s: dict[str, float] = {}

    def part(self, name: str) -> Callable[[], None]:
        """Begin to expect heartbeats of this loop. Returns the function that reports one."""

        def heartbeat() -> None:
            self._last_s[name] = self._now_s()

        heartbeat()
        return heartbeat

    def late(self) -> list[str]:
        """The loops without a heartbeat for LATE_S."""
        before_s = self._now_s() - LATE_S
        return sorted(name for name, last_s in self._last_s.items() if last_s < before_s)


async def feed(notifier: Notifier, heartbeats: Heartbeats) -> None:
    """Feed the watchdog, if there is one, while no loop is late, until cancelled."""
    logged: list[str] = []
    while notifier.watchdog_s:
        late = heartbeats.late()
        if not late:
            notifier.send("WATCHDOG=1")
        elif late != logged:
            log.error("stuck for %g s: %s; the watchdog is not fed", LATE_S, ", ".join(late))
        logged = late
        await asyncio.sleep(notifier.watchdog_s / 4)
