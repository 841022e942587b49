"""Replays predict what really happened: the recorded runs of `make judge`, in `judged/`."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from tests.lab.replay.judged import Judged, judged, lines

FOLDER = Path(__file__).with_name("judged")


@pytest.fixture(scope="module")
def judge() -> Judged:
    found = judged(FOLDER)
    print("\n".join(lines(found)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["ready_s", "transfer_s"])
def test_the_means_of_other_strategies_are_predicted(judge: Judged, measure: str) -> None:
    errors = judge.errors(measure)
    assert len(errors) == 60
    assert mean(errors) <= 0.1
    share, pairs = judge.clearly[measure]
    assert pairs >= 100
    assert share >= 0.9
    # Of pairs whose real runs overlap, a fourth run might come in the other order, too.
    everyone, all_pairs = judge.ordered[measure]
    assert everyone * all_pairs >= 0.9 * pairs + 0.5 * (all_pairs - pairs)
