"""How long threads waited for a processor: so long a test was held up by the host, not by the link.

A test takes some milliseconds, in which the kernel's counters of busy time hardly move, so its own
threads are looked at.
"""

from collections.abc import Iterable
from pathlib import Path

import psutil
from leadline_wire import codec

from leadline_agent import files

MOST_NS = 1 << 63


class ProcessorWait:
    """What threads waited for a processor since this was created, and what a hypervisor took."""

    def __init__(self, threads: Iterable[Path] = ()) -> None:
        """threads: their folders in /proc."""
        self._stolen_s = _stolen_s()
        self._before_us = {thread: _waited_us(thread) for thread in threads}
        self._waited_us: dict[Path, int] = {}

    @classmethod
    def of_this_thread(cls) -> "ProcessorWait":
        """Of the thread that calls this."""
        return cls([Path(psutil.PROCFS_PATH, "thread-self").resolve()])

    @classmethod
    def of_process(cls, pid: int) -> "ProcessorWait":
        """Of all threads of a process, also of those that it starts later: call `look` while they
        run."""
        return cls(_threads(pid))

    def look(self, pid: int) -> None:
        """Note what the threads of the process have waited by now; no effect once it has ended."""
        for thread in _threads(pid):
            waited_us = _waited_us(thread) - self._before_us.get(thread, 0)
            self._waited_us[thread] = max(waited_us, self._waited_us.get(thread, 0))

    def us(self) -> int:
        """Microseconds until now, or until the last `look` at a process; 0 where nobody counts."""
        waited_us = dict(self._waited_us)
        for thread, before_us in self._before_us.items():
            waited_us[thread] = max(_waited_us(thread) - before_us, waited_us.get(thread, 0))
        before_s, now_s = self._stolen_s, _stolen_s()
        # A reading that fails must not make all that was ever stolen a wait of now.
        stolen_s = 0.0 if before_s is None or now_s is None else max(0.0, now_s - before_s)
        return min(sum(waited_us.values()) + round(stolen_s * 1e6), codec.MOST_TEST_MS * 1000)


def _threads(pid: int) -> list[Path]:
    return files.entries(Path(psutil.PROCFS_PATH, str(pid), "task"))


def _waited_us(thread: Path) -> int:
    counters_ns = (files.text(thread / "schedstat") or "").split()
    return (files.number("".join(counters_ns[1:2]), 0, MOST_NS) or 0) // 1000


def _stolen_s() -> float | None:
    return getattr(files.cpu_times_s(), "steal", None)
