"""The memory collector on a /proc/meminfo that is text."""

from pathlib import Path

import psutil
import pytest
from leadline_agent.collectors.memory import MemoryCollector
from leadline_wire.v1 import telemetry_pb2 as pb

MEMINFO = """\
MemTotal:        3884380 kB
MemFree:          210036 kB
MemAvailable:    2964400 kB
Buffers:           85000 kB
Cached:          2600000 kB
Shmem:             12000 kB
Active:          1200000 kB
Inactive:        1900000 kB
Slab:              90000 kB
SReclaimable:      60000 kB
"""


def test_total_and_available_are_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert MemoryCollector(tmp_path).collect().memory == pb.Memory(
        total_bytes=3884380 * 1024, available_bytes=2964400 * 1024
    )


@pytest.mark.parametrize(
    ("said_kib", "expected_bytes"),
    [
        pytest.param(150, 102_400, id="never more than the total"),
        pytest.param(0, 0, id="none is left, as the kernel says below its reserves"),
    ],
)
def test_what_is_available_of_the_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said_kib: int, expected_bytes: int
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 100 kB\nMemAvailable: {said_kib} kB\n")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert MemoryCollector(tmp_path).collect().memory == pb.Memory(
        total_bytes=102_400, available_bytes=expected_bytes
    )
