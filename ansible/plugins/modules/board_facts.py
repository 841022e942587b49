"""What the rollout must know of a machine before it changes anything, read in one go."""

from __future__ import annotations

import os
import platform
import re
import struct
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: board_facts
short_description: Reads what the roles' checks ask about a machine
version_added: 0.1.0
description:
  - One call in place of Ansible's own facts and half a dozen commands; on a small board each of
    them takes a second or more.
attributes:
  check_mode: {support: full, description: Changes nothing.}
author: The Leadline authors
"""

EXAMPLES = """
- name: Read the machine
  leadline.edge.board_facts:
"""

RETURN = """
ansible_facts:
  description:
    - C(leadline_board) with python, machine, bits, systemd, codename, deb_arch, model,
      memory_cgroup, command_line_file, ping_group_range, read_only, free_mb, and listeners
      (by TCP port the unit and the command that listen there).
    - C(clock_ahead_s), by how much its clock is ahead of the control machine's.
  type: dict
  returned: always
"""

FOLDERS = ("/opt", "/etc", "/var/lib")
COMMAND_LINES = ("/boot/firmware/cmdline.txt", "/boot/cmdline.txt")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(clock_s=time.time(), ansible_facts={"leadline_board": _facts(module)})


def _facts(module: AnsibleModule) -> dict[str, object]:
    _, systemctl, _ = module.run_command(["systemctl", "--version"])
    _, deb_arch, _ = module.run_command(["dpkg", "--print-architecture"])
    systemd = re.match(r"systemd (\d+)\b", systemctl)
    opt = os.statvfs("/opt")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "bits": struct.calcsize("P") * 8,
        "systemd": int(systemd[1]) if systemd else 0,
        "codename": _codename(),
        "deb_arch": deb_arch.strip(),
        "model": _text("/proc/device-tree/model").strip("\0\n"),
        "memory_cgroup": _has_memory_cgroup(),
        "command_line_file": next(
            filter(os.path.exists, COMMAND_LINES), "the kernel's command line"
        ),
        "ping_group_range": _text("/proc/sys/net/ipv4/ping_group_range").split(),
        "read_only": [folder for folder in FOLDERS if os.statvfs(folder).f_flag & os.ST_RDONLY],
        "free_mb": opt.f_bavail * opt.f_frsize // 2**20,
        "listeners": _listeners(),
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _codename() -> str:
    lines = dict(
        line.split("=", 1) for line in _text("/etc/os-release").splitlines() if "=" in line
    )
    return lines.get("VERSION_CODENAME", "").strip('"')


def _has_memory_cgroup() -> bool:
    if "memory" in _text("/sys/fs/cgroup/cgroup.controllers").split():
        return True
    rows = [line.split() for line in _text("/proc/cgroups").splitlines()]
    return any(row[0] == "memory" and row[-1] == "1" for row in rows if row)


def _listeners() -> dict[str, dict[str, str]]:
    """By TCP port the unit and the command that listen there."""
    rows = [
        line.split()
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in _text(table).splitlines()[1:]
    ]
    ports = {row[9]: str(int(row[1].rpartition(":")[2], 16)) for row in rows if row[3] == "0A"}
    found = {port: {"unit": "", "command": ""} for port in ports.values()}
    for process in Path("/proc").glob("[0-9]*"):
        for socket in _sockets(process):
            if socket in ports:
                unit = _text(f"{process}/cgroup").strip().rpartition("/")[2]
                command = _text(f"{process}/comm").strip()
                found[ports[socket]] = {"unit": unit, "command": command}
    return found


def _sockets(process: Path) -> list[str]:
    found = []
    try:
        for descriptor in (process / "fd").iterdir():
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                found.append(target[8:-1])
    except OSError:
        pass  # it ended meanwhile
    return found


if __name__ == "__main__":
    main()
