"""The runs of a unit between two restarts by systemd."""

from __future__ import annotations

from dataclasses import dataclass

from tests.rollout.machines import Machine

AGENT, CONTROLLER = "leadline-agent", "leadline-controller"


WATCHDOG_S = 60  # of both units


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a unit. invocation: systemd's id of the run."""

    machine: Machine
    unit: str
    invocation: str

    def is_replaced(self) -> str:
        """A command that succeeds when systemd has restarted the unit and the unit is ready."""
        return (
            f"systemctl is-active {self.unit} && test {self.invocation} != "
            f"$(systemctl show --property InvocationID --value {self.unit})"
        )

    def systemd_log(self) -> list[str]:
        """The lines of systemd's log on this run."""
        journal = self.machine.run(f"journalctl --output cat INVOCATION_ID={self.invocation}")
        return journal.stdout.splitlines()


def current_run(machine: Machine, unit: str) -> Run:
    status = machine.run(
        f"systemctl is-active {unit} && systemctl show --value -p InvocationID {unit}"
    )
    return Run(machine, unit, status.stdout.split()[-1])
