"""After a reboot or a power cut, a board works again without help."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rollout.broker_outage import BrokerOutage
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import NspawnTestbed

# The boot and the agent's first report, on a slow board.
TIMEOUT_S = 180


def reboot(board: Machine) -> None:
    board.reboot()


def cut_power(board: Machine) -> None:
    board.cut_power()
    board.start()


@pytest.mark.parametrize(("name", "restart"), [("pi-2", reboot), ("pi-3", cut_power)])
def test_a_board_comes_back_by_itself(
    deployed: NspawnTestbed, outage: BrokerOutage, name: str, restart: Callable[[Machine], None]
) -> None:
    board = deployed.boards[name]
    boot = "cat /proc/sys/kernel/random/boot_id"
    before = board.run(boot).stdout
    ping_groups = "cat /proc/sys/net/ipv4/ping_group_range"
    allowed = board.run(ping_groups).stdout
    restart(board)
    # The unit is active when the agent has measured. The broker is still away.
    board.wait_for("systemctl is-active leadline-agent", TIMEOUT_S)
    assert board.run(boot).stdout != before
    assert board.run(ping_groups).stdout == allowed
    assert "ICMP is not permitted" not in board.journal("--boot", "--unit", "leadline-agent")
