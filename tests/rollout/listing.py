"""A listing of a machine's disk, to compare its state at two times.

It runs as a plain script on this machine's own Python and reads a machine's disk from outside:
`listing.py ROOT` prints a JSON object of paths with their descriptions.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

# Other file systems, temporary files, logs and caches; the state of k3s and kubectl; and the
# folder that Ansible leaves on its hosts.
IGNORED = (
    *("/proc", "/sys", "/run", "/tmp", "/dev", "/var/tmp", "/var/cache", "/var/lib/apt/lists"),
    *("/var/log", "/var/lib/rancher", "/root/.kube", "/home/pi/.ansible"),
)
# Backups that Debian's tools make of the files that they change.
BACKUPS = (
    *("/etc/passwd-", "/etc/shadow-", "/etc/group-", "/etc/gshadow-", "/etc/subuid-"),
    *("/etc/subgid-", "/var/lib/dpkg/status-old", "/var/lib/dpkg/diversions-old"),
)


def listing(root: Path) -> dict[str, str]:
    """Each path under `root` with its type, mode, owner and content or target."""
    return dict(_entries(root))


def _entries(root: Path) -> Iterator[tuple[str, str]]:
    for folder, folders, files in os.walk(root):
        here = folder.removeprefix(str(root)) or "/"
        folders[:] = [name for name in folders if os.path.join(here, name) not in IGNORED]  # noqa: PTH118 - ten thousand paths
        for name in (*folders, *files):
            path = os.path.join(here, name)  # noqa: PTH118 - as above
            if path not in BACKUPS:
                yield path, _describe(Path(folder, name))


def _describe(path: Path) -> str:
    found = path.lstat()
    owner = f"{stat.filemode(found.st_mode)} {found.st_uid}:{found.st_gid}"
    if stat.S_ISLNK(found.st_mode):
        return f"{owner} -> {path.readlink()}"
    if stat.S_ISREG(found.st_mode):
        with path.open("rb") as file:
            return f"{owner} {hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
    return owner


if __name__ == "__main__":
    json.dump(listing(Path(sys.argv[1])), sys.stdout)
