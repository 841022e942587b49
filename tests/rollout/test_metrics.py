"""In the unit's sandbox the agent measures every metric, and it listens only during a lease."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.rollout.evidence import Evidence
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import NspawnTestbed
from tests.support.threads import beside
from tests.system.daemons import eventually

METRICS = {
    *("cpu_percent", "memory_percent", "disk_bytes_per_s", "bandwidth_mbps"),
    *("packets_sent_per_s", "packets_received_per_s"),
}
UNIT = "leadline-agent"
TEST_PORT = 5201
# The bandwidth tests of all pairs, one every 15 s, plus a margin for a slow board.
ROUND_S = 180.0
DYNAMIC_UIDS = range(61184, 65520)
MOST_EXPOSED = {"leadline-agent": 20, "leadline-controller": 25}
BLOCK_BYTES = 1 << 20
# The longest time from a bandwidth lease to the end of its test, plus a margin.
LEASE_S = 20.0
# The listening sockets of all processes of the unit.
GROUP = f"/sys/fs/cgroup/system.slice/{UNIT}.service/cgroup.procs"
LIST_SOCKETS = (
    f"pids=$(sed 's/.*/pid=&,/' {GROUP}); "
    'ss --tcp --udp --listening --numeric --processes --no-header | grep -F "$pids" || true'
)


def test_every_metric_of_every_board_is_there_and_not_zero(
    deployed: NspawnTestbed, tmp_path: Path, evidence: Evidence
) -> None:
    wanted = {
        name: METRICS | ({"cpu_celsius"} if has_thermometer(board) else set())
        for name, board in deployed.boards.items()
    }

    def measured() -> dict[str, dict[str, float]]:
        return {name: metrics(deployed, name) for name in wanted}

    def complete(seen: dict[str, dict[str, float]]) -> bool:
        return all(seen[name].get(metric, 0) > 0 for name in wanted for metric in wanted[name])

    with busy_disk(tmp_path / "block"):
        seen = eventually(measured, complete, "every metric of every board", ROUND_S, every_s=2)
    lines = [
        f"{name}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in sorted(values.items()))
        for name, values in seen.items()
    ]
    evidence.say("metrics.txt", "\n".join(lines))


def test_each_pair_is_measured_by_echo_requests_and_each_link_by_bandwidth_tests(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    pairs = set(combinations(sorted(deployed.boards), 2))

    def measured() -> dict[tuple[str, str], Any]:
        answer = deployed.server.run("leadline matrix -o json").stdout
        return {(link["a"], link["b"]): link for link in json.loads(answer)["links"]}

    def complete(links: dict[tuple[str, str], Any]) -> bool:
        # The planner tests links of boards, and not each pair of them.
        tested = {end for pair, link in links.items() if link["bandwidth_mbps"] for end in pair}
        return deployed.boards.keys() <= tested and all(
            pair in links
            and links[pair]["rtt_method"] == "icmp"
            and (links[pair]["rtt_ms"] or 0) > 0
            for pair in pairs
        )

    links = eventually(measured, complete, "every pair and link is measured", ROUND_S, every_s=2)
    for board in deployed.boards:
        node = json.loads(deployed.server.run(f"leadline node {board} -o json").stdout)
        assert node["metrics"]["bandwidth_mbps"]["source"] == "tests", board
    lines = [
        f"{a} {b}: {links[a, b]['rtt_ms']:.3f} ms, {links[a, b]['bandwidth_mbps'] or 0:.0f} Mbit/s"
        for a, b in sorted(pairs)
    ]
    evidence.say("links.txt", "\n".join(lines))


def test_a_board_listens_in_a_lease_at_one_port_and_else_at_none(deployed: NspawnTestbed) -> None:
    with no_leases(deployed):
        for name, board in deployed.boards.items():
            assert listening_ports(board, for_s=5) == set(), name

    # A server listens for a moment. In each pair the same board is the server, so perhaps only one
    # board listens.
    def ports() -> set[int]:
        with ThreadPoolExecutor(len(deployed.boards)) as watching:
            boards = deployed.boards.values()
            return set().union(*watching.map(partial(listening_ports, for_s=10), boards))

    seen = eventually(ports, bool, "a board takes part in a test as its server", ROUND_S)
    assert seen == {TEST_PORT}


@pytest.mark.parametrize("unit", MOST_EXPOSED)
def test_the_daemons_are_nobody_and_may_do_nothing(
    deployed: NspawnTestbed, unit: str, evidence: Evidence
) -> None:
    lines = []
    for machine in [deployed.server] if unit.endswith("controller") else deployed.boards.values():
        status = machine.run(
            f"cat /proc/$(systemctl show --property MainPID --value {unit})/status"
        ).stdout
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert int(fields["Uid"].split()[0]) in DYNAMIC_UIDS
        assert {int(fields[f"Cap{each}"], 16) for each in ("Eff", "Prm", "Bnd", "Amb")} == {0}
        assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
        security = machine.run(f"systemd-analyze security --threshold={MOST_EXPOSED[unit]} {unit}")
        lines.append(f"{machine.name}: {security.stdout.strip().splitlines()[-1]}")
    evidence.say(f"security-{unit}.txt", "\n".join(lines))


def metrics(testbed: NspawnTestbed, node: str) -> dict[str, float]:
    """The newest value of each metric that the controller has of a board."""
    answer = json.loads(testbed.server.run(f"leadline node {node} -o json").stdout)
    return {name: measured["value"] for name, measured in answer["metrics"].items()}


def has_thermometer(board: Machine) -> bool:
    """Whether root can read a temperature outside the sandbox."""
    # `once` needs no broker, but the settings must be complete.
    agent = "/opt/leadline/agent/current/venv/bin/leadline-agent"
    once = board.run(f"LEADLINE_BROKER_HOST=localhost {agent} once")
    return json.loads(once.stdout)["temperature"] is not None


@contextmanager
def busy_disk(file: Path) -> Iterator[None]:
    """Write blocks to this machine's disk and read them back during a block of code: the boards
    read its counters, and without work they may not change."""
    done = Event()

    def work() -> None:
        while not done.wait(0.2):
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
            try:
                os.pwrite(descriptor, os.urandom(BLOCK_BYTES), 0)
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.pread(descriptor, BLOCK_BYTES, 0)
            finally:
                os.close(descriptor)

    with beside(work, done=done):
        yield


@contextmanager
def no_leases(testbed: NspawnTestbed) -> Iterator[None]:
    """Stop the controller during a block of code, which begins when the last lease has ended."""
    testbed.server.run("systemctl stop leadline-controller")
    try:
        time.sleep(LEASE_S)
        yield
    finally:
        testbed.server.run("systemctl start leadline-controller")


def listening_ports(board: Machine, for_s: int) -> set[int]:
    """The ports on which the agent or its children listen, read some ten times a second."""
    script = f"end=$(($(date +%s) + {for_s})); while [ $(date +%s) -lt $end ]; do {LIST_SOCKETS}; "
    script += "sleep 0.05; done"
    lines = board.run(script, timeout_s=for_s + 60).stdout.splitlines()
    return {int(line.split()[4].rpartition(":")[2]) for line in lines}
