"""Collector `humidity`, as a contributor would write it."""

from leadline_controller.telemetry.collectors.decoder import BoardReading, decodes
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.proto.humidity import humidity_of


@decodes("humidity_percent")
def decode_humidity(report: pb.Report, reading: BoardReading) -> None:
    """Relative humidity around the board, per cent."""
    percent = humidity_of(report).percent
    reading.values["humidity_percent"] = percent
    if percent > 90:
        reading.notes.append("damp")
