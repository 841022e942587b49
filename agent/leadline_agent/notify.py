"""Notifies systemd: the protocol of sd_notify(3) without its library."""

import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """Sends states to systemd's notification socket; does nothing where there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._path = "\0" + path[1:] if path.startswith("@") else path
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(usec) / 1e6 if is_ours and usec.isdigit() else None

    def ready(self) -> None:
        """The agent is up, or has finished its reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """The agent reloads its settings; `ready` ends the reload."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The agent is shutting down."""
        self._send("STOPPING=1")

    def feed_watchdog(self) -> None:
        """Keep systemd's watchdog from restarting the agent."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._path:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)
            try:
                out.sendto(state.encode(), self._path)
            except OSError:
                return  # systemd is restarting or its socket is full; the next notification follows
