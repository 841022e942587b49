"""sd_notify(3), and a systemd watchdog that is fed only while all loops of the controller run.

A running event loop is not enough, because one loop may hang while the others continue. So each
loop reports a heartbeat. An unreachable broker or API server does not stop the heartbeats, because
a restart of the controller would not help.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

# The slowest loop takes 7 s between heartbeats: two requests to the API server, 3.5 s each.
LATE_S = 20.0


class Notifier:
    """Sends states to the socket in NOTIFY_SOCKET. Does nothing if there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._path = "\0" + path[1:] if path.startswith("@") else path
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(usec) / 1e6 if is_ours and usec.isdigit() else None

    def send(self, state: str) -> None:
        """Send a state of sd_notify(3), as READY=1."""
        if not self._path:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)
            try:
                out.sendto(state.encode(), self._path)
            except OSError:
                return  # systemd restarts, or its socket is full; the next state gets there


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
