"""Collectors read this machine and nothing else: one file each, one line each in COLLECTORS.

A collector's name is the field of Report that its reading fills.
"""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from leadline_agent.collectors.cpu import CpuCollector
from leadline_agent.collectors.disk import DiskCollector
from leadline_agent.collectors.memory import MemoryCollector
from leadline_agent.collectors.network import NetworkCollector
from leadline_agent.collectors.temperature import TemperatureCollector
from leadline_agent.sample import AbsentError, CollectorOutcome, CollectorRun, Report, boot_ms

LOG = logging.getLogger(__name__)
SYS_ROOT = Path("/sys")
MAX_DURATION_US = (1 << 32) - 1  # 71 minutes; what the wire can hold


class Collector(Protocol):
    """Reads one aspect of the board.

    Raises AbsentError when the board has no such hardware. Any other exception means that
    it failed this time. Rates are since the call before; the first call has none.
    """

    def collect(self) -> object:
        """One reading."""


COLLECTORS: Mapping[str, Callable[[Path], Collector]] = {
    "cpu": CpuCollector,
    "memory": MemoryCollector,
    "disk": DiskCollector,
    "network": NetworkCollector,
    "temperature": TemperatureCollector,
}


class Collectors:
    """Runs each collector by itself, so that one that fails never stops the others."""

    def __init__(
        self,
        registry: Mapping[str, Callable[[Path], Collector]] = COLLECTORS,
        sys_root: Path = SYS_ROOT,
    ) -> None:
        self._collectors = {name: make(sys_root) for name, make in registry.items()}

    def collect(self) -> Report:
        """One report. Never raises; what could not be read is None and says so in its run."""
        now_ms = boot_ms()
        runs: list[CollectorRun] = []
        readings: dict[str, Any] = {}
        for name, collector in self._collectors.items():
            start_ns = time.perf_counter_ns()
            outcome = _run(name, collector, readings)
            duration_us = (time.perf_counter_ns() - start_ns) // 1000
            runs.append(CollectorRun(name, outcome, min(duration_us, MAX_DURATION_US)))
        return Report(measured_boot_ms=now_ms, collectors=tuple(runs), **readings)


def _run(name: str, collector: Collector, readings: dict[str, Any]) -> CollectorOutcome:
    try:
        readings[name] = collector.collect()
    except AbsentError:
        return CollectorOutcome.ABSENT
    except Exception as error:  # noqa: BLE001 - a reader that is broken must not stop the others
        LOG.warning("collector %s: failed, its values are unknown: %s", name, error)
        return CollectorOutcome.FAILED
    return CollectorOutcome.OK
