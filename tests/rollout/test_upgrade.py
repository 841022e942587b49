"""An upgrade interrupts a board's reports for a short time, and stops at a release that does not
start."""

from __future__ import annotations

import pytest
import yaml

from tests.rollout import bundles
from tests.rollout.evidence import Evidence
from tests.rollout.listener import listener
from tests.rollout.nspawn_testbed import NspawnTestbed
from tests.rollout.upgrades import SECOND, releases, run_with_gaps

THIRD = "9.0.2"


@pytest.fixture(scope="module")
def second(deployed: NspawnTestbed) -> str:
    """A later release; the inventory names it from now on."""
    out = deployed.folder / "bundle-second"
    release = bundles.build(out, bundles.later(deployed.folder / "second", SECOND))
    deployed.set_bundle(out)
    return release


def test_an_upgrade_switches_every_board_and_its_gap_is_short(
    deployed: NspawnTestbed, second: str, evidence: Evidence
) -> None:
    first = releases(deployed, "current")
    run, lines = run_with_gaps(deployed, "upgrade")
    evidence.say("upgrade.txt", "\n".join((run.report(), *lines)))
    assert set(releases(deployed, "current").values()) == {second}
    assert releases(deployed, "previous") == first
    for board in deployed.boards.values():
        board.run("systemctl is-active leadline-agent")


@pytest.mark.parametrize(("role", "host"), [("controller", "server"), ("agent", "pi-1")])
def test_a_gate_does_not_open_for_another_version(
    deployed: NspawnTestbed, role: str, host: str
) -> None:
    delivery = {"version": "9.9.9", "current": "9.9.9-0", "restart": False}
    gate = {"name": f"leadline.edge.{role}", "tasks_from": "gate"}
    timeouts = {"controller_gate_patience_s": 6, "agent_gate_s": 6}
    play = {
        "hosts": host,
        "gather_facts": False,
        "become": True,
        "vars": {"release_delivery": delivery, **timeouts},
        "tasks": [{"ansible.builtin.include_role": gate}],
    }
    playbook = deployed.folder / f"gate-{role}.yml"
    playbook.write_text(yaml.safe_dump([play]))
    run = deployed.ansible(str(playbook), check=False)
    assert run.recap[host].failed == 1
    assert "6 s after its start the controller does not" in run.output


def test_an_upgrade_to_what_runs_changes_nothing(deployed: NspawnTestbed, second: str) -> None:
    run = deployed.ansible("upgrade")
    assert {host: recap.changed for host, recap in run.recap.items() if recap.changed} == {}


def test_a_release_that_cannot_start_stops_at_the_first_batch(
    deployed: NspawnTestbed, second: str, evidence: Evidence
) -> None:
    out = deployed.folder / "bundle-third"
    source = bundles.later(deployed.folder / "third", THIRD, broken=True)
    third = bundles.build(out, source)
    deployed.set_bundle(out)
    try:
        run = deployed.ansible("upgrade", limit="leadline_agents", check=False)
    finally:
        deployed.set_bundle(deployed.folder / "bundle-second")
    evidence.say("upgrade-broken.txt", run.recap_lines())
    evidence.keep("upgrade-broken-output.txt", run.output)
    assert run.code != 0
    failed = [host for host, recap in run.recap.items() if recap.failed]
    assert failed == ["pi-1"]
    assert "back on release" in run.output
    assert second in run.output
    assert set(releases(deployed, "current").values()) == {second}
    for name, board in deployed.boards.items():
        board.run("systemctl is-active leadline-agent")
        if name != "pi-1":
            board.run(f"test ! -e /opt/leadline/agent/releases/{third}")
    with listener(deployed) as messages:
        messages.wait_for("pi-1", "report", 1, within_s=60)
