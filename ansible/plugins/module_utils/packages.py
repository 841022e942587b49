"""Debian packages that a role brings, noted so that they can be taken away again.

Only what was not there before is noted, with the users that it made, and before it is installed:
what an interruption left half done is still known to be ours.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Sequence

NOTE = Path("/etc/leadline/installed-packages")
APT_S = 1800
ENVIRON = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
}


class PackagesError(Exception):
    """What apt or dpkg said, in one line."""


class Packages:
    """What the role `owner` installed: lines `<owner> package|user <name>` in the note."""

    def __init__(self, owner: str, note: Path = NOTE) -> None:
        self._owner, self._note = owner, note

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that are not installed, or not to the end."""
        return [name for name in names if not _is_installed(name)]

    def install(self, names: Sequence[str], debs: Sequence[str]) -> None:
        """Install them, from `debs` or else from apt's sources. Raises PackagesError."""
        what = [*(debs or names)]
        self._add("package", _new(what, may_update=not debs))
        users = _users()
        _run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *what])
        self._add("user", sorted(_users() - users))

    def noted(self, kind: str) -> list[str]:
        """What is noted of this owner."""
        return [name for owner, of, name in self._lines() if (owner, of) == (self._owner, kind)]

    def remove(self) -> list[str]:
        """Purge what is noted. Returns what had to stay, since others need it."""
        packages = [name for name in self.noted("package") if _is_known(name)]
        if packages:
            _run(["dpkg", "--purge", *packages], may_fail=True)
        for user in set(self.noted("user")) & _users():
            _run(["userdel", user])
        left = [name for name in packages if _is_known(name)]
        kept = [(self._owner, "package", name) for name in left]
        self._write([line for line in self._lines() if line[0] != self._owner] + kept)
        return left

    def _lines(self) -> list[tuple[str, str, str]]:
        text = self._note.read_text() if self._note.exists() else ""
        words = [line.split() for line in text.splitlines()]
        return [(owner, kind, name) for owner, kind, name in words]

    def _add(self, kind: str, names: Sequence[str]) -> None:
        lines = self._lines()
        new = [(self._owner, kind, name) for name in names]
        self._write(lines + [line for line in new if line not in lines])

    def _write(self, lines: Sequence[tuple[str, str, str]]) -> None:
        if not lines:
            self._note.unlink(missing_ok=True)
            return
        self._note.parent.mkdir(exist_ok=True)
        new = self._note.with_suffix(".new")
        with open(new, "w") as file:
            file.write("".join(" ".join(line) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._note)


def _new(what: Sequence[str], *, may_update: bool) -> list[str]:
    """What apt would install that is not there in any version."""
    simulate = ["apt-get", "install", "-s", "-q", "--no-install-recommends", *what]
    said = _run(simulate, may_fail=may_update)
    if said is None:  # not known yet, or its lists are too old
        _run(["apt-get", "update", "-q"])
        said = _run(simulate)
    return re.findall(r"^Inst (\S+) \(", said or "", re.MULTILINE)


def _is_installed(name: str) -> bool:
    return _status(name) == "install ok installed"


def _is_known(name: str) -> bool:
    return _status(name) not in (None, "unknown ok not-installed")


def _status(name: str) -> str | None:
    said = _run(["dpkg-query", "-W", "-f", "${Status}", name], may_fail=True)
    return said.strip() if said is not None else None


def _users() -> set[str]:
    return {line.split(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}


def _run(command: list[str], *, may_fail: bool = False) -> str | None:
    done = subprocess.run(  # noqa: S603 - our own arguments
        command, capture_output=True, text=True, timeout=APT_S, env=ENVIRON, check=False
    )
    if done.returncode == 0:
        return done.stdout
    if may_fail:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    raise PackagesError(f"{' '.join(command[:2])}: {' / '.join(lines[-3:])}")
