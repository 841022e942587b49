"""Runs of the demo, and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from leadline_lab import lab as labs
from leadline_lab.state import RUN_DIR

from tests.system.confined import give_to_nobody
from tests.system.daemons import TIMED, clean_environ

RUN = [sys.executable, "-m", "leadline_controller.cli", "lab", "run"]


LONGEST_S = 540 if not TIMED else 45


MARK = "TEST_OF_THE_DEMO"


class Run:
    """One run of a command; its child processes inherit a mark in the environment."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self._mark = uuid4().hex
        self._folder = folder
        self._files = [(folder / name).open("w+") for name in ("stdout", "stderr")]
        out, err = self._files
        # LEADLINE_NODE: a setting for the agent that this machine may have, and not for the demo's.
        foreign = {"LEADLINE_NODE": "elsewhere", "COLUMNS": "100"}
        environ = {**clean_environ(), **foreign, MARK: self._mark}
        (folder / "tmp").mkdir(mode=0o700)
        give_to_nobody(folder / "tmp")
        environ |= {"HOME": str(folder / "tmp"), "TMPDIR": str(folder / "tmp")}
        self._process = subprocess.Popen(
            # A group of its own, as a shell gives it: the terminal's Ctrl-C goes to all in it.
            argv,
            stdout=out,
            stderr=err,
            env=environ,
            process_group=0,
        )

    @property
    def out(self) -> str:
        return (self._folder / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self._folder / "stderr").read_text()

    def wait(self) -> int:
        return self._process.wait(LONGEST_S)

    def send_to_group(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def left_over(self) -> list[str]:
        """Processes, files and namespaces that are still there."""
        files = [str(path) for path in (self._folder / "tmp").iterdir()]
        networks = [str(path) for path in Path("/run/netns").glob("leadline-demo-*")]
        labs_left = [str(path) for path in RUN_DIR.glob("demo")]
        return [*(f"process {pid}" for pid in self._marked()), *files, *networks, *labs_left]

    def end(self) -> None:
        """End the processes that a failed test left."""
        for pid in self._marked():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        for file in self._files:
            file.close()
        if os.geteuid() == 0:
            labs.down("demo")

    def _marked(self) -> list[int]:
        wanted = f"{MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found
