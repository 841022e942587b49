"""An upgrade interrupts a board's reports for a short time, and stops at a release that does not
start."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import yaml

from tests.rollout import bundles
from tests.rollout.evidence import Evidence
from tests.rollout.listener import ReceivedMessage, listener
from tests.rollout.nspawn_testbed import NspawnTestbed, Run
from tests.rollout.test_site import report

SECOND = "0.1.1"
THIRD = "0.1.2"


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
    evidence.say("upgrade.txt", "\n".join((report(run), *lines)))
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
