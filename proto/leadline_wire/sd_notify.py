"""Notifies systemd: the protocol of sd_notify(3) without its library."""

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends states to systemd's notification socket; does nothing where there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._path = "\0" + path[1:] if path.startswith("@") else path
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(usec) / 1e6 if is_ours and usec.isdigit() else None

    def send(self, state: str) -> None:
        """Send a state of sd_notify(3), such as READY=1."""
        if not self._path:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)
            try:
                out.sendto(state.encode(), self._path)
            except OSError:
                return  # systemd is restarting or its socket is full; the next notification follows
