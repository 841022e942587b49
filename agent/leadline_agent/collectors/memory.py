"""Memory: total and available."""

from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.collectors.collector import register


@dataclass(frozen=True, slots=True)
class Memory:
    """Available is what programs can get without swapping."""

    total_bytes: int | None = None
    available_bytes: int | None = None

    def encode(self, report: pb.Report) -> None:
        """Set the report's `memory`."""
        report.memory.CopyFrom(pb.Memory(**asdict(self)))


@register("memory")
class MemoryCollector:
    """Reads /proc/meminfo through psutil."""

    def __init__(self, sys_root: Path) -> None:
        """Memory needs nothing of sysfs."""

    def collect(self) -> Memory:
        """One reading. Raises OSError."""
        raw = psutil.virtual_memory()
        # In a container the kernel may report more available memory than there is.
        return Memory(raw.total, min(raw.available, raw.total))
