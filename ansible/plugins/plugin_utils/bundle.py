"""What of a bundle a board needs: the wheels travel over 100 Mbit/s and end on an SD card."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAKE = "run `make bundle` on this machine"
_ID = re.compile(r"[0-9A-Za-z.+_]+-[0-9a-f]{12}")


class BundleError(Exception):
    """What is wrong with the bundle and what to do, in one line."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A folder that `make bundle` made, which part of it, and where its wheels must run.

    `python` such as "3.11.2", `machine` such as "aarch64".
    """

    folder: Path
    part: str
    python: str
    machine: str

    @property
    def release(self) -> str:
        """Its id. Raises BundleError."""
        try:
            found = (self.folder / "VERSION").read_text().strip()
        except OSError:
            raise BundleError(f"{self.folder}: there is no bundle here: {MAKE}") from None
        if not _ID.fullmatch(found):
            raise BundleError(f"{self.folder}/VERSION: expected VERSION-HASH, found {found[:80]!r}")
        return found

    def files(self) -> dict[str, Path]:
        """What such a board needs, by its name in the archive. Raises BundleError."""
        requirements = self._needed(f"{self.part}/requirements.txt")
        unit = f"units/leadline-{self.part}.service"
        found = {"requirements.txt": requirements, unit: self._needed(unit)}
        pips = sorted((self.folder / "pip").glob("pip-*.whl"))
        if len(pips) != 1:
            raise BundleError(f"{self.folder}/pip: expected one wheel of pip: {MAKE} again")
        found[f"pip/{pips[0].name}"] = pips[0]
        locked = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", requirements.read_text()))
        for wheel in self._wheels():
            if hashlib.sha256(wheel.read_bytes()).hexdigest() not in locked:
                raise BundleError(
                    f"{wheel}: not the file that the bundle's lock names: {MAKE} again"
                )
            found[f"wheels/{wheel.name}"] = wheel
        return found

    def pack(self, archive: Path) -> None:
        """Write what such a board needs into one file. Raises BundleError."""
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
            for name, path in self.files().items():
                packed.write(path, name)

    def _wheels(self) -> Iterator[Path]:
        # As the bundle calls a platform, such as "cp311-aarch64".
        platform = f"cp{''.join(self.python.split('.')[:2])}-{self.machine}"
        names = self.folder / self.part / f"wheels-{platform}.txt"
        if not names.is_file():
            others = sorted(names.parent.glob("wheels-*.txt"))
            made_for = ", ".join(other.stem.removeprefix("wheels-") for other in others)
            raise BundleError(
                f"{self.folder}: no wheels for Python {self.python} on {self.machine}: the bundle "
                f"was made for {made_for or 'nothing'}"
            )
        for name in names.read_text().split():
            yield self._needed(f"wheels/{name}")

    def _needed(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise BundleError(f"{path}: the bundle is not whole: {MAKE} again")
        return path
