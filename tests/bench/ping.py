"""Round trips over a veth pair by the agent, by iputils' ping and by ping3 alone, in turns.

As root. The machine is idle, as far as it can be, and then has two busy processes beside.
"""

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import ping3
from leadline_agent.probes.echo import ClockSetError, echo_ms, keep_stamping

from tests.support.namespaces import linked_namespace

TURNS, ECHOES, PAUSE_S = 10, 50, 0.01
BUSY_PROCESSES = 2


def agent(address: str) -> list[float]:
    """As the agent measures."""
    replies: list[float | None] = []
    for sequence in range(ECHOES):
        with suppress(ClockSetError):
            replies.append(echo_ms(address, sequence))
        time.sleep(PAUSE_S)
    return [reply for reply in replies if reply is not None]


def iputils(address: str) -> list[float]:
    """As ping prints them."""
    command = ["ping", "-n", "-c", str(ECHOES), "-i", str(PAUSE_S), address]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(each) for each in re.findall(r"time=([0-9.]+) ms", done.stdout)]


def ping3_alone(address: str) -> list[float]:
    """As ping3 returns them."""
    replies = []
    for sequence in range(ECHOES):
        replies.append(ping3.ping(address, timeout=1, seq=sequence, unit="ms"))
        time.sleep(PAUSE_S)
    return [reply for reply in replies if reply]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that never sleep, until the block ends."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    """Print the table."""
    ways: dict[str, Callable[[str], list[float]]] = {
        "the agent": agent,
        "ping": iputils,
        "ping3 alone": ping3_alone,
    }
    print(f"{TURNS * ECHOES} echoes over a veth pair, ms")
    print(f"{'':14}{'beside':>24}{'median':>9}{'p90':>9}{'p99':>9}{'most':>9}")
    for count, beside in (0, "nothing"), (BUSY_PROCESSES, f"{BUSY_PROCESSES} busy processes"):
        with linked_namespace() as other, keep_stamping(), busy(count):
            replies: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(TURNS):
                for name, way in ways.items():
                    replies[name] += way(other.address)
        for name, times_ms in replies.items():
            cuts = statistics.quantiles(times_ms, n=100)
            shown = (statistics.median(times_ms), cuts[89], cuts[98], max(times_ms))
            print(f"{name:14}{beside:>24}" + "".join(f"{each:9.4f}" for each in shown), flush=True)


if __name__ == "__main__":
    main()
