import json

import pytest
from leadline_controller.cli.__main__ import run
from leadline_controller.framework.options import options_of
from leadline_controller.strategies import STRATEGIES


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
