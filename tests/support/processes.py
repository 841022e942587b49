"""Start, watch and end processes for tests."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> Iterator[None]:
    """A child of ours that stands still, from before the block begins until it ends."""
    process.send_signal(signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        yield
    finally:
        process.send_signal(signal.SIGCONT)
