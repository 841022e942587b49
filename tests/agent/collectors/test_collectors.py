"""One collector never stops another, and each run is in the report."""

import logging
from pathlib import Path

import psutil
import pytest
from leadline_agent.collectors import Collectors
from leadline_agent.collectors.board import hardware_model
from leadline_agent.collectors.collector import AbsentError, CollectorFactory, TransientError
from leadline_wire import codec
from leadline_wire.v1 import telemetry_pb2 as pb

MEMORY = pb.Memory(total_bytes=2, available_bytes=1)


class Broken:
    def __init__(self, sys_root: Path) -> None:
        pass

    def collect(self) -> pb.Report:
        raise RuntimeError("the card is loose")


class Missing(Broken):
    def collect(self) -> pb.Report:
        raise AbsentError("no such thing")


class Works(Broken):
    def collect(self) -> pb.Report:
        return pb.Report(memory=MEMORY)


def test_a_failed_collector_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry: dict[str, CollectorFactory] = {
        "cpu": Broken,
        "disk": Missing,
        "memory": Works,
    }
    with caplog.at_level(logging.WARNING):
        report = Collectors(registry, tmp_path).collect()
    filled = {field.name: value for field, value in report.ListFields()}
    assert filled.keys() == {"timing", "collectors", "memory"}
    assert report.memory == MEMORY
    assert {run.name: run.outcome for run in report.collectors} == {
        "cpu": pb.CollectorRun.FAILED,
        "disk": pb.CollectorRun.ABSENT,
        "memory": pb.CollectorRun.OK,
    }
    assert [run.why for run in report.collectors] == ["the card is loose", "", ""]
    assert "collector cpu: failed" in caplog.text
    assert "disk" not in caplog.text  # hardware that is not there is no complaint


class Partly(Broken):
    def collect(self) -> pb.Report:
        raise TransientError("no total", pb.Report(memory=pb.Memory(available_bytes=1)))


class Impossible(Broken):
    def collect(self) -> pb.Report:
        return pb.Report(temperature=pb.Temperature(cpu_celsius=9e9))


def test_what_was_read_before_a_failure_counts(tmp_path: Path) -> None:
    report = Collectors({"memory": Partly}, tmp_path).collect()
    assert report.memory == pb.Memory(available_bytes=1)
    (run,) = report.collectors
    assert (run.outcome, run.why) == (pb.CollectorRun.FAILED, "no total")


def test_a_value_that_the_controller_would_refuse_does_not_take_the_report_along(
    tmp_path: Path,
) -> None:
    report = Collectors({"temperature": Impossible, "memory": Works}, tmp_path).collect()
    codec.check_report(report)
    assert report.memory == MEMORY
    assert not report.HasField("temperature")
    assert [run.outcome for run in report.collectors] == [
        pb.CollectorRun.FAILED,
        pb.CollectorRun.OK,
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "firmware/devicetree/base/model",
            b"Raspberry Pi 4 Model B Rev 1.4\0",
            "Raspberry Pi 4 Model B Rev 1.4",
        ),
        ("class/dmi/id/product_name", b"NUC8i3BEK\n", "NUC8i3BEK"),
        ("devices/soc0/machine", b"Radxa ROCK 5B\n", "Radxa ROCK 5B"),
        ("cpuinfo", b"model\t\t: 78\n\nModel\t\t: Raspberry Pi 5\n", "Raspberry Pi 5"),
        ("cpuinfo", b"model\t\t: 78\nmodel name\t: Intel\nModel\n", ""),
        ("nothing", b"", ""),
    ],
)
def test_the_hardware_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, expected: str
) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    assert hardware_model(tmp_path) == expected
