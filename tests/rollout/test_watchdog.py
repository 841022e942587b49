"""systemd restarts a daemon that hangs, also while the broker is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.rollout.broker_outage import BrokerOutage
from tests.rollout.evidence import Evidence
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import NspawnTestbed
from tests.rollout.unit_runs import AGENT, CONTROLLER, Run, current_run

# The watchdog's minute, the pause before the restart, and the start on a slow board.
TIMEOUT_S = 240
PYTHON = "/opt/leadline/agent/current/venv/bin/python"
DROP_IN = f"/run/systemd/system/{AGENT}.service.d"
# An agent whose loop hangs after 20 seconds, while the threads of MQTT and of the pings go on.
HANGING = """\
import sys, time
from leadline_agent import loop
from leadline_agent.__main__ import main
tick, start_s = loop.Agent.tick, time.monotonic()
def hang(agent, now_s):
    if time.monotonic() - start_s > 20:
        time.sleep(3600)
    tick(agent, now_s)
loop.Agent.tick = hang
sys.exit(main(["run"]))
"""


@contextmanager
def hanging_agent(board: Machine) -> Iterator[Run]:
    """Start an agent whose loop hangs. systemd restarts the normal agent."""
    board.run(f"mkdir -p {DROP_IN} && cat > /run/hanging.py <<'END'\n{HANGING}END\n")
    unit = f"[Service]\\nExecStart=\\nExecStart={PYTHON} /run/hanging.py\\n"
    board.run(f'printf "{unit}" > {DROP_IN}/hang.conf && systemctl daemon-reload')
    try:
        board.run(f"systemctl restart {AGENT}", timeout_s=150)
        run = current_run(board, AGENT)
        board.run(f"rm -r {DROP_IN} && systemctl daemon-reload")
        yield run
    finally:
        board.run(f"rm -rf {DROP_IN} /run/hanging.py && systemctl daemon-reload")


def test_what_stands_still_is_started_again(
    deployed: NspawnTestbed, outage: BrokerOutage, evidence: Evidence
) -> None:
    hung, frozen = "pi-2", "pi-3"
    with hanging_agent(deployed.boards[hung]) as hanging:
        stopped = [
            current_run(deployed.boards[frozen], AGENT),
            current_run(deployed.server, CONTROLLER),
        ]
        for run in stopped:
            run.machine.run(f"kill -STOP $(systemctl show --property MainPID --value {run.unit})")
        for run in (hanging, *stopped):
            run.machine.wait_for(run.is_replaced(), TIMEOUT_S)
    lines = []
    for run in (hanging, *stopped):
        log = [line for line in run.systemd_log() if "atchdog" in line or "restart" in line]
        assert any("Watchdog timeout" in line for line in log), run.systemd_log()
        assert any("Failed with result 'watchdog'" in line for line in log), run.systemd_log()
        lines += [f"{run.machine.name}: {line}" for line in log]
    evidence.say("watchdog.txt", "\n".join(lines))
