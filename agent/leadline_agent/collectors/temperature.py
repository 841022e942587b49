"""The temperature of the processor."""

import re
from collections.abc import Sequence
from pathlib import Path

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import files
from leadline_agent.collectors.collector import AbsentError, TransientError, register

# The processor's sensor by the name of its driver or thermal zone, "_" for "-", in lower case, in
# order of preference. Many chips have a zone for each core or cluster.
NAMES = (
    re.compile(r"coretemp|k10temp|k8temp|zenpower|x86_pkg_temp"),
    re.compile(r".*cpu.*"),
    re.compile(r"soc_thermal|package_thermal|scpi_sensors|imx_thermal_zone"),
    re.compile(r"bcm2835_thermal|soc_dts\d+|mpu_thermal|main\d+_thermal|(core_)?cluster.*"),
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
    present: dict[int, list[Path]] = {}
    for folder, name, inputs in (("hwmon", "name", "temp*_input"), ("thermal", "type", "temp")):
        for sensor in files.entries(sys_class / folder):
            said = (files.text(sensor / name) or "").lower().replace("-", "_")
            rank = next((at for at, known in enumerate(NAMES) if known.fullmatch(said)), None)
            is_one = folder == "hwmon" or sensor.name.startswith("thermal_zone")
            if rank is not None and is_one:
                found = [each for each in files.entries(sensor) if each.match(inputs)]
                present.setdefault(rank, []).extend(found)
    return [present[rank] for rank in sorted(present) if present[rank]]


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
