"""The temperature of the processor."""

from pathlib import Path

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.collectors.collector import AbsentError, TransientError, register

# Names of the processor's sensor (driver or thermal zone), in order of preference.
HWMON = ("cpu_thermal", "coretemp", "k10temp", "zenpower", "soc_thermal", "cpu0_thermal")
ZONES = ("cpu-thermal", "cpu_thermal", "soc-thermal", "soc_thermal", "x86_pkg_temp", "cpu0-thermal")
CREDIBLE_CELSIUS = range(-60, 151)


@register("temperature")
class TemperatureCollector:
    """Reads hwmon, or else a thermal zone, below `sys_root`."""

    def __init__(self, sys_root: Path) -> None:
        self._class = sys_root / "class"
        self._sensors: list[Path] = []

    def collect(self) -> pb.Report:
        """The hottest sensor of the processor. Raises AbsentError, TransientError, OSError."""
        self._sensors = self._sensors or find(self._class)
        if not self._sensors:
            raise AbsentError("no temperature sensor of the processor")
        try:
            celsius = hottest([path.read_text(encoding="ascii") for path in self._sensors])
        except FileNotFoundError:
            self._sensors = []  # the driver was reloaded: search again next time
            raise
        return pb.Report(temperature=pb.Temperature(cpu_celsius=celsius))


def find(sys_class: Path) -> list[Path]:
    """The files of the preferred sensor among those present."""
    for wanted, pattern, inputs in (
        (HWMON, "hwmon/*/name", "temp*_input"),
        (ZONES, "thermal/thermal_zone*/type", "temp"),
    ):
        present = {}
        for path in sorted(sys_class.glob(pattern)):
            if files := sorted(path.parent.glob(inputs)):
                present[path.read_text(encoding="ascii").strip()] = files
        for name in wanted:
            if name in present:
                return present[name]
    return []


def hottest(texts: list[str]) -> float:
    """The highest of readings in millidegrees. Raises TransientError if none is credible."""
    degrees = [int(text) / 1000 for text in texts]
    credible = [celsius for celsius in degrees if round(celsius) in CREDIBLE_CELSIUS]
    if not credible:
        raise TransientError(f"the sensor reads {degrees}")
    return max(credible)
