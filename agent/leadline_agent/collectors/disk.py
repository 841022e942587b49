"""Disk I/O of whole disks, which includes that of their partitions and mapped devices."""

import re
from collections.abc import Mapping
from pathlib import Path

import psutil
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import files
from leadline_agent.clock import boot_ms
from leadline_agent.collectors.collector import (
    AbsentError,
    TransientError,
    per_second,
    register,
)

SECTOR_BYTES = 512  # of the kernel's counters, whatever the disk has
MOST_SECTORS = (1 << 64) - 1
_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")  # one of the ways to a disk of several controllers
Counters = tuple[int, int]  # bytes read and written


@register("disk")
class DiskCollector:
    """Reads /proc/diskstats; sysfs shows which entries are disks."""

    def __init__(self, sys_root: Path) -> None:
        self._block = sys_root / "block"
        self._before: Mapping[str, Counters] = {}
        self._before_ms = 0

    def collect(self) -> pb.Report:
        """Rates since the previous reading. Raises AbsentError on a board without a disk, and
        TransientError if none can be read."""
        now_ms = boot_ms()
        path = Path(psutil.PROCFS_PATH, "diskstats")
        text = files.text(path)  # empty on a board that booted from the network
        found = parse(text or "")
        counters = {
            name: read
            for name, read in found.items()
            if self._is_whole(name) and not is_counted_elsewhere(name, found)
        }
        after = {name: read for name, read in counters.items() if read is not None}
        if not after and (counters or (text is None and files.exists(path))):
            raise TransientError("/proc/diskstats cannot be read")
        if not after:
            raise AbsentError("no disk")
        disk = rates(self._before, after, now_ms - self._before_ms)
        self._before, self._before_ms = after, now_ms
        return pb.Report(disk=disk)

    def _is_whole(self, name: str) -> bool:
        # A partition has no entry here; loop, ram, zram, dm and md have no device.
        return files.exists(self._block / name.replace("/", "!") / "device")


def parse(diskstats: str) -> dict[str, Counters | None]:
    """The counters of each disk and partition, None where they are no numbers."""
    found: dict[str, Counters | None] = {}
    for line in diskstats.splitlines():
        fields = line.split()
        if len(fields) >= 10:
            read, written = (files.number(fields[at], 0, MOST_SECTORS) for at in (5, 9))
            found[fields[2]] = None
            if read is not None and written is not None:
                found[fields[2]] = read * SECTOR_BYTES, written * SECTOR_BYTES
    return found


def is_counted_elsewhere(name: str, counters: Mapping[str, Counters | None]) -> bool:
    """Whether it is a path to an NVMe disk that counts itself; with older kernels only its paths
    do."""
    path = _NVME_PATH.fullmatch(name)
    return path is not None and any(counters.get("".join(path.groups())) or ())


def rates(
    before: Mapping[str, Counters], after: Mapping[str, Counters], elapsed_ms: int
) -> pb.Disk:
    """The sum over the disks in both; unknown if there is none, or if a counter was reset."""
    disks = before.keys() & after.keys()

    def total(at: int) -> float | None:
        rates = [per_second(before[disk][at], after[disk][at], elapsed_ms) for disk in disks]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known and len(known) == len(rates) else None

    return pb.Disk(read_bytes_per_s=total(0), written_bytes_per_s=total(1))
