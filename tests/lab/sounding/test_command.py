"""`leadline lab sounding` as users call it."""

import json
from pathlib import Path

import pytest
from leadline_controller.cli.__main__ import run

SITE = Path(__file__).parents[3] / "docs/networks/two-halls.yaml"
Capture = pytest.CaptureFixture[str]


def sounding(*arguments: str) -> int:
    return run(["lab", "sounding", *arguments])


@pytest.mark.slow
def test_json_has_what_is_believed_beside_the_truth(capsys: Capture) -> None:
    assert sounding("--truth", str(SITE), "--minutes", "4", "--seed", "3", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["pairs"]) == 28
    for pair in found["pairs"]:
        assert pair["source"] == "measured"
        assert abs(pair["rtt_ms"] - pair["true_rtt_ms"]) <= 2 * pair["error_ms"]
    assert [node["name"] for node in found["nodes"]] == [f"{x}{i}" for x in "ab" for i in "1234"]
    slow = next(node for node in found["nodes"] if node["name"] == "a4")
    assert slow["true_mbps"] == slow["bandwidth_mbps"] == 20
    assert slow["bound"] == "exact"
    assert all(0 < node["pings_per_minute"] <= 96 for node in found["nodes"])
    assert all(node["test_bytes"] > 0 < node["link_time_share"] for node in found["nodes"])
    changes = {change["at_s"]: change["noticed_after_s"] for change in found["changes"]}
    assert changes[180] <= 60
    assert found["summary"]["pairs_by_source"] == {"measured": 28}


def test_a_table_shows_nodes_the_worst_pairs_and_the_errors(capsys: Capture) -> None:
    assert sounding("--truth", str(SITE), "--minutes", "4") == 0
    shown = capsys.readouterr().out
    assert "PINGS/min" in shown
    assert "10 pairs that are known worst" in shown
    assert "the change at 180 s was noticed after" in shown
    assert "28 pairs: 28 measured" in shown
    assert "90th percentile" in shown


@pytest.mark.parametrize("minutes", ["0", "-1", "20000", "x"])
def test_minutes_out_of_range_are_bad_usage(minutes: str, capsys: Capture) -> None:
    assert sounding("--truth", str(SITE), "--minutes", minutes) == 2
    assert "--minutes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nodes: []", "nodes: expected 2 to 2000 nodes, got 0"),
        ("nodes: [", "expected"),
        ("[]", "expected an object"),
    ],
)
def test_a_file_that_is_no_truth_is_bad_input(
    text: str, error: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "truth.yaml"
    file.write_text(text)
    assert sounding("--truth", str(file)) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert str(file) in captured.err
    assert error in captured.err
    assert captured.out == ""


def test_a_missing_file_is_bad_input(tmp_path: Path, capsys: Capture) -> None:
    assert sounding("--truth", str(tmp_path / "none.yaml")) == 2
    assert "none.yaml" in capsys.readouterr().err
