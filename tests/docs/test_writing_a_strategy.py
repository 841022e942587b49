"""docs/writing-a-strategy.md: the strategy on the page, installed from a folder of its own."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from leadline_controller.strategies import STRATEGIES

PAGE = (Path(__file__).parents[2] / "docs/writing-a-strategy.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./-]+)`:\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
NAME = "least-loaded"
UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, and nothing else."""
    folder = tmp_path_factory.mktemp("page") / NAME
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.fixture(scope="module")
def installed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the project is installed into."""
    target = tmp_path_factory.mktemp("installed")
    into = ("--python", sys.executable, "--target", target)
    command: list[str | Path] = [UV, "pip", "install", "--offline", "--no-deps", "--quiet"]
    done = subprocess.run([*command, *into, project], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def environ(installed: Path) -> dict[str, str]:
    """An environment in which it is installed beside Leadline."""
    return {**os.environ, "PYTHONPATH": str(installed)}


def run(environ: dict[str, str], *arguments: str | Path) -> str:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=100)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def leadline(environ: dict[str, str], *arguments: str | Path) -> str:
    return run(environ, "-m", "leadline_controller.cli", *arguments)


def test_the_page_shows_every_file_of_its_tree() -> None:
    tree = re.findall(r"^[├└]── (\S+)$", PAGE, re.MULTILINE)
    assert sorted(tree) == sorted(FILES)
    assert len(FILES["src/leadline_least_loaded/__init__.py"].splitlines()) <= 42
    assert NAME in tomllib.loads(FILES["controller.toml"])["strategy"]["name"]


def test_its_own_test_passes(project: Path, environ: dict[str, str]) -> None:
    output = run(
        environ, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", project
    )
    assert "1 passed" in output


def test_it_is_listed_with_its_options(environ: dict[str, str]) -> None:
    listed = json.loads(leadline(environ, "strategies", "-o", "json"))
    assert listed[-1] == {
        "name": NAME,
        "picks": "The node with the least load.",
        "paper": "none: an example",
        "better": "lower",
        "needs": ["cpu_percent", "memory_percent"],
        "options": [
            {
                "name": "cpu_weight",
                "default": 0.5,
                "unit": "",
                "minimum": 0.0,
                "maximum": 1.0,
                "help": "weight of CPU over memory",
            }
        ],
    }


def test_it_scores_as_the_page_calls_it(project: Path, environ: dict[str, str]) -> None:
    (line,) = re.findall(r"^leadline (score .*)$", PAGE, re.MULTILINE)
    arguments = line.replace(f"{NAME}/cluster.yaml", str(project / "cluster.yaml")).split()
    answer = json.loads(leadline(environ, *arguments, "-o", "json"))
    assert answer["options"] == {"cpu_weight": 0.75}
    (decision,) = answer["decisions"]
    assert (decision["node"], decision["why"]) == ("idle", "load 20.0 %")
    assert {node: s["total"] for node, s in decision["scores"].items()} == {"busy": 65, "idle": 20}


def test_the_settings_take_it(project: Path, environ: dict[str, str]) -> None:
    program = """
import sys
from pathlib import Path
from leadline_controller.settings import load
from leadline_controller.wiring import scheduling_rule
print(scheduling_rule(load(Path(sys.argv[1]), {})).strategy)
"""
    output = run(environ, "-c", program, project / "controller.toml")
    assert output == "LeastLoaded(cpu_weight=0.75)\n"


def test_the_experiments_have_it_in_their_line_up(environ: dict[str, str]) -> None:
    program = """
from random import Random
from leadline_experiments.optimum import study
view, pods = study.edge_cluster(5, 10, 0)
for name, strategy in study.STRATEGIES.items():
    print(name, len(study.place(view, pods, (), strategy(), Random(0))))
"""
    line_up = dict(line.split() for line in run(environ, "-c", program).splitlines())
    assert line_up[NAME] == "10"
    assert len(line_up) > 1


@pytest.mark.experiment
def test_it_joins_an_experiment(environ: dict[str, str]) -> None:
    (line,) = re.findall(r"^leadline (experiment .*)$", PAGE, re.MULTILINE)
    rows = list(csv.DictReader(io.StringIO(leadline(environ, *line.split(), "-o", "csv"))))
    counts = [
        row["ours"]
        for row in rows
        if (row["table"], row["case"], row["strategy"]) == ("Fig. 7", "90 pods", NAME)
    ]
    # Each pod adds 0.2 points of load. The free worker starts 10 points below the others, so it
    # gets 50 pods, and each worker a quarter of the other 40.
    assert counts == ["60", "10", "10", "10"]


def test_where_it_is_not_installed_there_is_no_such_strategy() -> None:
    assert NAME not in STRATEGIES
