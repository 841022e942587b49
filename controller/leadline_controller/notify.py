"""What the controller tells systemd: sd_notify(3), and a watchdog that is fed only while the parts
of the event loop come round.

That the loop turns is not enough: one part may wait for ever while the others go on. So each part
that has to come round says so, whatever the broker and the API server do, for systemd can mend
neither by a restart.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

# No part takes so long: the slowest asks the API server twice, 3.5 seconds each.
LATE_S = 20.0


class Notifier:
    """Sends states to the socket that systemd named; says nothing where there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._path = "\0" + path[1:] if path.startswith("@") else path
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(usec) / 1e6 if is_ours and usec.isdigit() else None

    def ready(self) -> None:
        """The controller serves."""
        self._send("READY=1")

    def stopping(self) -> None:
        """The controller is about to end."""
        self._send("STOPPING=1")

    def progress(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._path:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)
            try:
                out.sendto(state.encode(), self._path)
            except OSError:
                return  # systemd is restarting, or its socket is full: it will ask again


class Heartbeats:
    """When each part last came round. A part that has not begun is not waited for."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._last_s: dict[str, float] = {}

    def part(self, name: str) -> Callable[[], None]:
        """What the part of this name calls each time that it comes round; it begins now."""

        def beat() -> None:
            self._last_s[name] = self._now_s()

        beat()
        return beat

    def late(self) -> list[str]:
        """The parts that have not come round for LATE_S."""
        before_s = self._now_s() - LATE_S
        return sorted(name for name, last_s in self._last_s.items() if last_s < before_s)


async def feed(notifier: Notifier, rounds: Heartbeats) -> None:
    """Feed the watchdog, if there is one, while no part is late, until cancelled."""
    said: list[str] = []
    while notifier.watchdog_s:
        late = rounds.late()
        if not late:
            notifier.progress()
        elif late != said:
            log.error("stuck for %g s: %s; the watchdog is not fed", LATE_S, ", ".join(late))
        said = late
        await asyncio.sleep(notifier.watchdog_s / 4)
