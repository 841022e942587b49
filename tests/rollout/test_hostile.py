"""A broken database does not stop the controller's unit: it still places pods. `make attack` runs
more attacks, with the limits of both units."""

from __future__ import annotations

from pathlib import Path

from tests.attack.booted_disk import is_ready, put, saved, stop, text_for_number
from tests.attack.scene import CONTROLLER
from tests.attack.units import Unit
from tests.rollout.evidence import Evidence
from tests.rollout.nspawn_testbed import NspawnTestbed

SERVES_S = 30


def test_a_rotten_database_is_put_aside(
    deployed: NspawnTestbed, evidence: Evidence, tmp_path: Path
) -> None:
    unit = Unit(deployed.server, CONTROLLER)
    good = saved(deployed, tmp_path)
    bad = tmp_path / "bad.db"
    bad.write_bytes(good.read_bytes())
    text_for_number(bad)
    put(deployed, bad)
    before = unit.mark()
    try:
        unit.machine.run(f"systemctl start --no-block {CONTROLLER}")
        assert is_ready(unit, SERVES_S)
        unit.machine.wait_for("leadline placements", SERVES_S)
        assert unit.show("NRestarts") == "0"
        assert stop(unit) == "success"
        evidence.say("hostile-database.txt", "\n".join(unit.lines_since(before)))
    finally:
        stop(unit)
        put(deployed, good)
        unit.machine.run(f"systemctl start {CONTROLLER}", timeout_s=150)
        unit.machine.wait_for("leadline nodes", SERVES_S)
