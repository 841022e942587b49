"""Disk I/O of the whole disks: what a partition or a mapped device does is in its disk's count."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.collectors.collector import AbsentError, per_second, register
from leadline_agent.sample import boot_ms


@dataclass(frozen=True, slots=True)
class Disk:
    """All whole disks together, since the last report."""

    read_bytes_per_s: float | None = None
    written_bytes_per_s: float | None = None

    def encode(self, report: pb.Report) -> None:
        """Set the report's `disk`."""
        report.disk.CopyFrom(pb.Disk(**asdict(self)))


class Counters(NamedTuple):
    """What a disk has done since boot."""

    read_bytes: int
    written_bytes: int


@register("disk")
class DiskCollector:
    """Reads /proc/diskstats through psutil; sysfs says which of them are disks."""

    def __init__(self, sys_root: Path) -> None:
        self._block = sys_root / "block"
        self._before: Mapping[str, Counters] = {}
        self._before_ms = 0

    def collect(self) -> Disk:
        """Rates since the reading before. Raises AbsentError on a board without a disk."""
        now_ms = boot_ms()
        after = {
            name: Counters(raw.read_bytes, raw.write_bytes)
            for name, raw in psutil.disk_io_counters(perdisk=True, nowrap=False).items()
            if self._is_whole(name)
        }
        if not after:
            raise AbsentError("no disk")
        reading = rates(self._before, after, now_ms - self._before_ms)
        self._before, self._before_ms = after, now_ms
        return reading

    def _is_whole(self, name: str) -> bool:
        # A partition has no entry here; loop, ram, zram, dm and md have no device behind them.
        return (self._block / name.replace("/", "!") / "device").exists()


def rates(before: Mapping[str, Counters], after: Mapping[str, Counters], elapsed_ms: int) -> Disk:
    """The sum over the disks that were there both times; unknown if there is none or one reset."""
    common = sorted(before.keys() & after.keys())
    return Disk(
        read_bytes_per_s=_sum(
            [per_second(before[n].read_bytes, after[n].read_bytes, elapsed_ms) for n in common]
        ),
        written_bytes_per_s=_sum(
            [
                per_second(before[n].written_bytes, after[n].written_bytes, elapsed_ms)
                for n in common
            ]
        ),
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
