"""`site` installs the suite on bare boards, and changes nothing the second time."""

from __future__ import annotations

import json

from tests.rollout.evidence import Evidence, difference
from tests.rollout.nspawn_testbed import NspawnTestbed, Run


def report(run: Run) -> str:
    """The recap, and how long each play took: a batch is one, and here a batch is one board."""
    plays = [f"{seconds:6.1f} s  {name}" for name, seconds in run.plays()]
    return "\n".join((run.recap_lines(), *plays, f"{run.seconds:6.1f} s  all of it"))


def changes(run: Run) -> dict[str, int]:
    """How many tasks changed something, by host, where any did."""
    return {host: recap.changed for host, recap in run.recap.items() if recap.changed}


def test_site_makes_bare_boards_a_running_suite(testbed: NspawnTestbed, evidence: Evidence) -> None:
    run = testbed.deploy(evidence)
    evidence.say("site-recap.txt", report(run))
    assert all(recap.failed == recap.unreachable == 0 for recap in run.recap.values())
    for board in testbed.boards.values():
        board.run("systemctl is-active leadline-agent")
    testbed.server.run("systemctl is-active leadline-controller mosquitto")


def test_the_controller_hears_every_board(deployed: NspawnTestbed) -> None:
    nodes = json.loads(deployed.server.run("leadline nodes -o json").stdout)["nodes"]
    online = {node["name"] for node in nodes if node["agent"] == "online"}
    assert online == set(deployed.boards)


def test_site_again_changes_nothing(deployed: NspawnTestbed, evidence: Evidence) -> None:
    started = _started(deployed)
    run = deployed.ansible("site")
    evidence.say("site-again-recap.txt", report(run))
    assert changes(run) == {}
    assert _started(deployed) == started


def test_a_look_at_deployed_boards_shows_no_difference(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    before = _settled(deployed)
    run = deployed.ansible("site", "--check", "--diff")
    evidence.say("site-check-recap.txt", report(run))
    assert changes(run) == {}
    after = _settled(deployed)
    assert not [line for name in before for line in difference(before[name], after[name])]


def _settled(testbed: NspawnTestbed) -> dict[str, dict[str, str]]:
    """What stands on each machine's disk, but for what the daemons themselves keep writing."""
    state = ("/var/lib/private/", "/var/lib/mosquitto/")
    return {
        name: {path: what for path, what in machine.listing().items() if not path.startswith(state)}
        for name, machine in testbed.machines.items()
    }


def _started(testbed: NspawnTestbed) -> dict[str, str]:
    """When each daemon of each machine was started."""
    units = "leadline-agent leadline-controller mosquitto k3s"
    show = f"systemctl show {units} --property Id --property ActiveEnterTimestampMonotonic"
    return {name: machine.run(show).stdout for name, machine in testbed.machines.items()}
