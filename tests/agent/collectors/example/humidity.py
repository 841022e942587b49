"""The relative humidity around the board: a collector as a contributor would write it."""

from pathlib import Path

from leadline_agent.collectors.collector import AbsentError, register
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.proto.humidity import set_humidity


@register("humidity")
class HumidityCollector:
    """Reads the first industrial I/O sensor below `sys_root`."""

    def __init__(self, sys_root: Path) -> None:
        self._sensor = sys_root / "bus/iio/devices/iio:device0/in_humidityrelative_input"

    def collect(self) -> pb.Report:
        """One reading. Raises AbsentError."""
        try:
            percent = int(self._sensor.read_text(encoding="ascii")) / 1000
        except FileNotFoundError:
            raise AbsentError("no humidity sensor") from None
        report = pb.Report()
        set_humidity(report, percent)
        return report
