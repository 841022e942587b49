"""A network, a process table and mounts apart from this machine's, for one run of the tests.

They have no name and belong to one process (`keeper.py`), so nothing of them can be left
behind: it ends when our end of its standard input closes, however the tests ended.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")
BRIDGE = "br0"
ANSWER_S = 30.0


class Spaces:
    """Namespaces with a bridge `br0` at `address` ("10.77.0.1/24"), and machines at it."""

    def __init__(self, folder: Path, address: str) -> None:
        """Make them. `folder` gets a file system in memory at `folder/disks`: only inside."""
        self.disks = folder / "disks"
        self.disks.mkdir()
        new = ("--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--mount-proc")
        kept = ("--kill-child", "--propagation", "private")
        group = f"leadline-rollout-{os.getpid()}"
        self._keeper = subprocess.Popen(
            ["unshare", *new, *kept, sys.executable, str(KEEPER), group],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )
        try:
            self._answer()
            self._prepare(address)
        except BaseException:
            self.close()
            raise

    def command(self, *command: str | Path, mounts: bool = False) -> list[str]:
        """The command line that runs `command` inside, and never longer than they live; with
        `mounts` it sees the disks of the machines too."""
        home = f"/proc/{self._keeper.pid}/ns"
        enter = ["nsenter", f"--net={home}/net", f"--pid={home}/pid_for_children"]
        enter += [f"--mount={home}/mnt"] if mounts else []
        return [*enter, "setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]

    def run(
        self,
        *command: str | Path,
        mounts: bool = False,
        timeout_s: float = 60,
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, to its end."""
        return subprocess.run(
            self.command(*command, mounts=mounts),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=None if environ is None else dict(environ),
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def must(self, *command: str | Path, timeout_s: float = 60) -> str:
        """The output of a command that sees the disks and succeeds; else RuntimeError."""
        done = self.run(*command, mounts=True, timeout_s=timeout_s)
        if done.returncode:
            said = (done.stderr + done.stdout).strip()
            raise RuntimeError(f"{' '.join(map(str, command))}: {said} (needs root)")
        return done.stdout

    def start(self, name: str, log: Path, command: Sequence[str]) -> None:
        """Start a machine; it is started again whenever it reboots."""
        self._ask({"start": name, "command": [str(log), *command]})

    def cut(self, name: str) -> None:
        """End a machine as when its power is cut."""
        self._ask({"cut": name})

    def at_the_end(self, command: Sequence[str]) -> None:
        """Have a command run when all machines have ended, whatever ends them."""
        self._ask({"finally": list(command)})

    def close(self) -> None:
        """End it all."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        try:
            self._keeper.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        assert self._keeper.stdout is not None
        self._keeper.stdout.close()

    def _prepare(self, address: str) -> None:
        for line in (
            f"mount -t tmpfs -o mode=0755,size=8g leadline {self.disks}",
            # A machine's systemd wants the one hierarchy, whatever this machine's systemd uses.
            "umount --recursive /sys/fs/cgroup",
            "mount -t cgroup2 none /sys/fs/cgroup",
            "ip link set lo up",
            f"ip link add {BRIDGE} type bridge",
            f"ip addr add {address} dev {BRIDGE}",
            f"ip link set {BRIDGE} up",
        ):
            self.must(*line.split())

    def _ask(self, order: Mapping[str, object]) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(json.dumps(order).encode() + b"\n")
        self._keeper.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self._keeper.stdout is not None
        if not select.select([self._keeper.stdout], [], [], ANSWER_S)[0]:
            raise TimeoutError(f"the keeper of the machines said nothing for {ANSWER_S:g} s")
        if self._keeper.stdout.readline() != b"done\n":
            raise RuntimeError("the keeper of the machines ended (needs root)")
