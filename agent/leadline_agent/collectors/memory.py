"""Memory: total and available."""

from pathlib import Path

import psutil
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.collectors.collector import register


@register("memory")
class MemoryCollector:
    """Reads /proc/meminfo through psutil."""

    def __init__(self, sys_root: Path) -> None:
        """Memory needs nothing of sysfs."""

    def collect(self) -> pb.Report:
        """One reading. Raises OSError."""
        raw = psutil.virtual_memory()
        # In a container the kernel may report more available memory than there is.
        available = min(raw.available, raw.total)
        return pb.Report(memory=pb.Memory(total_bytes=raw.total, available_bytes=available))
