"""Which files of a folder of Debian packages some packages need, for boards without internet.

The folder holds what all roles need; a board gets only what it lacks of that.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path


class DebsError(Exception):
    """What is wrong with the folder, in one line."""


def needed(folder: Path, names: Sequence[str]) -> list[Path]:
    """The files for `names` and for what those depend on that is there. Raises DebsError."""
    by_name = {}
    for path in sorted(folder.glob("*.deb")):
        fields = control(path)
        by_name[fields["Package"]] = (path, fields)
    missing = [name for name in names if name not in by_name]
    if missing:
        raise DebsError(f"{folder}: expected a .deb of {', '.join(missing)}")
    found: dict[str, Path] = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name in by_name and name not in found:
            found[name], fields = by_name[name]
            depends = ",".join(fields.get(field, "") for field in ("Pre-Depends", "Depends"))
            wanted += re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", depends)
    return sorted(found.values())


def control(path: Path) -> dict[str, str]:
    """The fields of a package's control file. Raises DebsError."""
    try:
        members = dict(_members(path.read_bytes()))
        (name,) = (name for name in members if name.startswith("control.tar"))
        with tarfile.open(fileobj=io.BytesIO(members[name])) as packed:
            file = packed.extractfile("./control")
            text = file.read().decode() if file else ""
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        raise DebsError(f"{path}: expected a Debian package: {error}") from None
    return dict(re.findall(r"^([A-Z][\w-]*): (.*)$", text, re.MULTILINE))


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of an ar archive; see ar(5)."""
    if not data.startswith(b"!<arch>\n"):
        raise ValueError("no archive")
    at = 8
    while at + 60 <= len(data):
        header = data[at : at + 60]
        size = int(header[48:58])
        yield header[:16].decode().rstrip().rstrip("/"), data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
