"""Collector `cpu`. Heat and low voltage slow a board down, so they are notes."""

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.telemetry.collectors.decoder import BoardReading, decodes

# Column -> field of the report.
_VALUES = {"cpu_percent": "busy_percent", "load_1m": "load_1m", "frequency_mhz": "frequency_mhz"}


@decodes(*_VALUES)
def decode_cpu(report: pb.Report, reading: BoardReading) -> None:
    """Busy share of all cores, per cent; load average of a minute; mean frequency, MHz."""
    cpu = report.cpu
    for column, name in _VALUES.items():
        if cpu.HasField(name):
            reading.values[column] = getattr(cpu, name)
    for flag in ("under_voltage", "throttled"):
        if cpu.HasField(flag):
            reading.flags[flag] = getattr(cpu, flag)
    if cpu.under_voltage:
        reading.notes.append("under-voltage")
    if cpu.throttled:
        reading.notes.append("throttled")
