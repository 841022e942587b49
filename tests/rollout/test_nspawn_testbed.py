"""However a run of these tests ends, the testbed leaves nothing on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rollout.nspawn_testbed import REPOSITORY, Recap, parse_run
from tests.support.ports import wait_until

# The testbed's namespaces with a program and its child in place of a machine.
OWNER = """
import sys, time
from pathlib import Path
from tests.rollout.namespaces import Namespaces

folder = Path(sys.argv[1])
namespaces = Namespaces(folder, "10.77.0.1/24")
namespaces.start("one", folder / "log", ["sh", "-c", "sleep 1234 & exec sleep 4321"])
while namespaces.run("pgrep", "-c", "sleep", mounts=True).stdout.strip() != "2":
    time.sleep(0.05)
print("ready", flush=True)
time.sleep(600)
"""


def remaining_processes(folder: Path) -> list[str]:
    """The processes that see the testbed's disks."""
    seen = []
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            if str(folder) in mounts.read_text():
                seen.append(str(mounts))
        except OSError:
            continue  # it ended meanwhile
    return seen


@pytest.mark.timeout(60)
def test_the_testbed_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        text=True,
    ) as owner:
        groups = f"leadline-rollout-{owner.pid}"
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "ready\n"
            assert remaining_processes(tmp_path)
            assert list(Path("/sys/fs/cgroup").rglob(groups))
        finally:
            owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not remaining_processes(tmp_path), "every process of the testbed ended")
    assert not list(Path("/sys/fs/cgroup").rglob(groups))


def test_the_recap_of_ansible_is_parsed() -> None:
    clock = "TASK [x] ****\nMonday 2 March 2026  10:00:00 +0000 (0:00:00.1)    0:00:0%.1f ****\n"
    printed = (
        f"PLAY [Agents] ****\n{clock % 1.5}"
        "PLAY RECAP *****\n"
        "pi-1    : ok=12   changed=3    unreachable=0    failed=1    skipped=4    rescued=1    "
        "ignored=0   \n\n"
    )
    run = parse_run(
        subprocess.CompletedProcess([], 2, f"PLAY [Look] ****\n{clock % 0}{printed}", ""), 2.0
    )
    assert (run.code, run.seconds) == (2, 2.0)
    assert run.plays() == [("Look", 1.5), ("Agents", 0.5)]
    assert run.recap == {"pi-1": Recap(12, 3, 0, 1, 4, 1)}
    assert run.recap_lines().startswith("pi-1    : ok=12")
