"""`leadline experiment` from the command line, with fake experiments."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from leadline_controller.cli.__main__ import run
from leadline_experiments import EXPERIMENTS
from leadline_experiments import command as module

HERE = "tests.experiments"
FAKE_EXPERIMENTS = {"another": f"{HERE}.another", "fake": f"{HERE}.fakes"}
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXPERIMENTS", FAKE_EXPERIMENTS)
    names = module.experiment.params[0]
    monkeypatch.setattr(names, "type", click.Choice([*FAKE_EXPERIMENTS, module.ALL]))


def stdout_of(capsys: Capture, *arguments: str) -> str:
    assert run(["experiment", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.mark.usefixtures("fakes")
def test_json_has_rows_claims_and_settings(capsys: Capture) -> None:
    found: dict[str, Any] = json.loads(stdout_of(capsys, "fake", "-o", "json"))
    assert found["experiment"] == "fake"
    assert found["rows"][1] == {
        "table": "Fig. 1",
        "case": "5 pods",
        "strategy": "netsched",
        "option": "",
        "metric": "pods_n1",
        "paper": 2,
        "ours": 3,
        "optimum": None,
        "is_headline": False,
        "difference": 1,
        "gap_percent": None,
    }
    assert found["claims"][1] == {
        "table": "Table 2",
        "case": "low load",
        "says": "DACS waits less.",
        "compare": "gain",
        "paper": "50.0 %",
        "ours": "30.0 %",
        "holds": False,
        "kind": "fitted",
        "why": "The load differs.",
    }
    assert found["settings"] == {"link": {"value": "1 Mbit/s, a minimum", "source": "paper"}}


@pytest.mark.experiment
@pytest.mark.usefixtures("fakes")
def test_all_is_a_list_in_a_fixed_order(capsys: Capture) -> None:
    found = json.loads(stdout_of(capsys, "all", "-o", "json", "--seed", "4"))
    assert [each["experiment"] for each in found["experiments"]] == list(FAKE_EXPERIMENTS)
    alone = json.loads(stdout_of(capsys, "fake", "-o", "json", "--seed", "4"))
    assert found["experiments"][1] == alone
    assert yaml.safe_load(stdout_of(capsys, "all", "-o", "yaml", "--seed", "4")) == found


@pytest.mark.usefixtures("fakes")
def test_the_seed_is_passed_on(capsys: Capture) -> None:
    one, again, other = (
        stdout_of(capsys, "fake", "-o", "json", "--seed", seed) for seed in ("1", "1", "2")
    )
    assert one == again != other


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("output", ["table", "wide"])
def test_tables_claims_and_reasons_fit_80_columns(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.setattr("leadline_controller.cli.output._UNBOUNDED", 80)
    text = stdout_of(capsys, "fake", "-o", output)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert ["netsched", "2", "3", "+1"] in [line.split() for line in lines]
    # A wide table has so many columns that the reason takes several lines.
    reason = "The load differs." if output == "table" else "differs."
    assert " ".join(text.split()).count(reason) == 1
    assert "1 Mbit/s" in text or output == "table"
    if output == "table":
        at = lines.index("missed  Table 2, low load: DACS waits less.")
        assert lines[at + 1 :][:2] == [
            "        paper 50.0 %, here 30.0 % (fitted)",
            "        The load differs.",
        ]
    assert [line for line in lines if line][-1].startswith("claims that hold: 1 of 1 independent")


@pytest.mark.usefixtures("fakes")
def test_csv_has_one_line_a_row(capsys: Capture) -> None:
    header, *rows = csv.reader(stdout_of(capsys, "all", "-o", "csv").splitlines())
    assert header[:5] == ["experiment", "table", "case", "strategy", "option"]
    assert [row[0] for row in rows] == ["fake"] * 4


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("name", ["fake", "all"])
def test_a_strategy_joins_the_methods(capsys: Capture, name: str) -> None:
    rows = stdout_of(capsys, name, "--strategy", "random", "-o", "csv").splitlines()
    assert "fake,Table 2,low load,random,,wait_s,,4.5,,False,," in rows


@pytest.mark.experiment
@pytest.mark.usefixtures("fakes")
def test_plot_writes_figures_and_tables(capsys: Capture, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plots"
    stdout_of(capsys, "all", "--plot", str(folder))
    assert sorted(file.name for file in folder.iterdir()) == [
        *("another-summary.md", "another.md"),
        *("fake-fig1.png", "fake-fig1.svg", "fake-summary.md", "fake.md"),
    ]
    assert "![Seconds to wait](fake-fig1.svg)" in (folder / "fake-summary.md").read_text()


def error_of(capsys: Capture, code: int, *arguments: str) -> str:
    assert run(["experiment", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("place", ["file", "file/below"])
def test_an_unwritable_folder_is_bad_usage(capsys: Capture, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    error = error_of(capsys, 2, "fake", "--plot", str(tmp_path / place))
    assert error.startswith(f"leadline: --plot {tmp_path / place}: ")


@pytest.mark.parametrize("arguments", [["guess"], [], ["netsched", "--seed", "x"]])
def test_bad_usage_is_one_line(capsys: Capture, arguments: list[str]) -> None:
    assert error_of(capsys, 2, *arguments).startswith("leadline: ")


@pytest.mark.usefixtures("fakes")
def test_without_the_package_the_command_says_what_to_install(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "leadline_experiments.command", raising=False)
    monkeypatch.setitem(sys.modules, "leadline_experiments", None)
    assert error_of(capsys, 1, "fake") == (
        "leadline: experiments are a package of their own: "
        "install it with pip install 'leadline-controller[experiments]'\n"
    )


def test_help_lists_the_names_and_imports_no_library() -> None:
    code = (
        "import sys; from leadline_controller.cli.__main__ import run; "
        "run(['experiment', '--help']); "
        "print({'matplotlib', 'simpy', 'highspy'} & set(sys.modules))"
    )
    argv = [sys.executable, "-c", code]
    text = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout
    unwrapped = "".join(text.split())  # a long list breaks within a name
    assert all(name in unwrapped for name in (*EXPERIMENTS, "all"))
    assert text.splitlines()[-1] == "set()"
