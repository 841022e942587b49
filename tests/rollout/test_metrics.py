"""Under the unit's sandbox every metric is measured, and the agent listens on nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.rollout.evidence import Evidence
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import NspawnTestbed
from tests.system.daemons import eventually

METRICS = {
    *("cpu_percent", "memory_percent", "disk_bytes_per_s", "bandwidth_mbps"),
    *("packets_sent_per_s", "packets_received_per_s"),
}
UNIT = "leadline-agent"
TEST_PORT = 5201
# A round of bandwidth tests of all pairs, at one in 15 s, and what a slow board adds.
ROUND_S = 180.0
DYNAMIC_UIDS = range(61184, 65520)
MOST_EXPOSED = {"leadline-agent": 20, "leadline-controller": 25}
BLOCK_BYTES = 1 << 20
# How long a test of bandwidth may take from its lease to its end, with time to spare.
LEASE_S = 20.0
# The listening sockets of all processes of the unit.
GROUP = f"/sys/fs/cgroup/system.slice/{UNIT}.service/cgroup.procs"
LOOK = (
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

    def look() -> dict[str, dict[str, float]]:
        return {name: metrics(deployed, name) for name in wanted}

    def complete(seen: dict[str, dict[str, float]]) -> bool:
        return all(seen[name].get(metric, 0) > 0 for name in wanted for metric in wanted[name])

    with busy_disk(tmp_path / "block"):
        seen = eventually(look, complete, "every metric of every board", ROUND_S, every_s=2)
    lines = [
        f"{name}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in sorted(of.items()))
        for name, of in seen.items()
    ]
    evidence.say("metrics.txt", "\n".join(lines))


def test_each_pair_is_measured_by_echo_requests_and_by_a_test_of_its_bandwidth(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    pairs = set(combinations(sorted(deployed.boards), 2))

    def look() -> dict[tuple[str, str], Any]:
        answer = deployed.server.run("leadline matrix -o json").stdout
        return {(link["a"], link["b"]): link for link in json.loads(answer)["links"]}

    def complete(links: dict[tuple[str, str], Any]) -> bool:
        return all(
            pair in links
            and links[pair]["rtt_method"] == "icmp"
            and (links[pair]["rtt_ms"] or 0) > 0
            and (links[pair]["bandwidth_mbps"] or 0) > 0
            for pair in pairs
        )

    links = eventually(look, complete, "every pair is measured", ROUND_S, every_s=2)
    lines = [
        f"{a} {b}: {links[a, b]['rtt_ms']:.3f} ms, {links[a, b]['bandwidth_mbps']:.0f} Mbit/s"
        for a, b in sorted(pairs)
    ]
    evidence.say("links.txt", "\n".join(lines))


def test_a_board_listens_in_a_lease_at_one_port_and_else_at_none(deployed: NspawnTestbed) -> None:
    with leases_withheld(deployed):
        for name, board in deployed.boards.items():
            assert listening(board, for_s=5) == set(), name

    # In each pair the same board is the server, so it may be only one of them.
    def look() -> set[int]:
        return set().union(*(listening(board, for_s=3) for board in deployed.boards.values()))

    seen = eventually(look, bool, "a board takes part in a test as its server", ROUND_S)
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
        judged = machine.run(f"systemd-analyze security --threshold={MOST_EXPOSED[unit]} {unit}")
        lines.append(f"{machine.name}: {judged.stdout.strip().splitlines()[-1]}")
    evidence.say(f"security-{unit}.txt", "\n".join(lines))


def metrics(testbed: NspawnTestbed, node: str) -> dict[str, float]:
    """What the controller knows of a board."""
    answer = json.loads(testbed.server.run(f"leadline node {node} -o json").stdout)
    return {name: measured["value"] for name, measured in answer["metrics"].items()}


def has_thermometer(board: Machine) -> bool:
    """Whether root, outside of the sandbox, reads a temperature."""
    # It asks no broker, but its settings must be whole.
    agent = "/opt/leadline/agent/current/venv/bin/leadline-agent"
    once = board.run(f"LEADLINE_BROKER_HOST=localhost {agent} once")
    return json.loads(once.stdout)["temperature"] is not None


@contextmanager
def busy_disk(file: Path) -> Iterator[None]:
    """Blocks written to this machine's disk and read back, since the boards see its counters and
    it might stand still."""
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

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def leases_withheld(testbed: NspawnTestbed) -> Iterator[None]:
    """A time in which nobody gives leases, and those that were given are over."""
    testbed.server.run("systemctl stop leadline-controller")
    try:
        time.sleep(LEASE_S)
        yield
    finally:
        testbed.server.run("systemctl start leadline-controller")


def listening(board: Machine, for_s: int) -> set[int]:
    """The ports at which the agent or a child of it listens, looked at five times a second."""
    looks = f"for i in $(seq {5 * for_s}); do {LOOK}; sleep 0.2; done"
    lines = board.run(looks, timeout_s=for_s + 60).stdout.splitlines()
    return {int(line.split()[4].rpartition(":")[2]) for line in lines}
