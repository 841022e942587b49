"""What a run needs of the machine over time, and whether that stays flat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from tests.support.check import Check

MB = 1_000_000
# Freed memory that the allocator keeps, and tables that grow by doubling.
RSS_SHARE, RSS_BYTES = 0.05, 8 * MB
# Connections that are kept for the next request.
MORE_DESCRIPTORS, MORE_THREADS = 3, 1
# A third of the time may have more faults than another by chance, and each writes lines.
LOG_SHARE, LOG_BYTES = 0.5, 20_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The process at one time. Pods are counted since the begin, but pending ones now."""

    at_s: float  # since the begin
    rss_bytes: int
    descriptors: int
    threads: int
    database_bytes: int  # the file and its journal
    log_bytes: int  # written since the begin
    created: int
    bound: int
    gone: int
    pending: int
    restarts: int
    violations: int

    def __str__(self) -> str:
        return (
            f"{self.at_s / 3600:>7.3f}{self.rss_bytes / MB:>8.1f}{self.descriptors:>7}"
            f"{self.threads:>9}{self.database_bytes / 1024:>9.0f}{self.log_bytes / 1024:>9.0f}"
            f"{self.created:>10}{self.bound:>10}{self.gone:>10}{self.pending:>9}"
            f"{self.restarts:>10}{self.violations:>7}"
        )


HEAD = (
    f"{'hour':>7}{'RSS MB':>8}{'files':>7}{'threads':>9}{'db KiB':>9}{'log KiB':>9}"
    f"{'created':>10}{'bound':>10}{'gone':>10}{'pending':>9}{'restarts':>10}{'wrong':>7}"
)


def process_now(pid: int | None = None) -> tuple[int, int, int]:
    """A process' resident bytes, descriptors and threads; this one's for None."""
    process = psutil.Process(pid)
    with process.oneshot():
        return process.memory_info().rss, process.num_fds(), process.num_threads()


def database_bytes(path: Path) -> int:
    """The file and its write-ahead log."""
    files = [path, path.with_name(f"{path.name}-wal")]
    return sum(each.stat().st_size for each in files if each.exists())


def third(samples: Sequence[Sample], number: int) -> list[Sample]:
    """The samples of the first, second or last third of the time."""
    whole_s = samples[-1].at_s
    return [each for each in samples if number - 1 <= 3 * each.at_s / whole_s <= number]


def flat(samples: Sequence[Sample], most_database_bytes: int) -> Iterator[Check]:
    """The last third of the time needs what the second one needed; the first one fills what is
    bounded."""
    second, last = third(samples, 2), third(samples, 3)

    def medians(of: Callable[[Sample], int]) -> tuple[float, float]:
        before, after = (median(map(of, each)) for each in (second, last))
        return before, after

    before, after = medians(lambda each: each.rss_bytes)
    allowed = max(RSS_BYTES, RSS_SHARE * before)
    yield Check(
        "memory",
        f"in the last third at most {allowed / MB:.1f} MB above the second, by the medians",
        f"{before / MB:.1f} MB, then {after / MB:.1f} MB",
        after - before <= allowed,
    )
    for what, more, of in (
        ("descriptors", MORE_DESCRIPTORS, lambda each: each.descriptors),
        ("threads", MORE_THREADS, lambda each: each.threads),
    ):
        before, after = medians(of)
        yield Check(
            what,
            f"at most {more} more in the last third than in the second, by the medians",
            f"{before:g}, then {after:g}",
            after - before <= more,
        )
    most = max(each.database_bytes for each in samples)
    yield Check(
        "database",
        f"at most {most_database_bytes / 2**20:.0f} MiB, journal included",
        f"{most / 2**20:.1f} MiB at most",
        most <= most_database_bytes,
    )
    wrote = [each[-1].log_bytes - each[0].log_bytes for each in (second, last)]
    yield Check(
        "log",
        f"the last third writes at most {LOG_SHARE:.0%} more than the second",
        f"{wrote[0] / 1024:.0f} KiB, then {wrote[1] / 1024:.0f} KiB",
        wrote[1] <= wrote[0] * (1 + LOG_SHARE) + LOG_BYTES,
    )
