"""Disk I/O of whole disks, which includes that of their partitions and mapped devices."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.clock import boot_ms
from leadline_agent.collectors.collector import AbsentError, per_second, register


@register("disk")
class DiskCollector:
    """Reads /proc/diskstats through psutil; sysfs shows which entries are disks."""

    def __init__(self, sys_root: Path) -> None:
        self._block = sys_root / "block"
        self._before: Mapping[str, Any] = {}
        self._before_ms = 0

    def collect(self) -> pb.Report:
        """Rates since the previous reading. Raises AbsentError on a board without a disk."""
        now_ms = boot_ms()
        after = {
            name: raw
            for name, raw in psutil.disk_io_counters(perdisk=True, nowrap=False).items()
            if self._is_whole(name)
        }
        if not after:
            raise AbsentError("no disk")
        disk = rates(self._before, after, now_ms - self._before_ms)
        self._before, self._before_ms = after, now_ms
        return pb.Report(disk=disk)

    def _is_whole(self, name: str) -> bool:
        # A partition has no entry here; loop, ram, zram, dm and md have no device.
        return (self._block / name.replace("/", "!") / "device").exists()


def rates(before: Mapping[str, Any], after: Mapping[str, Any], elapsed_ms: int) -> pb.Disk:
    """The sum over the disks in both; unknown if there is none, or if a counter was reset.

    before, after: psutil's counters by disk.
    """
    disks = before.keys() & after.keys()

    def total(counter: str) -> float | None:
        rates = [
            per_second(getattr(before[disk], counter), getattr(after[disk], counter), elapsed_ms)
            for disk in disks
        ]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known and len(known) == len(rates) else None

    return pb.Disk(read_bytes_per_s=total("read_bytes"), written_bytes_per_s=total("write_bytes"))
