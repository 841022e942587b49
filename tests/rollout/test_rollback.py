"""Back to the release before, and forward again."""

from __future__ import annotations

from tests.rollout.evidence import Evidence
from tests.rollout.listener import listener
from tests.rollout.test_site import report
from tests.rollout.test_upgrade import SECOND, longest_gap_s, releases
from tests.rollout.yard import Yard


def test_a_rollback_puts_every_board_back(deployed: Yard, evidence: Evidence) -> None:
    current, previous = releases(deployed, "current"), releases(deployed, "previous")
    assert all(release.startswith(f"{SECOND}-") for release in current.values())
    with listener(deployed) as heard:
        for name in deployed.boards:
            heard.wait_for(name, "report", 2, within_s=60)
        run = deployed.ansible("rollback")
        for name in deployed.boards:
            heard.wait_for(name, "report", len(heard.heard(name, "report")) + 2, within_s=60)
        gaps_s = {name: longest_gap_s(heard.heard(name, "report")) for name in deployed.boards}
    lines = [f"{name}: no report for {gap:.1f} s at most" for name, gap in gaps_s.items()]
    evidence.say("rollback.txt", "\n".join((report(run), *lines)))
    assert releases(deployed, "current") == previous
    for name, board in deployed.boards.items():
        board.run("systemctl is-active leadline-agent")
        version = board.run("/opt/leadline/agent/current/venv/bin/leadline-agent --version").stdout
        assert previous[name].startswith(version.split()[-1])
