"""Collector `disk`."""

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.telemetry.collectors.decoder import BoardReading, decodes


@decodes("disk_bytes_per_s")
def decode_disk(report: pb.Report, reading: BoardReading) -> None:
    """Read and written together, as NetSched's "disk input and output"."""
    disk = report.disk
    if disk.HasField("read_bytes_per_s") and disk.HasField("written_bytes_per_s"):
        total = disk.read_bytes_per_s + disk.written_bytes_per_s
        reading.values["disk_bytes_per_s"] = total
