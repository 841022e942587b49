"""Silent connections and a broken database do not stop the controller's unit: it still places pods.
`make attack` runs more attacks, with the limits of both units."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.attack.booted_disk import is_ready, put, saved, stop, text_for_number
from tests.attack.scene import CONTROLLER, GRPC_PORT, intrude, unharmed
from tests.attack.units import Unit
from tests.kube.objects import pod
from tests.rollout.evidence import Evidence
from tests.rollout.nspawn_testbed import NspawnTestbed
from tests.rollout.test_placement import place_pod

SILENT = 1040
# Longer than the test waits for a pod. The connections close as soon as the pod is bound.
HOLD_S = 60.0
OVER = "/run/attack-over"
# Most connections are open after this time.
OPEN_S = 3.0
SERVES_S = 30


def test_silent_connections_keep_no_pod_waiting(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    unit = Unit(deployed.server, CONTROLLER)
    before = unit.mark()
    request = {"attack": "silent", "host": "127.0.0.1", "port": GRPC_PORT, "count": SILENT}
    with ThreadPoolExecutor(1) as pool:
        intruder = pool.submit(
            intrude, deployed.server, {**request, "hold_s": HOLD_S, "until": OVER}
        )
        time.sleep(OPEN_S)
        try:
            place_pod(deployed.server, pod("meanwhile", "10m"))
        finally:
            deployed.server.run(f"touch {OVER}")
            evidence.say("hostile-silent.txt", str(intruder.result()))
            deployed.server.run(f"rm {OVER}")
            deployed.server.run("kubectl delete pod meanwhile --grace-period=0 --force")
    deployed.server.wait_for("leadline nodes", SERVES_S)
    checks = list(unharmed(f"{SILENT} silent connections", unit, before))
    assert [str(check) for check in checks if not check.held] == []


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
