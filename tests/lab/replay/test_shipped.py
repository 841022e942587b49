"""The recordings of docs/recordings are sound, and the decisions in them come out again."""

from __future__ import annotations

import pytest
from leadline_controller.history.recorded import Began, Decided, Missed
from leadline_controller.history.recording_files import read_recording
from leadline_lab.replay.faithful import faithful

from tests.lab.replay.recorded_hours import ESTIMATE_EVERY_S
from tests.lab.replay.shipped import FOLDER, RUNS

SIZE_AT_MOST = 600_000
LAB = "lab"  # of `make judge`


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_shipped_recording_is_small_whole_and_decides_again(name: str) -> None:
    path = FOLDER / f"{name}.recording"
    assert path.stat().st_size < SIZE_AT_MOST
    entries = list(read_recording(path))
    began = entries[0].what
    assert isinstance(began, Began)
    assert began.strategy == RUNS[name].strategy
    assert not any(isinstance(each.what, Missed) for each in entries)
    length_h = (entries[-1].at_s - entries[0].at_s) / 3600
    assert length_h == pytest.approx(RUNS[name].hours, abs=0.1)
    found = faithful(entries, ESTIMATE_EVERY_S)
    assert found.decisions == sum(isinstance(each.what, Decided) for each in entries) > 200
    assert found.share >= 0.99
    assert all(each.why for each in found.differences)


@pytest.mark.slow
def test_the_recording_of_the_lab_decides_again() -> None:
    entries = list(read_recording(FOLDER / f"{LAB}.recording"))
    found = faithful(entries)
    assert found.decisions == sum(isinstance(each.what, Decided) for each in entries) > 30
    assert found.share == 1.0


def test_every_shipped_recording_has_a_run_that_makes_it() -> None:
    made = {path.name for path in FOLDER.iterdir()}
    assert made == {f"{name}.recording" for name in (*RUNS, LAB)}
