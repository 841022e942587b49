"""Makes the recordings of docs/recordings: `python -m tests.lab.replay.shipped`.

Their clusters are simulated, so nobody's names are in them, and what is true of their links is
known: tests/endurance has the boards, the users and the faults.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from leadline_controller.history.recording_files import write_recording

from tests.controller.probing.day_boards import Plan
from tests.endurance import simulated
from tests.lab.replay.recorded_hours import LoadedRun, record

FOLDER = Path(__file__).parents[3] / "docs/recordings"
# Restarts would make several recordings of one.
_FAULTS = {what: rate for what, rate in simulated.FAULTS.items() if "controller" not in what}


@dataclass(frozen=True, slots=True)
class SlowRun(LoadedRun):
    """Boards report once a minute, so that a day is small."""

    def plan(self) -> Plan:
        slow = LoadedRun.plan(self)
        return replace(slow, report_every_s=60.0, ttl=replace(slow.ttl, report_s=300.0))


RUNS = {
    "home": LoadedRun(
        hours=4.0, boards=4, seed=1, churn_per_s=0.05, busy_share=0.5, faults=0.0, strategy="dacs"
    ),
    "factory": LoadedRun(
        hours=1.0, boards=40, seed=2, churn_per_s=1.0, busy_share=0.5, faults=0.0, strategy="dacs"
    ),
    "faults": SlowRun(
        hours=24.0, boards=12, seed=3, churn_per_s=0.1, busy_share=0.2, faults=3.0, strategy="dacs"
    ),
}


def make(name: str, path: Path) -> None:
    """Let the hours pass, and write what the controller learnt and decided."""
    with (
        tempfile.TemporaryDirectory(prefix="leadline-recorded-") as folder,
        patch.object(simulated, "FAULTS", _FAULTS),
    ):
        write_recording(path, record(RUNS[name], Path(folder)))


def main() -> None:
    """Make all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name in RUNS:
        make(name, FOLDER / f"{name}.recording")


if __name__ == "__main__":
    main()
