"""A replay of recorded decisions knows what the controller knew."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from leadline_controller.history.recorded import Decided
from leadline_lab.replay.faithful import faithful

from tests.lab.replay.recorded_hours import ESTIMATE_EVERY_S, LoadedRun, record

STRATEGIES = ("netsched", "dacs", "kube-default", "infrastructure-aware")


@pytest.mark.experiment
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_hour_of_real_decisions_comes_out_again(strategy: str, tmp_path: Path) -> None:
    run = LoadedRun(
        hours=1.0,
        boards=20,
        seed=5,
        churn_per_s=0.5,
        busy_share=1.0,
        faults=0.0,
        strategy=strategy,
    )
    entries = record(run, tmp_path)
    kinds = Counter(type(entry.what).__name__ for entry in entries)
    found = faithful(entries, ESTIMATE_EVERY_S)
    print(strategy, kinds, found.share, *found.differences[:20], sep="\n")
    assert found.decisions == kinds["Decided"] > 1500
    assert len({e.what.node for e in entries if isinstance(e.what, Decided)}) > 10
    assert found.share >= 0.99
