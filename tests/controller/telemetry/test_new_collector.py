"""A new collector's values need one file in the controller; no other file knows of them."""

import sys
from pathlib import Path

import pytest
from leadline_controller.telemetry import collectors
from leadline_controller.telemetry.collectors import decoder
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.state import TelemetryState
from leadline_wire import codec, topics

from tests.controller.probing.permissive_leases import PermissiveLeases
from tests.controller.telemetry.board_builder import CLUSTER, BoardMessages
from tests.controller.telemetry.telemetry_builder import TTL, table
from tests.proto.humidity import set_humidity


@pytest.fixture
def _humidity_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a file to the package of the decoders."""
    example = Path(__file__).with_name("example")
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(example)])
    monkeypatch.setattr(decoder, "DECODERS", dict(decoder.DECODERS))
    monkeypatch.delitem(sys.modules, f"{collectors.__name__}.humidity", raising=False)
    collectors.import_decoders()


@pytest.mark.usefixtures("_humidity_decoder")
def test_the_value_of_a_new_collector_is_a_measurement_with_its_age() -> None:
    state, board = TelemetryState(TTL), BoardMessages("n1")
    report = board.report(age_ms=2500)
    set_humidity(report, 95.0)
    ingestor = TelemetryIngestor(CLUSTER, state, PermissiveLeases())
    topic = board.topic(topics.Kind.REPORT)
    ingestor.ingest(topic, codec.encode(report), topics.SCHEMA, 1000.0, retained=False)
    assert state.board("n1", 1000.0).values["humidity_percent"] == (95.0, 2.5)
    assert state.board("n1", 1000.0).values["cpu_percent"] == (12.5, 2.5)
    reading = state.board("n1", 1000.0).report
    assert reading is not None
    assert reading.notes == ["damp"]
    assert state.metrics(table("n1"), 1000.0).cpu_percent[0] == 12.5
