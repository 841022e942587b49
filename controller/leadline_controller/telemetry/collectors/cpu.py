"""Collector `cpu`. Heat and low voltage slow a board down, so they are notes."""

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.telemetry.collectors.decoder import BoardReading, decodes


@decodes("cpu_percent")
def decode_cpu(report: pb.Report, reading: BoardReading) -> None:
    """Busy share of all cores, per cent."""
    cpu = report.cpu
    if cpu.HasField("busy_percent"):
        reading.values["cpu_percent"] = cpu.busy_percent
    for flag in ("under_voltage", "throttled"):
        if cpu.HasField(flag):
            reading.flags[flag] = getattr(cpu, flag)
    if cpu.under_voltage:
        reading.notes.append("under-voltage")
    if cpu.throttled:
        reading.notes.append("throttled")
