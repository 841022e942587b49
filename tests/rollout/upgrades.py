"""Releases on boards, and how long a board is not heard while they change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tests.rollout.listener import ReceivedMessage, listener
from tests.rollout.nspawn_testbed import NspawnTestbed, Run

SECOND = "9.0.1"


def releases(testbed: NspawnTestbed, link: str) -> dict[str, str]:
    """The release that the link `current` or `previous` names on each board; "" without a link."""
    command = f"readlink /opt/leadline/agent/{link} || true"
    return {
        name: board.run(command).stdout.strip().removeprefix("releases/")
        for name, board in testbed.boards.items()
    }


def longest_gap_s(reports: Sequence[ReceivedMessage]) -> float:
    """The longest time between two reports of a board, in seconds."""
    return max(after.at_s - before.at_s for before, after in pairwise(reports))


def run_with_gaps(testbed: NspawnTestbed, playbook: str) -> tuple[Run, list[str]]:
    """Run a playbook. Returns the run, and a line for each board with the longest time between two
    of its reports during the run."""
    with listener(testbed) as messages:
        for name in testbed.boards:
            messages.wait_for(name, "report", 2, within_s=60)
        run = testbed.ansible(playbook)
        for name in testbed.boards:
            messages.wait_for(
                name, "report", len(messages.received(name, "report")) + 2, within_s=60
            )
        gaps_s = {name: longest_gap_s(messages.received(name, "report")) for name in testbed.boards}
    return run, [f"{name}: no report for {gap:.1f} s at most" for name, gap in gaps_s.items()]
