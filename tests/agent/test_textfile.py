"""The file for node_exporter: its samples, and how it is replaced."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from leadline_agent.config import ConfigError, load
from leadline_agent.loop import Agent
from leadline_agent.textfile import Status, text_of, write
from leadline_wire.v1 import telemetry_pb2 as pb
from prometheus_client.parser import text_string_to_metric_families

HOSTILE = 'a"} 1\nleadline_agent_throttled 0 # \\'


def samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name.removeprefix("leadline_agent_"), " ".join(sample.labels.values())): value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if (value := sample.value) is not None
    }


def test_it_has_what_the_agent_knows_and_nothing_that_is_unknown() -> None:
    report = pb.Report(cpu=pb.Cpu(throttled=True))
    for name, outcome in (
        ("cpu", pb.CollectorRun.OK),
        ("disk", pb.CollectorRun.FAILED),
        ("temperature", pb.CollectorRun.ABSENT),
    ):
        report.collectors.add(name=name, outcome=outcome, duration_us=1500)
    status = Status("pi-1", "0.1.0", 10, is_connected=True, dropped_messages=3)
    assert samples(text_of(report, status, 1_800_000_000.25)) == {
        ("info", "pi-1 0.1.0"): 1.0,
        ("time_seconds", ""): 1_800_000_000.25,
        ("interval_seconds", ""): 10.0,
        ("broker_connected", ""): 1.0,
        ("dropped_messages_total", ""): 3.0,
        ("throttled", ""): 1.0,
        ("collector_success", "cpu"): 1.0,
        ("collector_success", "disk"): 0.0,
        ("collector_duration_seconds", "cpu"): 0.0015,
        ("collector_duration_seconds", "disk"): 0.0015,
    }
    known = Status("pi-1", "0.1.0", 10, False, 0, certificate_ends_s=1.9e9)
    found = samples(text_of(pb.Report(), known, 0.0))
    assert found["certificate_expiry_timestamp_seconds", ""] == 1.9e9
    assert found["broker_connected", ""] == 0.0


def test_no_name_can_add_a_sample() -> None:
    status = Status(HOSTILE, HOSTILE, 10, is_connected=True, dropped_messages=0)
    found = samples(text_of(pb.Report(), status, 0.0))
    assert ("info", f"{HOSTILE} {HOSTILE}") in found
    assert not any(name == "throttled" for name, _ in found)


def test_it_is_replaced_at_once_and_others_may_read_it(tmp_path: Path) -> None:
    path, before = tmp_path / "leadline.prom", os.umask(0o077)
    try:
        write(path, "one\n")
        first = path.open()
        (tmp_path / "leadline.prom.new").write_text("left by a power cut")
        write(path, "two\n")
    finally:
        os.umask(before)
    with first:
        assert first.read() == "one\n"  # whoever had it open reads the old one to its end
    assert path.read_text() == "two\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["leadline.prom"]


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    for name in ("leadline.prom", "leadline.prom.new"):
        (tmp_path / name).symlink_to(other)
    write(tmp_path / "leadline.prom", "ours\n")
    assert other.read_text() == "mine"
    assert not (tmp_path / "leadline.prom").is_symlink()


@pytest.mark.parametrize("path", ["here.prom", "/run/leadline", 3])
def test_its_path_is_absolute_and_has_the_ending_that_node_exporter_reads(
    tmp_path: Path, path: object
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f"[textfile]\npath = {path!r}\n")
    with pytest.raises(ConfigError, match=r"textfile\.path: expected an absolute path that ends"):
        load(file, {})


def test_a_file_that_cannot_be_written_is_logged_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent.__new__(Agent)
    agent._settings = SimpleNamespace(  # type: ignore[assignment]  # what it reads of them
        textfile=tmp_path / "missing" / "leadline.prom", node="pi-1", interval_s=10
    )
    agent._endpoint = SimpleNamespace(certificate=None)  # type: ignore[assignment]
    agent._session = SimpleNamespace(  # type: ignore[assignment]
        is_connected=True, dropped_messages=0
    )
    agent._write_textfile(pb.Report())
    (line,) = caplog.messages
    assert "No such file or directory" in line
    (tmp_path / "missing").mkdir()
    agent._write_textfile(pb.Report())
    assert (tmp_path / "missing" / "leadline.prom").exists()
