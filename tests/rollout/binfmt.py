"""Lets this machine's kernel run arm64 programs by qemu-user, for as long as it is needed.

Debian's packages register that when they are installed, but not in a container or where
somebody switched it off: there it is switched on, and off again afterwards.
"""

from __future__ import annotations

from tests.rollout.spaces import Spaces

HOME = "/proc/sys/fs/binfmt_misc"
ENTRY = f"{HOME}/qemu-aarch64"
MOUNTED = f"test -e {HOME}/register || mount -t binfmt_misc none {HOME}"
ENABLE, DISABLE = (f"update-binfmts --{word} qemu-aarch64" for word in ("enable", "disable"))
# Runs what follows it on the command line, with the entry there.
AROUND = f"""
set -eu
{MOUNTED}
test -e {ENTRY} || {{ trap '{DISABLE}' EXIT; {ENABLE}; }}
"$@"
"""


def around(command: list[str]) -> list[str]:
    """The command line that runs `command` with arm64 programs, in mounts of its own."""
    return ["unshare", "--mount", "sh", "-c", AROUND, "sh", *command]


def enable(spaces: Spaces) -> None:
    """Let machines run arm64 programs until `spaces` end."""
    spaces.must("sh", "-c", MOUNTED)
    if spaces.run("test", "-e", ENTRY, mounts=True).returncode:
        spaces.at_the_end(DISABLE.split())
        spaces.must(*ENABLE.split())
