"""Collector `memory`."""

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.telemetry.collectors.decoder import BoardReading, decodes


@decodes("memory_percent")
def decode_memory(report: pb.Report, reading: BoardReading) -> None:
    """The share that programs cannot get, per cent."""
    memory = report.memory
    if memory.HasField("available_bytes") and memory.total_bytes:
        share = memory.available_bytes / memory.total_bytes
        reading.values["memory_percent"] = 100.0 * (1 - share)
