"""The helper that counts connections on a booted board: it counts a real one, in its sandbox, and
what the role switches on is taken back when the inventory no longer asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rollout.evidence import Evidence, difference
from tests.rollout.listener import listener
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import NspawnTestbed

BOARD, UNIT, FILE = "pi-1", "leadline-flows", "/run/leadline-flows/flows.json"
COUNTING = "cat /proc/sys/net/netfilter/nf_conntrack_acct"
BROKER_PORT = 8883
PERIOD_S = 60
# As kube-proxy's rules do on a board of k3s.
TRACK = (
    "add table inet tracked; "
    "add chain inet tracked in { type filter hook input priority 0; policy accept; }; "
    "add rule inet tracked in ct state new counter"
)


def track(testbed: NspawnTestbed, board: Machine) -> None:
    """Have the board's kernel track its connections: its image has no program for it."""
    name = f"systemd-nspawn.*--machine {board.name} "
    find = f"pgrep --parent $(pgrep --full --oldest '{name}') systemd"
    leader = testbed.namespaces.must("sh", "-c", find).split()[0]
    testbed.namespaces.must("nsenter", "--target", leader, "--net", "nft", TRACK)


@pytest.fixture(scope="module")
def counting(deployed: NspawnTestbed, evidence: Evidence) -> Iterator[Machine]:
    """A board that counts, and in the end one that did before, so that `remove` has all to do."""
    board = deployed.machines[BOARD]
    track(deployed, board)
    assert board.run(COUNTING).stdout.strip() == "0"
    deployed.vary(BOARD, agent_flows=True)
    run = deployed.ansible("site", limit=BOARD)
    evidence.say("flows-site.txt", run.report())
    yield board
    evidence.keep("flows-journal.txt", board.journal(f"--unit={UNIT}"))


def written(board: Machine) -> dict[str, Any]:
    board.wait_for(f"test -s {FILE}", 2 * PERIOD_S)
    found: dict[str, Any] = json.loads(board.run(f"cat {FILE}").stdout)
    return found


def test_the_board_counts_its_connection_to_the_broker(
    deployed: NspawnTestbed, counting: Machine, evidence: Evidence
) -> None:
    assert counting.run(COUNTING).stdout.strip() == "1"
    found = written(counting)
    evidence.keep("flows.json", json.dumps(found, indent=1))
    ends = {(source, destination, port) for source, destination, port, *_ in found["flows"]}
    broker = (counting.address, deployed.server.address, BROKER_PORT)
    assert broker in ends
    (row,) = (row for row in found["flows"] if tuple(row[:3]) == broker)
    assert row[3] > 1000
    assert found["lost_events"] is False


def test_the_board_reports_it(deployed: NspawnTestbed, counting: Machine) -> None:
    with listener(deployed) as heard:
        heard.wait_for(BOARD, "traffic", 1, within_s=3 * PERIOD_S)


def test_only_the_agent_reads_it(counting: Machine) -> None:
    written(counting)
    refused = counting.run(f"sudo -n -u pi cat {FILE}", check=False)
    assert refused.returncode != 0
    assert "Permission denied" in refused.stderr
    main = f"$(systemctl show --property MainPID --value {UNIT})"
    caps = counting.run(f"grep CapEff /proc/{main}/status").stdout.split()[1]
    assert int(caps, 16) == 1 << 12  # CAP_NET_ADMIN
    agent = "$(systemctl show --property MainPID --value leadline-agent)"
    owners = counting.run(f"stat --format %u {FILE}; stat --format %u /proc/{agent}").stdout.split()
    assert len(set(owners)) == 1
    assert owners[0] != "0"


def test_a_second_site_changes_nothing(deployed: NspawnTestbed, counting: Machine) -> None:
    run = deployed.ansible("site", limit=BOARD)
    assert run.recap[BOARD].changed == 0, run.output


def test_switched_off_it_leaves_nothing(
    deployed: NspawnTestbed, counting: Machine, evidence: Evidence
) -> None:
    with_it = counting.listing()
    deployed.vary(BOARD, agent_flows=None)
    deployed.ansible("site", limit=BOARD)
    without = counting.listing()
    left = [line for line in difference(deployed.bare[BOARD], without) if "flows" in line]
    assert left == []
    assert any("leadline-flows" in path for path in with_it)
    assert counting.run(COUNTING).stdout.strip() == "0"
    counting.run(f"! ls -d {FILE} 2>/dev/null")
    # For test_remove: the whole way back from a board that counts.
    deployed.vary(BOARD, agent_flows=True)
    deployed.ansible("site", limit=BOARD)
    assert counting.run(COUNTING).stdout.strip() == "1"
