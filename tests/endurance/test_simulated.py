"""An hour of what `make endurance` does for 72, with ten times as many faults; and what the
bookkeeper must notice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.leaderelection.elector import LeaderElector

from tests.endurance.simulated import FAULTS, Run, simulate

pytestmark = pytest.mark.experiment
# With this seed each fault and each way of a restart comes within the hour.
RUN = Run(
    hours=1.0, boards=20, seed=22, churn_per_s=1.2, busy_share=1.0, faults=10.0, sample_s=20.0
)
RESTARTS = ("killed", "upgraded", "without power", "taken over")
SHORT = Run(hours=0.1, boards=10, churn_per_s=2.0, busy_share=1.0, faults=0.0, sample_s=600.0)


def test_an_hour_of_faults_loses_no_pod_and_breaks_no_promise(tmp_path: Path) -> None:
    found = simulate(RUN, tmp_path)
    assert found.book.lines == []
    assert not found.book.violations
    assert {what for what in FAULTS if found.counts[what] == 0} == set()
    assert {what for what in RESTARTS if found.counts[what] == 0} == set()
    assert found.book.counts["bound"] > 3000
    assert found.counts["decisions compared"] > 0


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    one, other = (simulate(SHORT, tmp_path / name) for name in ("a", "b"))
    assert one.book.counts == other.book.counts


def test_the_bookkeeper_notices_a_scheduler_that_assumes_nothing(tmp_path: Path) -> None:
    with patch.object(ClusterState, "assume", lambda *_: None):
        found = simulate(SHORT, tmp_path)
    assert found.book.violations["overcommitted"]


def test_the_bookkeeper_notices_a_leader_that_goes_on_without_the_lease(tmp_path: Path) -> None:
    with (
        patch.object(LeaderElector, "leads", lambda _: True),
        patch.object(LeaderElector, "left_s", lambda _: 1.0),
        patch.object(LeaderElector, "run", lambda _: asyncio.Event().wait()),
    ):
        found = simulate(SHORT, tmp_path)
    assert found.book.violations["bound without the Lease"]
