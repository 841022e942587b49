"""A new collector is one file of the package; no other file of the agent knows of it."""

import sys
from pathlib import Path

import pytest
from leadline_agent import collectors
from leadline_agent.collectors import collector
from leadline_agent.publish.session import Encoder
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.proto.humidity import humidity_of


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, collector.CollectorFactory]:
    """The collectors after a file was added to their package."""
    example = Path(__file__).with_name("example")
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(example)])
    monkeypatch.setattr(collector, "COLLECTORS", dict(collector.COLLECTORS))
    monkeypatch.delitem(sys.modules, f"{collectors.__name__}.humidity", raising=False)
    collectors.import_collectors()
    return dict(collector.COLLECTORS)


def test_the_value_of_a_new_collector_is_in_the_message_that_is_sent(
    registry: dict[str, collector.CollectorFactory], tmp_path: Path
) -> None:
    sensor = tmp_path / "bus/iio/devices/iio:device0/in_humidityrelative_input"
    sensor.parent.mkdir(parents=True)
    sensor.write_text("41500\n")
    report = collectors.Collectors(registry, tmp_path).collect()
    topic, payload = Encoder("home", "pi-1", bytes(16), 1).sample(report)
    message = codec.decode(topics.parse(topic), payload, topics.SCHEMA)
    assert isinstance(message, pb.Report)
    assert humidity_of(message).percent == 41.5


def test_a_board_without_its_sensor_says_so(
    registry: dict[str, collector.CollectorFactory], tmp_path: Path
) -> None:
    report = collectors.Collectors({"humidity": registry["humidity"]}, tmp_path).collect()
    assert report.collectors[0].outcome == pb.CollectorRun.ABSENT
    assert not humidity_of(report).percent
