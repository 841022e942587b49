"""Memory: what there is and what programs can still get."""

from pathlib import Path

import psutil

from leadline_agent.sample import Memory


class MemoryCollector:
    """Reads /proc/meminfo through psutil."""

    def __init__(self, sys_root: Path) -> None:
        """Memory needs nothing of sysfs."""

    def collect(self) -> Memory:
        """One reading. Raises OSError."""
        raw = psutil.virtual_memory()
        return memory(raw.total, raw.available)


def memory(total_bytes: int, available_bytes: int) -> Memory:
    """A reading; nobody can get more than there is, though a container may be told so."""
    return Memory(total_bytes, min(available_bytes, total_bytes))
