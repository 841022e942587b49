"""systemd restarts a daemon that hangs, also during an outage of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.rollout.broker_outage import BrokerOutage
from tests.rollout.evidence import Evidence
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import NspawnTestbed

AGENT, CONTROLLER = "leadline-agent", "leadline-controller"
# The watchdog's minute, the pause before the new start, and the start on a slow board.
PATIENCE_S = 240
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


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a unit, by systemd's id of it."""

    machine: Machine
    unit: str
    invocation: str

    def is_replaced(self) -> str:
        """A command that succeeds when systemd has restarted the unit and it is ready."""
        return (
            f"systemctl is-active {self.unit} && test {self.invocation} != "
            f"$(systemctl show --property InvocationID --value {self.unit})"
        )

    def said(self) -> list[str]:
        """What systemd said of it."""
        journal = self.machine.run(f"journalctl --output cat INVOCATION_ID={self.invocation}")
        return journal.stdout.splitlines()


def present(machine: Machine, unit: str) -> Run:
    shown = machine.run(
        f"systemctl is-active {unit} && systemctl show --value -p InvocationID {unit}"
    )
    return Run(machine, unit, shown.stdout.split()[-1])


@contextmanager
def hanging_agent(board: Machine) -> Iterator[Run]:
    """An agent whose loop hangs; the one after it is a good one."""
    board.run(f"mkdir -p {DROP_IN} && cat > /run/hanging.py <<'END'\n{HANGING}END\n")
    unit = f"[Service]\\nExecStart=\\nExecStart={PYTHON} /run/hanging.py\\n"
    board.run(f'printf "{unit}" > {DROP_IN}/hang.conf && systemctl daemon-reload')
    try:
        board.run(f"systemctl restart {AGENT}", timeout_s=150)
        run = present(board, AGENT)
        board.run(f"rm -r {DROP_IN} && systemctl daemon-reload")
        yield run
    finally:
        board.run(f"rm -rf {DROP_IN} /run/hanging.py && systemctl daemon-reload")


def test_what_stands_still_is_started_again(
    deployed: NspawnTestbed, outage: BrokerOutage, evidence: Evidence
) -> None:
    hung, frozen = "pi-2", "pi-3"
    with hanging_agent(deployed.boards[hung]) as hangs:
        stops = [present(deployed.boards[frozen], AGENT), present(deployed.server, CONTROLLER)]
        for run in stops:
            run.machine.run(f"kill -STOP $(systemctl show --property MainPID --value {run.unit})")
        for run in (hangs, *stops):
            run.machine.wait_for(run.is_replaced(), PATIENCE_S)
    lines = []
    for run in (hangs, *stops):
        said = [line for line in run.said() if "atchdog" in line or "restart" in line]
        assert any("Watchdog timeout" in line for line in said), run.said()
        assert any("Failed with result 'watchdog'" in line for line in said), run.said()
        lines += [f"{run.machine.name}: {line}" for line in said]
    evidence.say("watchdog.txt", "\n".join(lines))
