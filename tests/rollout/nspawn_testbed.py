"""The testbed: a server and three boards in systemd-nspawn on one bridge, and Ansible for them.

The control machine is this machine, in the testbed's network. `folder` has all files of a run: the
inventory, the certificate authority, keys and logs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rollout import binfmt
from tests.rollout.board_images import DEBIAN_12, DEBIAN_12_ARM64, DEBIAN_13, Kind, image
from tests.rollout.evidence import Evidence
from tests.rollout.machines import Machine, MachineExtras, SshAccess
from tests.rollout.namespaces import Namespaces

REPOSITORY = Path(__file__).parents[2]
NETWORK = "10.77.0"
SERVER = "server"
KINDS = {
    SERVER: DEBIAN_12,
    "pi-1": DEBIAN_12,
    "pi-2": DEBIAN_13,
    "pi-3": DEBIAN_12_ARM64,
}
ADDRESSES = {name: f"{NETWORK}.{10 + number}" for number, name in enumerate(KINDS)}
PLAY_S = 1200.0
_RECAP = re.compile(
    r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)\s+skipped=(\d+)"
    r"\s+rescued=(\d+)",
    re.MULTILINE,
)
# The total time that ansible.posix.profile_tasks prints below a task's name.
_CLOCK = re.compile(r"\(\d+:\d+:[\d.]+\) +(\d+):(\d+):([\d.]+) \*")


@dataclass(frozen=True, slots=True)
class Recap:
    """A host's line of PLAY RECAP: numbers of tasks."""

    ok: int
    changed: int
    unreachable: int
    failed: int
    skipped: int
    rescued: int


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run of ansible-playbook."""

    code: int
    output: str
    seconds: float
    recap: Mapping[str, Recap]

    def recap_lines(self) -> str:
        """The printed lines of PLAY RECAP."""
        recap = self.output.rpartition("PLAY RECAP")[2].partition("\n")[2]
        return recap.partition("\n\n")[0].strip()

    def plays(self) -> list[tuple[str, float]]:
        """Name and seconds of each play; a batch of hosts is a play."""
        names: list[str] = []
        began_s: list[float] = []
        for line in self.output.splitlines():
            if line.startswith("PLAY ["):
                names.append(line.partition("[")[2].partition("]")[0])
            elif clock := _CLOCK.search(line):
                hours, minutes, seconds = clock.groups()
                now_s = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
                began_s += [now_s] * (len(names) - len(began_s))
        edges_s = [*began_s, *([self.seconds] * (len(names) - len(began_s) + 1))]
        return [(name, edges_s[i + 1] - edges_s[i]) for i, name in enumerate(names)]

    def report(self) -> str:
        """The recap and the duration of each play; here a play's batch is one board."""
        plays = [f"{seconds:6.1f} s  {name}" for name, seconds in self.plays()]
        return "\n".join((self.recap_lines(), *plays, f"{self.seconds:6.1f} s  all of it"))


class NspawnTestbed:
    """Machines that run until `close`. bare: the listing of each disk after the first boot. Raises
    ImageError, RuntimeError."""

    def __init__(
        self,
        folder: Path,
        extras: Mapping[str, MachineExtras],
        kinds: Mapping[str, Kind],
    ) -> None:
        """Boot all machines and wait until they are up."""
        self.folder = folder
        self._deployed: Run | None = None
        self.namespaces = Namespaces(folder, f"{NETWORK}.1/24")
        try:
            self._ssh = _ssh_access(folder)
            if any(kind.architecture == "arm64" for kind in kinds.values()):
                binfmt.enable(self.namespaces)
            self.machines = {
                name: self._machine(name, kind, extras.get(name, MachineExtras()))
                for name, kind in kinds.items()
            }
            self.inventory = folder / "inventory.yml"
            self._lay_out_ansible()
            for machine in self.machines.values():
                machine.start()
            for machine in self.machines.values():
                machine.wait_until_up()
            self.bare = self.listings()
        except BaseException:
            self.close()
            raise

    @property
    def server(self) -> Machine:
        """The machine of the broker, k3s and the controller."""
        return self.machines[SERVER]

    @property
    def boards(self) -> dict[str, Machine]:
        """The boards by name."""
        return {name: each for name, each in self.machines.items() if name != SERVER}

    def listings(self) -> dict[str, dict[str, str]]:
        """The listing of each machine, read side by side."""
        with ThreadPoolExecutor() as pool:
            read = pool.map(Machine.listing, self.machines.values())
            return dict(zip(self.machines, read, strict=True))

    def close(self) -> None:
        """End every machine; only `folder` remains."""
        self.namespaces.close()

    def ansible(
        self,
        playbook: str,
        *args: str,
        limit: str | None = None,
        extra: Mapping[str, object] | None = None,
        check: bool = True,
        timeout_s: float = PLAY_S,
    ) -> Run:
        """Run a playbook of the collection (`site`, or a file) on the inventory.

        With `check` it must succeed. `extra` are variables that override the inventory's.
        """
        name = playbook if playbook.endswith(".yml") else f"leadline.edge.{playbook}"
        command = [str(Path(sys.executable).with_name("ansible-playbook")), name, *args]
        command += ["--inventory", str(self.inventory)]
        command += ["--limit", limit] if limit else []
        command += (
            ["--extra-vars", yaml.safe_dump(dict(extra), default_flow_style=True)] if extra else []
        )
        begin_s = time.monotonic()
        done = self.namespaces.run(*command, timeout_s=timeout_s, environ=self._environ())
        run = parse_run(done, time.monotonic() - begin_s)
        if check:
            assert run.code == 0, run.output
        return run

    def deploy(self, evidence: Evidence) -> Run:
        """Run `site` on all machines once; later calls return the result of that run."""
        if self._deployed is None:
            self._deployed = self.ansible("site")
            evidence.keep("site.txt", self._deployed.output)
        return self._deployed

    def set_bundle(self, folder: Path) -> None:
        """Name another bundle in the inventory."""
        inventory = yaml.safe_load(self.inventory.read_text())
        inventory["all"]["vars"]["leadline_bundle_dir"] = str(folder)
        self.inventory.write_text(yaml.safe_dump(inventory))

    def vary(self, host: str, **variables: object) -> None:
        """Change a host's variables in the inventory; None removes one."""
        inventory = yaml.safe_load(self.inventory.read_text())
        own = inventory["all"]["hosts"][host]
        own.update(variables)
        for name in [name for name, value in variables.items() if value is None]:
            del own[name]
        self.inventory.write_text(yaml.safe_dump(inventory))

    def _environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
        return kept | {
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORKS": "4",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self._ssh.sockets),
            "ANSIBLE_CALLBACKS_ENABLED": "ansible.posix.profile_tasks",
        }

    def _machine(self, name: str, kind: Kind, extras: MachineExtras) -> Machine:
        return Machine(
            self.namespaces,
            self._ssh,
            image(kind),
            name=name,
            address=ADDRESSES[name],
            extras=extras,
            log=self.folder / f"{name}.console",
        )

    def _lay_out_ansible(self) -> None:
        # A copy, so that changes in the checkout do not affect a run.
        home = self.folder / "collections" / "ansible_collections" / "leadline" / "edge"
        shutil.copytree(REPOSITORY / "ansible", home, ignore=shutil.ignore_patterns("__pycache__"))
        debs = self.folder / "debs"
        debs.mkdir()
        for machine in self.machines.values():
            link = debs / machine.image.kind.name
            if not link.exists():
                link.symlink_to(machine.image.debs)
        self.inventory.write_text(yaml.safe_dump(self._inventory()))

    def _inventory(self) -> dict[str, Any]:
        hosts = {name: {"ansible_host": each.address} for name, each in self.machines.items()}
        common = " ".join(self._ssh.options())
        return {
            "all": {
                "hosts": hosts,
                "vars": {
                    "ansible_user": "pi",
                    "ansible_python_interpreter": "/usr/bin/python3",
                    "ansible_ssh_common_args": common,
                    "leadline_bundle_dir": str(self.folder / "bundle"),
                    "leadline_pki_dir": str(self.folder / "pki"),
                    "leadline_debs_dir": str(self.folder / "debs"),
                    "leadline_broker_address": self.server.address,
                    # Answered for other machines, with certificates of the role pki.
                    "controller_settings": {
                        "metrics": {"address": "0.0.0.0:25508"},
                        "web": {"address": "0.0.0.0:25509"},
                    },
                    "pki_metrics_clients": ["prometheus"],
                    "pki_web_clients": ["alice"],
                    # A short interval, so that a gap in the reports is visible.
                    "agent_interval_s": 2,
                },
                "children": {
                    "leadline_broker": {"hosts": {SERVER: None}},
                    "leadline_controllers": {"hosts": {SERVER: None}},
                    "leadline_agents": {"hosts": dict.fromkeys(self.boards)},
                },
            }
        }


@contextmanager
def booted(
    folder: Path,
    extras: Mapping[str, MachineExtras] | None = None,
    kinds: Mapping[str, Kind] = KINDS,
) -> Iterator[NspawnTestbed]:
    """A testbed for the duration of a block."""
    with closing(NspawnTestbed(folder, extras or {}, kinds)) as running:
        yield running


def _ssh_access(folder: Path) -> SshAccess:
    key, known, sockets = folder / "key", folder / "known_hosts", folder / "s"
    sockets.mkdir(mode=0o700)
    known.touch()
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(key)]
    subprocess.run(keygen, check=True, capture_output=True, timeout=20)
    return SshAccess(key, known, sockets)


def parse_run(done: subprocess.CompletedProcess[str], seconds: float) -> Run:
    """The result of a run of ansible-playbook from its output."""
    output = done.stdout + done.stderr
    lines = _RECAP.findall(output.rpartition("PLAY RECAP")[2])
    recap = {host: Recap(*map(int, numbers)) for host, *numbers in lines}
    return Run(done.returncode, output, seconds, recap)
