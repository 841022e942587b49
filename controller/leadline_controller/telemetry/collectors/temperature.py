"""Collector `temperature`."""

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.telemetry.collectors.decoder import BoardReading, decodes


@decodes("cpu_celsius")
def decode_temperature(report: pb.Report, reading: BoardReading) -> None:
    """Of the processor, degrees Celsius."""
    if report.temperature.HasField("cpu_celsius"):
        reading.values["cpu_celsius"] = report.temperature.cpu_celsius
