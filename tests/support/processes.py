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


def end(process: "subprocess.Popen[bytes] | subprocess.Popen[str]", grace_s: float = 20) -> None:
    """Ask a child of ours to end, and kill it if it does not in so long."""
    process.terminate()
    waited_for(process, grace_s)


def waited_for(process: "subprocess.Popen[bytes] | subprocess.Popen[str]", grace_s: float) -> None:
    """Wait for a child that was asked to end, and kill it if it does not in so long."""
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
