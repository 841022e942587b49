"""Namespaces for the network, processes and mounts of one run of the tests.

They have no name and belong to one process (`machine_supervisor.py`), which ends when its standard
input closes. So nothing is left behind, however the tests end.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SUPERVISOR = Path(__file__).with_name("machine_supervisor.py")
BRIDGE = "br0"
ANSWER_S = 30.0


class Namespaces:
    """Namespaces with a bridge `br0` at `address` ("10.77.0.1/24") and machines on it."""

    def __init__(self, folder: Path, address: str) -> None:
        """Create the namespaces. Only in them, `folder/disks` is a file system in memory."""
        self.disks = folder / "disks"
        self.disks.mkdir()
        new = ("--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--mount-proc")
        kept = ("--kill-child", "--propagation", "private")
        group = f"leadline-rollout-{os.getpid()}"
        self._supervisor = subprocess.Popen(
            ["unshare", *new, *kept, sys.executable, str(SUPERVISOR), group],
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
        """The command line that runs `command` inside and ends it with the namespaces. With
        `mounts` the command sees the disks of the machines."""
        home = f"/proc/{self._supervisor.pid}/ns"
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
        """Run a command inside and wait for its end."""
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
        """The output of a command that sees the disks. Raises RuntimeError if it fails."""
        done = self.run(*command, mounts=True, timeout_s=timeout_s)
        if done.returncode:
            output = (done.stderr + done.stdout).strip()
            raise RuntimeError(f"{' '.join(map(str, command))}: {output} (needs root)")
        return done.stdout

    def start(self, name: str, log: Path, command: Sequence[str]) -> None:
        """Start a machine; the supervisor starts it again after a reboot."""
        self._ask({"start": name, "command": [str(log), *command]})

    def cut(self, name: str) -> None:
        """Kill a machine, like a power cut."""
        self._ask({"cut": name})

    def at_the_end(self, command: Sequence[str]) -> None:
        """Run a command after all machines have ended."""
        self._ask({"finally": list(command)})

    def close(self) -> None:
        """End all machines and the namespaces."""
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.close()
        try:
            self._supervisor.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        assert self._supervisor.stdout is not None
        self._supervisor.stdout.close()

    def _prepare(self, address: str) -> None:
        for line in (
            f"mount -t tmpfs -o mode=0755,size=8g leadline {self.disks}",
            # A machine's systemd needs cgroup2, whatever this machine uses.
            "umount --recursive /sys/fs/cgroup",
            "mount -t cgroup2 none /sys/fs/cgroup",
            "ip link set lo up",
            f"ip link add {BRIDGE} type bridge",
            f"ip addr add {address} dev {BRIDGE}",
            f"ip link set {BRIDGE} up",
        ):
            self.must(*line.split())

    def _ask(self, request: Mapping[str, object]) -> None:
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(json.dumps(request).encode() + b"\n")
        self._supervisor.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self._supervisor.stdout is not None
        if not select.select([self._supervisor.stdout], [], [], ANSWER_S)[0]:
            raise TimeoutError(f"the machine supervisor did not answer within {ANSWER_S:g} s")
        if self._supervisor.stdout.readline() != b"done\n":
            raise RuntimeError("the machine supervisor ended (needs root)")
