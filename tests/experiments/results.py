"""The papers' experiments with seed 0, in full. Several tests look at each, so it is computed once
in a run of the tests, by the worker that needs it first."""

from __future__ import annotations

import fcntl
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from leadline_controller.strategies import STRATEGIES
from leadline_experiments import EXPERIMENTS
from leadline_experiments.optimum import study
from leadline_experiments.result import Result
from leadline_experiments.running import run

from tests.docs.experiments import FOLDER


class Run(NamedTuple):
    """A run's result, and the shares that it reported as done."""

    result: Result
    progress: Sequence[float]


def computed_once(name: str, folder: Path) -> Run:
    """The run, from a file in this folder if it is there. Others wait for one that computes it."""
    file = folder / f"{name}.pickle"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            file.write_bytes(pickle.dumps(compute(name)))
    found = pickle.loads(file.read_bytes())  # noqa: S301  # a worker of this run wrote it
    assert isinstance(found, Run)
    return found


def compute(name: str) -> Run:
    """Run it with the strategies that the pages compare. One that is new, or a plug-in of this
    machine, gets there with the next make experiments; until then they are as true as before."""
    pages = "".join(page.read_text() for page in sorted(FOLDER.glob("*.md")))
    compared = set(re.findall(r"^\| \d+ nodes, \d+ pods \| ([\w-]+) \|", pages, re.M))
    assert compared <= set(STRATEGIES), "run make experiments and look at what changed"
    progress: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        line_up = {each: STRATEGIES[each] for each in STRATEGIES if each in compared}
        patch.setattr(study, "STRATEGIES", line_up)
        result = run(EXPERIMENTS[name], 0, progress.append)
    return Run(result, progress)
