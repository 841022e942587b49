"""A booted machine with systemd and SSH: a board, or the server.

It is systemd-nspawn on a copy-on-write layer of an image. For Ansible and the tests it is a host
with an address, a user `pi` with sudo, and a known host key.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.rollout.board_images import Image
from tests.rollout.namespaces import BRIDGE, Namespaces

LISTING = Path(__file__).with_name("listing.py")
BOOT_S = 90.0
POLL_S = 0.25
# Facts that no file shows, or that are easier to read than a changed file. Prints lines of
# `kind:name value`.
FACTS = r"""
export LC_ALL=C SYSTEMD_COLORS=0
systemctl list-unit-files --no-legend --no-pager | awk '{print "unit:" $1, $2}'
systemctl list-units --failed --no-legend --plain --no-pager | awk '{print "failed:" $1, $3}'
getent passwd | awk -F: '{print "user:" $1, $3}'
getent group | awk -F: '{print "group:" $1, $3 " " $4}'
dpkg-query -W -f 'package:${Package} ${db:Status-Abbrev} ${Version}\n'
for name in net.ipv4.ping_group_range net.ipv4.ip_unprivileged_port_start kernel.dmesg_restrict \
    net.ipv4.ip_forward vm.overcommit_memory net.netfilter.nf_conntrack_acct; do
    echo "sysctl:$name" $(cat /proc/sys/$(echo $name | tr . /))
done
"""


@dataclass(frozen=True, slots=True)
class MachineExtras:
    """What a machine has besides its image: folders or programs of this machine by their path
    there (read-only), files by their path there with text and mode, and units to enable."""

    binds: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    enabled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SshAccess:
    """The key of the user `pi`, and the file with the known host keys."""

    key: Path
    known_hosts: Path
    sockets: Path

    def options(self) -> list[str]:
        """Options of ssh(1)."""
        return [
            *("-i", str(self.key)),
            *("-o", f"UserKnownHostsFile={self.known_hosts}"),
            *("-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes"),
            *("-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR"),
            *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
        ]

    def shared(self) -> list[str]:
        """Options that let one connection serve many commands."""
        path = self.sockets / "%h"
        return ["-o", "ControlMaster=auto", "-o", "ControlPersist=30", "-o", f"ControlPath={path}"]


class Machine:
    """A machine of the testbed. name: its host name."""

    def __init__(
        self,
        namespaces: Namespaces,
        access: SshAccess,
        image: Image,
        *,
        name: str,
        address: str,
        extras: MachineExtras,
        log: Path,
    ) -> None:
        """Prepare its disk; it does not run yet."""
        self.name, self.address, self.image, self.log = name, address, image, log
        self._namespaces, self._ssh, self._extras = namespaces, access, extras
        self.root = namespaces.disks / name / "root"
        self._prepare_disk()

    def run(
        self, command: str, *, check: bool = True, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root, over SSH. With `check` it must succeed."""
        target = f"pi@{self.address}"
        options = [*self._ssh.options(), *self._ssh.shared()]
        quoted = command.replace("'", "'\\''")
        done = self._namespaces.run(
            "ssh", *options, target, f"sudo -n sh -c '{quoted}'", timeout_s=timeout_s
        )
        if check:
            assert done.returncode == 0, (
                f"{self.name}: {command!r} ended with {done.returncode}:\n"
                f"{done.stdout}{done.stderr}"
            )
        return done

    def wait_for(self, command: str, within_s: float) -> subprocess.CompletedProcess[str]:
        """Run a command until it succeeds, and return that run."""
        deadline_s = time.monotonic() + within_s
        while True:
            try:
                done = self.run(command, check=False, timeout_s=max(within_s, 10))
            except subprocess.TimeoutExpired as late:
                done = subprocess.CompletedProcess(late.args, 255, "", str(late))
            if done.returncode == 0:
                return done
            assert time.monotonic() < deadline_s, (
                f"{self.name}: {command!r} did not succeed within {within_s:g} s:\n"
                f"{done.stdout}{done.stderr}"
            )
            time.sleep(POLL_S)

    def start(self) -> None:
        """Start it; `wait_until_up` waits for the end of its boot."""
        binds = [f"--bind-ro={source}:{there}" for there, source in self._extras.binds.items()]
        nspawn = ["systemd-nspawn", "--register=no", "--keep-unit", "--quiet", "--boot"]
        apart = ["--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe"]
        place = ["-D", str(self.root), "--machine", self.name, f"--network-bridge={BRIDGE}"]
        self._namespaces.start(self.name, self.log, [*nspawn, *apart, *place, *binds])

    def wait_until_up(self, within_s: float = BOOT_S) -> None:
        """Wait until it has booted: all its units have started or failed."""
        self.wait_for("systemctl is-system-running --wait | grep -E 'running|degraded'", within_s)

    def cut_power(self) -> None:
        """End it at once, like a power cut. Its disk stays as it is."""
        self._namespaces.cut(self.name)
        self._close_ssh()

    def reboot(self, within_s: float = BOOT_S) -> None:
        """Shut it down, boot it again, and wait until it is up."""
        before = self._boot_id()
        self.run("systemctl --no-block reboot")
        self._close_ssh()
        self.wait_for(f"test $(cat /proc/sys/kernel/random/boot_id) != {before}", within_s)
        self.wait_until_up(within_s)

    def listing(self) -> dict[str, str]:
        """Every file on its disk but logs, and its unit files, users, groups, packages, sysctls."""
        read = self._namespaces.must(sys.executable, LISTING, self.root, timeout_s=120)
        found: dict[str, str] = json.loads(read)
        facts = [line.partition(" ") for line in self.run(FACTS).stdout.splitlines()]
        return found | {name: value for name, _, value in facts}

    def journal(self, *matches: str) -> str:
        """Its journal, all of it or the lines that match."""
        options = " ".join(("--no-pager", "--output", "short-iso-precise", *matches))
        return self.run(f"journalctl {options}").stdout

    def console(self) -> str:
        """The output on its console."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _boot_id(self) -> str:
        return self.run("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def _close_ssh(self) -> None:
        shared = self._ssh.shared()
        self._namespaces.run("ssh", *shared, "-O", "exit", f"pi@{self.address}", timeout_s=20)

    def _prepare_disk(self) -> None:
        home = self.root.parent
        upper, work = home / "upper", home / "work"
        self._namespaces.must("mkdir", "-p", upper, work, self.root)
        layers = f"lowerdir={self.image.root},upperdir={upper},workdir={work}"
        self._namespaces.must("mount", "-t", "overlay", "overlay", "-o", layers, self.root)
        host_key, public = _host_key(self.log.parent / f"{self.name}.host_key")
        with self._ssh.known_hosts.open("a") as known:
            known.write(f"{self.address} {public}\n")
        self._write("/etc/hostname", f"{self.name}\n")
        self._write("/etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
        self._write("/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n")
        self._write("/etc/ssh/ssh_host_ed25519_key", host_key, 0o600)
        self._write("/etc/ssh/ssh_host_ed25519_key.pub", public + "\n")
        link = f"[Match]\nName=host0\n[Network]\nAddress={self.address}/24\n"
        self._write("/etc/systemd/network/10-host0.network", link)
        pi = self.root / "home" / "pi" / ".ssh"
        keys = self._ssh.key.with_suffix(".pub").read_text()
        self._write("/home/pi/.ssh/authorized_keys", keys, 0o600)
        self._namespaces.must("chown", "--reference", pi, pi / "authorized_keys")
        for path, (text, mode) in self._extras.files.items():
            self._write(path, text, mode)
        for unit in self._extras.enabled:
            self._namespaces.must("systemctl", "--root", self.root, "enable", unit)

    def _write(self, path: str, text: str, mode: int = 0o644) -> None:
        staged = self.log.parent / f"{self.name}.staged"
        staged.write_text(text)
        place = f"{self.root}{path}"
        self._namespaces.must("install", "-D", "-m", f"{mode:o}", staged, place)
        staged.unlink()


def _host_key(file: Path) -> tuple[str, str]:
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)]
    subprocess.run(keygen, check=True, capture_output=True, timeout=20)
    return file.read_text(), file.with_suffix(".host_key.pub").read_text().strip()
