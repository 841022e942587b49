"""The command: output, exit codes, and no traceback."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from leadline_agent import __version__
from leadline_agent.__main__ import RateLimitFilter
from leadline_agent.collectors import COLLECTORS
from leadline_wire.v1 import telemetry_pb2 as pb


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leadline_agent", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(f'node = "pi-1"\nstate_dir = "{tmp_path}/state"\n')
    return path


def test_once_prints_a_report_with_rates_and_needs_no_broker(config: Path) -> None:
    done = command("once", "--config", str(config))
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert report["node"] == "pi-1"
    assert 0 <= report["cpu"]["busy_percent"] <= 100
    assert report["cpu"]["cores"] >= 1
    assert report["memory"]["total_bytes"] > report["memory"]["available_bytes"] > 0
    # An unknown value is null.
    assert list(report["cpu"]) == [field.name for field in pb.Cpu.DESCRIPTOR.fields]
    assert {run["outcome"] for run in report["collectors"]} <= {"ok", "absent"}
    assert [run["name"] for run in report["collectors"]] == list(COLLECTORS)
    assert not (config.parent / "state").exists()


def test_the_version(config: Path) -> None:
    assert command("--version").stdout == f"leadline-agent {__version__}\n"


@pytest.mark.parametrize("arguments", [("fly",), ("--colour",), ("--config",)])
def test_bad_usage_is_2(arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: leadline-agent" in done.stderr


@pytest.mark.parametrize("order", ["run", "once"])
def test_a_wrong_configuration_is_2_and_one_line(config: Path, order: str) -> None:
    config.write_text("[broker]\nport = 0\n")
    done = command(order, "--config", str(config))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"leadline-agent: {config}: broker.port: "
        "expected a whole number (a TCP port) from 1 to 65535, found '0'\n"
    )


def test_a_state_folder_that_cannot_be_used_is_1_and_one_line(config: Path) -> None:
    (config.parent / "state").write_text("a file")
    done = command("run", "--config", str(config))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the agent must be able to write there" in done.stderr


def test_a_closed_standard_output_gives_no_traceback(config: Path) -> None:
    line = f"{sys.executable} -m leadline_agent once --config {config} | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_the_agent_keeps_no_library_in_memory_that_it_does_not_use() -> None:
    code = (
        "import sys, leadline_agent.__main__\n"
        "print([name for name in ('http', 'email', 'tempfile', 'bz2', 'lzma', 'urllib.request')"
        " if name in sys.modules])\n"
        "import urllib.request\n"
        "urllib.request.Request"  # whoever needs it still gets the real one
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def said(quiet: RateLimitFilter, text: str) -> bool:
    return quiet.filter(logging.LogRecord("x", logging.WARNING, "f", 1, text, None, None))


def test_an_identical_line_is_limited() -> None:
    quiet = RateLimitFilter(at_most=2, per_s=600.0)
    assert [said(quiet, text) for text in "aaab"] == [True, True, False, True]


def logged(quiet: RateLimitFilter, template: str, *values: object) -> str:
    """What is written of a record; "" if nothing is."""
    record = logging.LogRecord("x", logging.WARNING, "f", 1, template, values, None)
    return record.getMessage() if quiet.filter(record) else ""


def test_one_template_with_changing_values_is_limited() -> None:
    quiet = RateLimitFilter(per_template=6)
    lines = [logged(quiet, "lease: refused: %s", f"odd {number}") for number in range(1000)]
    assert len([line for line in lines if line]) == 6
    assert "more like it are held back" in lines[5]
    assert logged(quiet, "broker %s: connected", "here") == "broker here: connected"


def test_all_templates_together_are_limited() -> None:
    quiet = RateLimitFilter(overall=60)
    assert len([n for n in range(1000) if logged(quiet, f"template {n}")]) == 60


def test_a_later_line_says_how_many_were_held_back() -> None:
    quiet = RateLimitFilter(at_most=1)
    assert logged(quiet, "a")
    assert not logged(quiet, "a")
    quiet._start_s -= 601
    assert "1 lines before this were held back" in logged(quiet, "b")


def test_a_line_of_the_log_is_short_and_printable() -> None:
    line = logged(RateLimitFilter(), "lease: %s", "a\nERROR forged\x1b[2J" + "x" * 100_000)
    assert line.isprintable()
    assert len(line) <= 500


def test_a_line_is_logged_again_after_the_period() -> None:
    quiet = RateLimitFilter(at_most=1, per_s=-1.0)
    assert [said(quiet, "a") for _ in range(3)] == [True, True, True]
