"""CPU: busy share, load, cores, frequency, throttling and under-voltage.

A Pi reports the last two in its firmware's flags, or (voltage only) in the hwmon driver rpi_volt.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.collectors.collector import register

# `get_throttled` of the Raspberry Pi firmware; the higher bits are the history since boot.
UNDER_VOLTAGE = 0b0001
CAPPED_THROTTLED_OR_HOT = 0b1110
CPU_BOUND_PERCENT = 90.0
# Of all cores: the kernel counts in steps of 10 ms, so the share of less is noise.
LEAST_CPU_S = 0.2
Hindrance = pb.BandwidthReport.Hindrance


@register("cpu")
class CpuCollector:
    """Reads /proc through psutil and sysfs below `sys_root`."""

    def __init__(self, sys_root: Path) -> None:
        self._flags = sys_root / "devices/platform/soc/soc:firmware/get_throttled"
        self._alarm = _voltage_alarm(sys_root / "class/hwmon")
        self._frequencies = sorted(
            (sys_root / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        )
        self._before: tuple[float, float] | None = None

    def collect(self) -> pb.Report:
        """The busy share is since the previous one. Raises OSError."""
        before, self._before = self._before, times(psutil.cpu_times())
        flags = _text(self._flags)
        alarm = _text(self._alarm) if self._alarm else None
        cpu = pb.Cpu(
            busy_percent=busy_percent(before, self._before),
            load_1m=os.getloadavg()[0],
            cores=psutil.cpu_count(),
            frequency_mhz=mean_mhz([_text(path) for path in self._frequencies]),
            throttled=throttled(flags),
            under_voltage=under_voltage(flags, alarm),
        )
        return pb.Report(cpu=cpu)


def watch_hindrances(sys_root: Path) -> Callable[[], list[Hindrance]]:
    """Begin to watch board and thread. The function returned says what has held them back since.

    It is called from the same thread, which is CPU-bound if it runs or waits for a processor nearly
    all the time, whatever the other cores do.
    """
    collector = CpuCollector(sys_root)
    first, start_s, start_thread_s = collector.collect().cpu, time.monotonic(), _thread_s()
    start = times(psutil.cpu_times())

    def hindrances() -> list[Hindrance]:
        thread_s, elapsed_s = _thread_s() - start_thread_s, time.monotonic() - start_s
        end = times(psutil.cpu_times())
        last = collector.collect().cpu
        is_long = sum(end) - sum(start) >= LEAST_CPU_S
        board_percent = (busy_percent(start, end) or 0.0) if is_long else 0.0
        busiest_percent = max(board_percent, 100 * thread_s / elapsed_s)
        held_back = {
            pb.BandwidthReport.CPU_BOUND: busiest_percent > CPU_BOUND_PERCENT,
            pb.BandwidthReport.THROTTLED: first.throttled or last.throttled,
            pb.BandwidthReport.UNDER_VOLTAGE: first.under_voltage or last.under_voltage,
        }
        return [hindrance for hindrance, holds in held_back.items() if holds]

    return hindrances


def _thread_s() -> float:
    """Seconds for which this thread ran or waited for a processor; 0 where nobody counts."""
    path = Path(psutil.PROCFS_PATH, "thread-self", "schedstat")
    counters_ns = (_text(path) or "0 0 0").split()
    return (int(counters_ns[0]) + int(counters_ns[1])) / 1e9


def times(raw: Any) -> tuple[float, float]:
    """(busy, idle) seconds since boot, of psutil's CPU times. `user` includes `guest`."""
    busy = raw.user + raw.nice + raw.system + raw.irq + raw.softirq + raw.steal
    return busy, raw.idle + raw.iowait


def busy_percent(before: tuple[float, float] | None, after: tuple[float, float]) -> float | None:
    """The busy share between two `times`, per cent; None when a counter decreased or none moved."""
    if before is None:
        return None
    busy, idle = after[0] - before[0], after[1] - before[1]
    if busy < 0 or idle < 0 or busy + idle <= 0:
        return None
    return 100 * busy / (busy + idle)


def mean_mhz(texts: list[str | None]) -> float | None:
    """The mean of sysfs frequencies in kHz; None where there are none."""
    frequencies_khz = [int(text) for text in texts if text]
    return sum(frequencies_khz) / len(frequencies_khz) / 1000 if frequencies_khz else None


def throttled(flags: str | None) -> bool | None:
    """Whether the firmware caps or throttles now; None where there is no such firmware."""
    return bool(int(flags, 16) & CAPPED_THROTTLED_OR_HOT) if flags else None


def under_voltage(flags: str | None, alarm: str | None) -> bool | None:
    """Whether the voltage is too low now, by the firmware's flags or by hwmon's alarm."""
    if flags:
        return bool(int(flags, 16) & UNDER_VOLTAGE)
    return alarm != "0" if alarm else None


def _voltage_alarm(hwmon: Path) -> Path | None:
    chips = (path.parent for path in hwmon.glob("*/name") if _text(path) == "rpi_volt")
    return next((chip / "in0_lcrit_alarm" for chip in chips), None)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
