"""CPU: busy share, load, frequency, throttling and under-voltage.

A Pi reports the last two in its firmware's flags, or (voltage only) in the hwmon driver rpi_volt.
"""

import math
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from leadline_wire import codec
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import files
from leadline_agent.collectors.collector import TransientError, register

# `get_throttled` of the Raspberry Pi firmware; the higher bits are the history since boot.
UNDER_VOLTAGE = 0b0001
CAPPED_THROTTLED_OR_HOT = 0b1110
CPU_BOUND_PERCENT = 90.0
# Of all cores: the kernel counts in steps of 10 ms, so the share of less is noise.
LEAST_CPU_S = 0.2
MOST_KHZ = round(codec.MOST_MHZ) * 1000
MOST_NS = 1 << 63
Hindrance = pb.BandwidthReport.Hindrance


@register("cpu")
class CpuCollector:
    """Reads /proc, and sysfs below `sys_root`."""

    def __init__(self, sys_root: Path) -> None:
        self._supply = Supply(sys_root)
        self._cores = sys_root / "devices/system/cpu"
        self._before: tuple[float, float] | None = None

    def collect(self) -> pb.Report:
        """The busy share is since the previous one. Raises TransientError without CPU times."""
        raw = files.cpu_times_s()
        before, self._before = self._before, times(raw) if raw else None
        is_throttled, has_under_voltage = self._supply.read()
        cpu = pb.Cpu(
            busy_percent=busy_percent(before, self._before),
            load_1m=files.decimal(files.proc("loadavg").partition(" ")[0], codec.MOST_LOAD),
            frequency_mhz=mean_mhz(self._frequencies()),
            throttled=is_throttled,
            under_voltage=has_under_voltage,
        )
        if raw is None:
            raise TransientError("/proc/stat cannot be read", pb.Report(cpu=cpu))
        return pb.Report(cpu=cpu)

    def _frequencies(self) -> list[str | None]:
        """One for each core that is switched on."""
        return [
            files.text(core / "cpufreq/scaling_cur_freq")
            for core in files.entries(self._cores)
            if re.fullmatch("cpu[0-9]+", core.name) and files.text(core / "online") != "0"
        ]


class Supply:
    """What a Pi tells of heat and voltage."""

    def __init__(self, sys_root: Path) -> None:
        self._flags, self._alarm = _firmware_flags(sys_root), _voltage_alarm(sys_root)

    def read(self) -> tuple[bool | None, bool | None]:
        """Whether it is throttled, and whether the voltage is too low; None where unknown."""
        flags = files.text(self._flags) if self._flags else None
        alarm = files.text(self._alarm) if self._alarm else None
        return throttled(flags), under_voltage(flags, alarm)


def watch_hindrances(sys_root: Path) -> Callable[[], list[Hindrance]]:
    """Begin to watch board and thread. The function returned says what has held them back since.

    It is called from the same thread, which is CPU-bound if it runs or waits for a processor nearly
    all the time, whatever the other cores do.
    """
    supply = Supply(sys_root)
    first, start_s, start_thread_s = supply.read(), time.monotonic(), _thread_s()
    start = files.cpu_times_s()

    def hindrances() -> list[Hindrance]:
        thread_s, elapsed_s = _thread_s() - start_thread_s, time.monotonic() - start_s
        end = files.cpu_times_s()
        last = supply.read()
        busiest_percent = 100 * thread_s / max(elapsed_s, 1e-9)
        if start and end and sum(times(end)) - sum(times(start)) >= LEAST_CPU_S:
            busiest_percent = max(busiest_percent, busy_percent(times(start), times(end)) or 0.0)
        held_back = {
            pb.BandwidthReport.CPU_BOUND: busiest_percent > CPU_BOUND_PERCENT,
            pb.BandwidthReport.THROTTLED: first[0] or last[0],
            pb.BandwidthReport.UNDER_VOLTAGE: first[1] or last[1],
        }
        return [hindrance for hindrance, holds in held_back.items() if holds]

    return hindrances


def _thread_s() -> float:
    """Seconds for which this thread ran or waited for a processor; 0 where nobody counts."""
    counters_ns = [
        files.number(each, 0, MOST_NS) for each in files.proc("thread-self/schedstat").split()[:2]
    ]
    return sum(each or 0 for each in counters_ns) / 1e9


def times(raw: Any) -> tuple[float, float]:
    """(busy, idle) seconds since boot, of psutil's CPU times. `user` includes `guest`."""
    busy = raw.user + raw.nice + raw.system + raw.irq + raw.softirq
    # psutil leaves out what was missing when it was imported.
    return busy + getattr(raw, "steal", 0.0), raw.idle + raw.iowait


def busy_percent(
    before: tuple[float, float] | None, after: tuple[float, float] | None
) -> float | None:
    """The busy share between two `times`, per cent; None when a counter decreased or none moved."""
    if before is None or after is None:
        return None
    busy, idle = after[0] - before[0], after[1] - before[1]
    if busy < 0 or idle < 0 or not 0 < busy + idle < math.inf:
        return None
    return 100 * busy / (busy + idle)


def mean_mhz(texts: Sequence[str | None]) -> float | None:
    """The mean of sysfs frequencies in kHz; None where there are none, or one is unknown."""
    frequencies_khz = [files.number(text, 1, MOST_KHZ) for text in texts]
    known_khz = [each for each in frequencies_khz if each is not None]
    if not known_khz or len(known_khz) < len(frequencies_khz):
        return None
    return sum(known_khz) / len(known_khz) / 1000


def throttled(flags: str | None) -> bool | None:
    """Whether the firmware caps or throttles now; None where there is no such firmware."""
    bits = _bits(flags)
    return None if bits is None else bool(bits & CAPPED_THROTTLED_OR_HOT)


def under_voltage(flags: str | None, alarm: str | None) -> bool | None:
    """Whether the voltage is too low now, by the firmware's flags or by hwmon's alarm."""
    bits = _bits(flags)
    if bits is not None:
        return bool(bits & UNDER_VOLTAGE)
    is_low = files.number(alarm, 0, 1)
    return None if is_low is None else bool(is_low)


def _bits(flags: str | None) -> int | None:
    return files.number(flags, 0, (1 << 32) - 1, base=16)


def _firmware_flags(sys_root: Path) -> Path | None:
    """The firmware is below soc on a Pi 4, below soc@107c000000 on a Pi 5."""
    platform = sys_root / "devices/platform"
    chips = [each for each in files.entries(platform) if each.name.startswith("soc")]
    places = [each for chip in chips for each in files.entries(chip)]
    places += files.entries(sys_root / "bus/platform/drivers/raspberrypi-firmware")
    found = (each / "get_throttled" for each in places if each.name.endswith("firmware"))
    return next(filter(files.exists, found), None)


def _voltage_alarm(sys_root: Path) -> Path | None:
    chips = files.entries(sys_root / "class/hwmon")
    found = (chip for chip in chips if files.text(chip / "name") == "rpi_volt")
    return next((chip / "in0_lcrit_alarm" for chip in found), None)
