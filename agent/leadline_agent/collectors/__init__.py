"""Collectors read this machine and nothing else. Probes, which load the network, are in probes/.

One file each: it registers the collector, reads, and sets its field of the report.
"""

import importlib
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from leadline_wire import codec
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.clock import boot_ms
from leadline_agent.collectors.collector import (
    COLLECTORS,
    AbsentError,
    Collector,
    CollectorFactory,
    TransientError,
)
from leadline_agent.text import one_line

__all__ = ["COLLECTORS", "SYS_ROOT", "AbsentError", "Collectors", "import_collectors"]

LOG = logging.getLogger(__name__)
SYS_ROOT = Path("/sys")
MAX_DURATION_US = (1 << 32) - 1  # 71 minutes; the most that the wire's field holds


def import_collectors() -> None:
    """Import every module of this package, so that each collector registers itself."""
    for folder in __path__:
        for file in sorted(Path(folder).glob("[!_]*.py")):
            importlib.import_module(f"{__name__}.{file.stem}")


import_collectors()


class Collectors:
    """Runs each collector by itself, so that one that fails never stops the others."""

    def __init__(
        self,
        registry: Mapping[str, CollectorFactory] = COLLECTORS,
        sys_root: Path = SYS_ROOT,
    ) -> None:
        self._collectors = {name: make(sys_root) for name, make in registry.items()}

    def collect(self) -> pb.Report:
        """One report. Never raises; each collector has a run, and one that fails says why. What it
        could read all the same is in the report, if every controller accepts that."""
        report = pb.Report(timing=pb.Timing(measured_boot_ms=boot_ms()))
        for name, collector in self._collectors.items():
            start_ns = time.perf_counter_ns()
            outcome, why = pb.CollectorRun.OK, ""
            try:
                report.MergeFrom(_read(collector))
            except AbsentError:
                outcome = pb.CollectorRun.ABSENT
            except Exception as error:  # noqa: BLE001 - a collector's fault must not stop the others
                outcome, why = pb.CollectorRun.FAILED, one_line(str(error) or type(error).__name__)
                LOG.warning("collector %s: failed, its values are unknown: %s", name, why)
                if isinstance(error, TransientError):
                    report.MergeFrom(error.report)
            duration_us = min((time.perf_counter_ns() - start_ns) // 1000, MAX_DURATION_US)
            report.collectors.add(name=name, outcome=outcome, duration_us=duration_us, why=why)
        return report

    def read_network(self) -> Sequence[pb.NetworkInterface]:
        """The network's part of a report, nothing if it cannot be read. Its rates begin anew."""
        try:
            return tuple(self._collectors["network"].collect().network)
        except Exception:  # noqa: BLE001 - the next report says that it fails
            return ()


def _read(collector: Collector) -> pb.Report:
    """What it reads. Raises codec.MessageError for a value that would have the controller refuse
    the whole report."""
    report = collector.collect()
    codec.check_report(report)
    return report
