"""A new collector's values are decoded in one module of the controller; no other knows of them."""

import pytest
from leadline_controller.telemetry import collectors, ingestor, state
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.state import TelemetryState
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.permissive_leases import PermissiveLeases
from tests.controller.telemetry.board_builder import CLUSTER, BoardMessages
from tests.controller.telemetry.telemetry_builder import TTL, table
from tests.proto.humidity import humidity_of, set_humidity


@pytest.fixture
def _humidity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode one value more, as a contributor would write it."""

    def decode(report: pb.Report) -> collectors.BoardReading:
        reading, percent = collectors.decode(report), humidity_of(report).percent
        reading.values["humidity_percent"] = percent
        if percent > 90:
            reading.notes.append("damp")
        return reading

    monkeypatch.setattr(ingestor, "decode_report", decode)
    monkeypatch.setattr(state, "COLUMNS", (*collectors.COLUMNS, "humidity_percent"))


@pytest.mark.usefixtures("_humidity")
def test_the_value_of_a_new_collector_is_a_measurement_with_its_age() -> None:
    telemetry, board = TelemetryState(TTL), BoardMessages("n1")
    report = board.report(age_ms=2500)
    set_humidity(report, 95.0)
    taking = TelemetryIngestor(CLUSTER, telemetry, PermissiveLeases())
    topic = board.topic(topics.Kind.REPORT)
    taking.ingest(topic, codec.encode(report), topics.SCHEMA, 1000.0, retained=False)
    assert telemetry.measurements("n1", 1000.0)["humidity_percent"] == (95.0, 2.5)
    assert telemetry.measurements("n1", 1000.0)["cpu_percent"] == (12.5, 2.5)
    reading = telemetry.board("n1", 1000.0)
    assert reading is not None
    assert reading.notes == ["damp"]
    assert telemetry.metrics(table("n1"), 1000.0).cpu_percent[0] == 12.5
