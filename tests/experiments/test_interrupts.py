"""`leadline experiment all` leaves no processes behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import wait_until

CODE = """
import sys
from leadline_experiments import command
command.EXPERIMENTS = {name: "tests.experiments.endless" for name in "ab"}
from leadline_controller.cli.__main__ import run
if __name__ == "__main__":
    sys.exit(run(["experiment", "all"]))
"""


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """The command with two endless experiments, and their process ids."""
    file, script = folder / "pids", folder / "both.py"
    file.touch()
    script.write_text(CODE)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "ENDLESS_PIDS": str(file), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        wait_until(lambda: len(file.read_text().splitlines()) == 2, "both are at work", 30)
        yield process, [int(pid) for pid in file.read_text().split()]
    finally:
        for pid in (process.pid, *map(int, file.read_text().split())):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_ends_all_processes_without_output(tmp_path: Path) -> None:
    with running(tmp_path) as (process, workers):
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err.strip()) == (130, "", "")
        wait_until(lambda: not any(map(alive, workers)), "the workers are gone")


def test_workers_end_when_the_command_is_killed(tmp_path: Path) -> None:
    with running(tmp_path) as (process, workers):
        process.kill()
        process.wait(20)
        wait_until(lambda: not any(map(alive, workers)), "the workers are gone")
