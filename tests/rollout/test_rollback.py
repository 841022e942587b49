"""`rollback` returns every board to its previous release."""

from __future__ import annotations

from tests.rollout.evidence import Evidence
from tests.rollout.nspawn_testbed import NspawnTestbed
from tests.rollout.upgrades import SECOND, releases, run_with_gaps


def test_a_rollback_puts_every_board_back(deployed: NspawnTestbed, evidence: Evidence) -> None:
    current, previous = releases(deployed, "current"), releases(deployed, "previous")
    assert all(release.startswith(f"{SECOND}-") for release in current.values())
    run, lines = run_with_gaps(deployed, "rollback")
    evidence.say("rollback.txt", "\n".join((run.report(), *lines)))
    assert releases(deployed, "current") == previous
    for name, board in deployed.boards.items():
        board.run("systemctl is-active leadline-agent")
        version = board.run("/opt/leadline/agent/current/venv/bin/leadline-agent --version").stdout
        assert previous[name].startswith(version.split()[-1])
