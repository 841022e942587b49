import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from leadline_controller.cli.__main__ import run
from leadline_controller.framework.options import options_of
from leadline_controller.strategies import STRATEGIES

from tests.support.distributions import install


def test_json_lists_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["strategies", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(STRATEGIES)
    dacs = next(each for each in listed if each["name"] == "dacs")
    assert dacs["better"] == "lower"
    assert dacs["needs"] == ["rtt_ms", "bandwidth_mbps"]
    options = {option["name"]: option for option in dacs["options"]}
    assert {"alpha", "phi", "lambda", "beta_cs", "beta_rc", "rate"} <= set(options)
    assert options["alpha"]["default"] == 0.5
    assert (options["alpha"]["minimum"], options["alpha"]["maximum"]) == (0.0, 1.0)
    assert options["lambda"] == {
        "name": "lambda",
        "default": 0.05,
        "unit": "s",
        "minimum": 0.0,
        "maximum": 1e6,
        "help": "delays this close are equal",
    }
    assert (options["beta_cs"]["default"], options["beta_rc"]["default"]) == (1e-6, 5e-6)


@pytest.mark.parametrize("output", ["table", "wide"])
def test_tables_name_paper_needs_and_options(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["strategies", "-o", output]) == 0
    told = capsys.readouterr().out
    assert "DACS, Algorithms 1-2" in told
    assert "rtt_ms, bandwidth_mbps" in told
    assert "weight of processing over network delay" in told


def test_80_columns_are_enough_for_every_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline_controller.cli.output._UNBOUNDED", 80)
    assert run(["strategies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    starts = [line.split("  ")[0] for line in lines]
    for name, strategy in STRATEGIES.items():
        assert name in starts, "the name is whole, on a line of its own"
        for option in options_of(strategy):
            assert any(line.startswith(f"  {option.name} ") for line in lines)


def test_a_broken_plugin_is_one_line_on_standard_error_and_nothing_more(tmp_path: Path) -> None:
    install(
        tmp_path, "leadline-broken", {"leadline.strategies": {"broken": "no_such_module:Broken"}}
    )

    def leadline(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "leadline_controller.cli", *arguments]
        environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    named = "strategy plug-in leadline-broken 1.2, entry point broken = no_such_module:Broken: "
    code, out, err = leadline("strategies", "-o", "json")
    assert code == 0
    assert [each["name"] for each in json.loads(out)] == list(STRATEGIES.built_in)
    assert err.startswith(f"leadline: {named}cannot be imported: ModuleNotFoundError")
    assert err.count("\n") == 1

    snapshot = str(Path(__file__).parents[3] / "docs/examples/netsched.yaml")
    code, out, err = leadline("score", "--snapshot", snapshot)
    assert (code, err) == (0, ""), "a strategy that is not used is not imported"
    code, out, err = leadline("score", "--snapshot", snapshot, "--strategy", "broken")
    assert (code, out) == (2, "")
    assert err.startswith(f"leadline: {named}cannot be imported: ModuleNotFoundError")
    assert err.count("\n") == 1
