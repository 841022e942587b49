"""Free ports and bounded waits, which every test of a real server needs."""

import socket
import time
from collections.abc import Callable


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on just now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def listens(host: str, port: int) -> bool:
    """Whether a process accepts TCP connections there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 90.0) -> None:
    """Wait until `condition` holds. Raises TimeoutError that says what did not happen."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {timeout_s:g} s in vain: {what}")
        time.sleep(0.02)
