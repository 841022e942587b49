"""The disk collector on a /proc/diskstats that is text."""

from pathlib import Path

import psutil
import pytest
from leadline_agent.collectors.collector import AbsentError
from leadline_agent.collectors.disk import DiskCollector, rates
from leadline_wire.v1 import telemetry_pb2 as pb

# A Pi's card with two partitions, its boot area, a loop, swap in memory and a mapped device.
DISKSTATS = """\
   7       0 loop0 10 0 90 0 10 0 90 0 0 0 0
 179       0 mmcblk0 5000 10 {read} 900 3000 20 {written} 800 0 700 600
 179       1 mmcblk0p1 40 10 6000 90 2 0 10 8 0 7 6
 179       2 mmcblk0p2 4000 0 74000 800 2900 20 39000 700 0 600 500
 253       0 dm-0 4000 0 74000 800 2900 20 39000 700 0 600 500
 254       0 zram0 100 0 800 8 100 0 800 7 0 6 5
"""


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    for name in ("loop0", "zram0", "dm-0"):
        (tmp_path / "sys/block" / name).mkdir(parents=True)
    (tmp_path / "sys/block/mmcblk0/device").mkdir(parents=True)
    return tmp_path


def diskstats(board: Path, read: int, written: int) -> None:
    (board / "diskstats").write_text(DISKSTATS.format(read=read, written=written))


def test_only_whole_disks_count_and_sectors_are_512_bytes(
    board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_ms = iter((1_000, 3_000))
    monkeypatch.setattr("leadline_agent.collectors.disk.boot_ms", lambda: next(clock_ms))
    collector = DiskCollector(board / "sys")
    diskstats(board, read=80_000, written=40_000)
    assert collector.collect() == pb.Report(disk=pb.Disk())
    diskstats(board, read=80_200, written=40_100)
    assert collector.collect().disk == pb.Disk(
        read_bytes_per_s=200 * 512 / 2, written_bytes_per_s=100 * 512 / 2
    )


@pytest.mark.parametrize("text", ["   7       0 loop0 10 0 90 0 10 0 90 0 0 0 0\n", "", None])
def test_a_board_without_a_disk_is_absent_and_not_idle(board: Path, text: str | None) -> None:
    """Such as one that booted from the network, whose kernel has no disk to count, or a sandbox."""
    if text is not None:
        (board / "diskstats").write_text(text)
    with pytest.raises(AbsentError):
        DiskCollector(board / "sys").collect()


@pytest.mark.parametrize("itself", [0, 100])
def test_an_nvme_disk_counts_once_whether_the_kernel_counts_its_path_or_both(
    board: Path, monkeypatch: pytest.MonkeyPatch, itself: int
) -> None:
    clock_ms = iter((1_000, 2_000))
    monkeypatch.setattr("leadline_agent.collectors.disk.boot_ms", lambda: next(clock_ms))
    collector = DiskCollector(board / "sys")
    for name in ("nvme0n1", "nvme0c33n1"):
        (board / "sys/block" / name / "device").mkdir(parents=True)
    for times in (1, 3):
        counted = {"259 13 nvme0n1": itself * times, "0 0 nvme0c33n1": 100 * times}
        lines = (f"{name} 1 0 {n} 1 1 0 {n} 1 0 1 1\n" for name, n in counted.items())
        (board / "diskstats").write_text("".join(lines))
        disk = collector.collect().disk
    assert disk == pb.Disk(read_bytes_per_s=200 * 512, written_bytes_per_s=200 * 512)


def test_a_new_disk_counts_from_its_second_sample() -> None:
    before = {"sda": (100, 100)}
    after = {"sda": (300, 200), "sdb": (9_999_999, 9_999_999)}
    assert rates(before, after, 1000) == pb.Disk(read_bytes_per_s=200.0, written_bytes_per_s=100.0)


def test_a_counter_that_was_reset_makes_the_sum_unknown() -> None:
    before = {"sda": (100, 100), "sdb": (500, 100)}
    after = {"sda": (200, 200), "sdb": (3, 300)}
    assert rates(before, after, 1000) == pb.Disk(written_bytes_per_s=300.0)
