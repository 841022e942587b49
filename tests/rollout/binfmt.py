"""Lets this machine's kernel run arm64 programs with qemu-user.

Debian's packages register qemu when they are installed, but not in a container. If it is not
registered, it is registered for the duration of the tests.
"""

from __future__ import annotations

from tests.rollout.namespaces import Namespaces

HOME = "/proc/sys/fs/binfmt_misc"
ENTRY = f"{HOME}/qemu-aarch64"
MOUNTED = f"test -e {HOME}/register || mount -t binfmt_misc none {HOME}"
ENABLE, DISABLE = (f"update-binfmts --{word} qemu-aarch64" for word in ("enable", "disable"))
# Runs its arguments as a command, with qemu registered.
AROUND = f"""
set -eu
{MOUNTED}
test -e {ENTRY} || {{ trap '{DISABLE}' EXIT; {ENABLE}; }}
"$@"
"""


def around(command: list[str]) -> list[str]:
    """The command line that runs `command` with arm64 programs, in its own mount namespace."""
    return ["unshare", "--mount", "sh", "-c", AROUND, "sh", *command]


def enable(namespaces: Namespaces) -> None:
    """Let machines run arm64 programs until their namespaces end."""
    namespaces.must("sh", "-c", MOUNTED)
    if namespaces.run("test", "-e", ENTRY, mounts=True).returncode:
        namespaces.at_the_end(DISABLE.split())
        namespaces.must(*ENABLE.split())
