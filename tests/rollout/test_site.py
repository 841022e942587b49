"""`site` turns bare boards into a running suite, and a second run changes nothing."""

from __future__ import annotations

import json

import pytest

from tests.rollout.evidence import Evidence, difference
from tests.rollout.nspawn_testbed import NspawnTestbed, Run


def changes(run: Run) -> dict[str, int]:
    """The number of tasks that changed something, for each host with any."""
    return {host: recap.changed for host, recap in run.recap.items() if recap.changed}


def test_site_makes_bare_boards_a_running_suite(testbed: NspawnTestbed, evidence: Evidence) -> None:
    run = testbed.deploy(evidence)
    evidence.say("site-recap.txt", run.report())
    assert all(recap.failed == recap.unreachable == 0 for recap in run.recap.values())
    for board in testbed.boards.values():
        board.run("systemctl is-active leadline-agent")
    testbed.server.run("systemctl is-active leadline-controller mosquitto")


def test_the_controller_hears_every_board(deployed: NspawnTestbed) -> None:
    nodes = json.loads(deployed.server.run("leadline nodes -o json").stdout)["nodes"]
    online = {node["name"] for node in nodes if node["agent"] == "online"}
    assert online == set(deployed.boards)


@pytest.mark.parametrize(
    ("server", "client", "page", "shows"),
    [
        ("metrics", "prometheus", ":25508/metrics", "leadline_build_info"),
        ("web", "alice", ":25509/api/overview", "pi-1"),
    ],
)
def test_metrics_and_map_are_for_other_machines_with_a_certificate(
    deployed: NspawnTestbed, server: str, client: str, page: str, shows: str
) -> None:
    """The role pki makes all of them, because `controller_settings` only names the addresses."""
    pki, url = deployed.folder / "pki", f"https://{deployed.server.address}{page}"
    ask = ("curl", "--silent", "--show-error", "--fail", "--cacert", pki / f"{server}-ca.pem", url)
    own = pki / f"{server}-client" / client
    shown = ("--cert", own.with_suffix(".pem"), "--key", own.with_suffix(".key"))
    assert shows in deployed.namespaces.must(*ask, *shown)
    assert deployed.namespaces.run(*ask).returncode != 0


def test_site_again_changes_nothing(deployed: NspawnTestbed, evidence: Evidence) -> None:
    before = _start_times(deployed)
    run = deployed.ansible("site")
    evidence.say("site-again-recap.txt", run.report())
    assert changes(run) == {}
    assert _start_times(deployed) == before


def test_a_look_at_deployed_boards_shows_no_difference(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    before = _files(deployed)
    run = deployed.ansible("site", "--check", "--diff")
    evidence.say("site-check-recap.txt", run.report())
    assert changes(run) == {}
    after = _files(deployed)
    assert not [line for name in before for line in difference(before[name], after[name])]


def _files(testbed: NspawnTestbed) -> dict[str, dict[str, str]]:
    """The listing of each machine's disk, without the state that daemons write."""
    state = ("/var/lib/private/", "/var/lib/mosquitto/")
    return {
        name: {path: x for path, x in listing.items() if not path.startswith(state)}
        for name, listing in testbed.listings().items()
    }


def _start_times(testbed: NspawnTestbed) -> dict[str, str]:
    """The start times of the daemons of each machine."""
    units = "leadline-agent leadline-controller mosquitto k3s"
    show = f"systemctl show {units} --property Id --property ActiveEnterTimestampMonotonic"
    return {name: machine.run(show).stdout for name, machine in testbed.machines.items()}
