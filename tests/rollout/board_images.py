"""The images of the boards, built once and cached for later runs.

They resemble Raspberry Pi OS Lite: they have Python, SSH, sudo and systemd, but neither pip nor
venv nor anything that the roles install. The Debian packages for the roles are downloaded with an
image and stored beside it, because the boards have no internet access. An image has no keys. Its
daily timers, such as apt's, are off: what they write would look like something that a role left.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.rollout import binfmt

BUILD_S = 900
PACKAGES = (
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "sudo",
    "python3",
    "iproute2",
    "iputils-ping",
    "procps",
)
# The packages that the roles install: downloaded, not installed.
WANTED = ("mosquitto", "iperf3")
PREPARE = """
set -eu
chroot "$1" useradd --create-home --shell /bin/bash pi
echo 'pi ALL=(ALL) NOPASSWD: ALL' > "$1/etc/sudoers.d/pi"
mkdir -m 0700 "$1/home/pi/.ssh"
chroot "$1" chown pi:pi /home/pi/.ssh
rm -f "$1"/etc/ssh/ssh_host_*
chroot "$1" systemctl enable systemd-networkd ssh
rm -r "$1"/etc/systemd/system/timers.target.wants
chroot "$1" apt-get clean
chroot "$1" apt-get install --download-only --yes --no-install-recommends {wanted}
mkdir "$1/../debs"
cp "$1"/var/cache/apt/archives/*.deb "$1/../debs/"
"""


class ImageError(Exception):
    """An image could not be built; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A release of Debian for an architecture, and the packages that make it boot."""

    codename: str
    architecture: str
    init: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its folder of Debian packages, such as `bookworm-arm64`."""
        return f"{self.codename}-{self.architecture}"


@dataclass(frozen=True, slots=True)
class Image:
    """A cached image: its root, and the folder of its Debian packages."""

    kind: Kind
    root: Path
    debs: Path


DEBIAN_12 = Kind("bookworm", "amd64")
DEBIAN_13 = Kind("trixie", "amd64")
# Under qemu-user, systemd cannot create the namespaces for credentials, and sudo's set-uid bit has
# no effect. So the programs that start commands have this machine's architecture, and the commands
# have the board's.
DEBIAN_12_ARM64 = Kind(
    "bookworm",
    "arm64",
    init=(
        "systemd:amd64",
        "systemd-sysv:amd64",
        "openssh-server:amd64",
        "sudo:amd64",
        "libpam-modules:amd64",
    ),
    foreign=("amd64",),
)


@contextmanager
def built_meanwhile(kinds: Iterable[Kind]) -> Iterator[None]:
    """Build the missing images side by side while the block runs. Raises ImageError at its end.

    The one for arm64 takes longest, because qemu runs its programs.
    """
    with ThreadPoolExecutor() as pool:
        images = pool.map(image, set(kinds))
        yield
        list(images)


def image(kind: Kind) -> Image:
    """The cached image; it is built if it is missing. Raises ImageError."""
    home = _cache() / f"board-{kind.name}-{_fingerprint(kind)}"
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with home.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not home.is_dir():
                _make(kind, home)
    return Image(kind, home / "root", home / "debs")


def _make(kind: Kind, home: Path) -> None:
    print(f"making a board of {kind.name} (once)", file=sys.stderr)
    half = home.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(mode=0o755)
    command = _command(kind, half / "root")
    if kind.architecture == "arm64":
        command = binfmt.around(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    except FileNotFoundError:
        raise ImageError("mmdebstrap is missing: apt-get install mmdebstrap") from None
    except subprocess.TimeoutExpired:
        shutil.rmtree(half, ignore_errors=True)
        raise ImageError(f"mmdebstrap took longer than {BUILD_S} s for {kind.name}") from None
    if done.returncode:
        shutil.rmtree(half, ignore_errors=True)
        last = " | ".join(done.stderr.strip().splitlines()[-5:])
        raise ImageError(f"mmdebstrap could not make {kind.name}: {last}")
    half.rename(home)


def _command(kind: Kind, root: Path) -> list[str]:
    own = tuple(name for name in PACKAGES if not any(i.startswith(name) for i in kind.init))
    prepare = PREPARE.format(wanted=" ".join(WANTED))
    return [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        f"--architectures={','.join((kind.architecture, *kind.foreign))}",
        f"--include={','.join((*kind.init, *own))}",
        # Without documentation, to save space.
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        f"--customize-hook={prepare}",
        kind.codename,
        str(root),
    ]


def _fingerprint(kind: Kind) -> str:
    command = _command(kind, Path("/"))
    return hashlib.sha256(repr(command).encode()).hexdigest()[:12]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/")) / ".cache"
    return Path(base) / "leadline"


if __name__ == "__main__":
    every = (DEBIAN_12, DEBIAN_13, DEBIAN_12_ARM64)
    with built_meanwhile(every):
        pass
    for each in every:
        print(image(each).root)
