"""Memory: total and available."""

from pathlib import Path

from leadline_wire import codec
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import files
from leadline_agent.collectors.collector import TransientError, register


@register("memory")
class MemoryCollector:
    """Reads /proc/meminfo."""

    def __init__(self, sys_root: Path) -> None:
        """Memory needs nothing of sysfs."""

    def collect(self) -> pb.Report:
        """One reading. Raises TransientError if a value is missing."""
        memory = read_memory()
        if memory.HasField("total_bytes") and memory.HasField("available_bytes"):
            return pb.Report(memory=memory)
        why = "MemTotal or MemAvailable in /proc/meminfo cannot be read"
        raise TransientError(why, pb.Report(memory=memory))


def read_memory() -> pb.Memory:
    """What is known of it."""
    total_bytes = available_bytes = None
    for line in files.proc("meminfo").splitlines():
        name, _, size = line.partition(":")
        if name == "MemTotal":
            total_bytes = _bytes(size, least_kib=1)
        elif name == "MemAvailable":
            available_bytes = _bytes(size, least_kib=0)  # of a board that is out of memory
    if total_bytes is not None and available_bytes is not None:
        # In a container the kernel may report more available memory than there is.
        available_bytes = min(available_bytes, total_bytes)
    return pb.Memory(total_bytes=total_bytes, available_bytes=available_bytes)


def _bytes(size: str, least_kib: int) -> int | None:
    kib = files.number(size.strip().removesuffix("kB"), least_kib, codec.MOST_MEMORY_BYTES >> 10)
    return None if kib is None else kib * 1024
