"""A board that is rebooted, or whose power is cut, recovers without help."""

from __future__ import annotations

import pytest

from tests.rollout.broker_outage import BrokerOutage
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import NspawnTestbed

# The boot and the agent's first report, on a slow board.
PATIENCE_S = 180


def reboot(board: Machine) -> None:
    board.reboot()


def cut_power(board: Machine) -> None:
    board.cut_power()
    board.start()


@pytest.mark.parametrize(("name", "way"), [("pi-2", reboot), ("pi-3", cut_power)])
def test_a_board_comes_back_by_itself(
    deployed: NspawnTestbed, outage: BrokerOutage, name: str, way: object
) -> None:
    assert callable(way)
    board = deployed.boards[name]
    boot = "cat /proc/sys/kernel/random/boot_id"
    before = board.run(boot).stdout
    settings = "cat /proc/sys/net/ipv4/ping_group_range"
    opened = board.run(settings).stdout
    way(board)
    # It is active once it has measured; the broker is away still.
    board.wait_for("systemctl is-active leadline-agent", PATIENCE_S)
    assert board.run(boot).stdout != before
    assert board.run(settings).stdout == opened
    assert "ICMP is not permitted" not in board.journal("--boot", "--unit", "leadline-agent")
