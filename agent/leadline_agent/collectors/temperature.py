"""The temperature of the processor."""

from collections.abc import Sequence
from pathlib import Path

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import files
from leadline_agent.collectors.collector import AbsentError, TransientError, register

# Names of the processor's sensor (driver or thermal zone), in order of preference.
HWMON = ("cpu_thermal", "coretemp", "k10temp", "zenpower", "soc_thermal", "cpu0_thermal")
ZONES = (
    *("cpu-thermal", "cpu_thermal", "soc-thermal", "soc_thermal", "x86_pkg_temp", "cpu0-thermal"),
    *("package-thermal", "CPU-therm"),  # RK3588, Jetson
)
LEAST_MILLIDEGREES, MOST_MILLIDEGREES = -60_000, 150_000  # credible


@register("temperature")
class TemperatureCollector:
    """Reads hwmon, or else a thermal zone, below `sys_root`."""

    def __init__(self, sys_root: Path) -> None:
        self._class = sys_root / "class"
        self._sensors: list[list[Path]] = []

    def collect(self) -> pb.Report:
        """The hottest of the preferred sensor's inputs that can be read. Raises AbsentError,
        TransientError."""
        celsius = hottest(self._sensors)
        if celsius is None:  # none yet, or the driver was reloaded
            self._sensors = find(self._class)
            if not self._sensors:
                raise AbsentError("no temperature sensor of the processor")
            celsius = hottest(self._sensors)
        if celsius is None:
            raise TransientError("no sensor of the processor reads a credible temperature")
        return pb.Report(temperature=pb.Temperature(cpu_celsius=celsius))


def find(sys_class: Path) -> list[list[Path]]:
    """The inputs of each sensor of the processor, the preferred one first."""
    present: dict[str, list[Path]] = {}
    for folder, name, inputs in (("hwmon", "name", "temp*_input"), ("thermal", "type", "temp")):
        for sensor in files.entries(sys_class / folder):
            is_one = folder == "hwmon" or sensor.name.startswith("thermal_zone")
            found = [each for each in files.entries(sensor) if each.match(inputs)] if is_one else []
            if found:
                present.setdefault(f"{folder} {files.text(sensor / name)}", []).extend(found)
    wanted = [*(f"hwmon {name}" for name in HWMON), *(f"thermal {name}" for name in ZONES)]
    return [present[name] for name in wanted if name in present]


def hottest(sensors: Sequence[Sequence[Path]]) -> float | None:
    """The highest credible reading of the first sensor that has one, degrees; None without."""
    for inputs in sensors:
        read = [
            files.number(files.text(path), LEAST_MILLIDEGREES, MOST_MILLIDEGREES) for path in inputs
        ]
        known = [each for each in read if each is not None]
        if known:
            return max(known) / 1000
    return None
