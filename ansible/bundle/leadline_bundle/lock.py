"""Requirements files with hashes: the lock files, and the shorter ones of the bundle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from leadline_bundle.targets import Target
from leadline_bundle.tools import BundleError


@dataclass(frozen=True, slots=True)
class LockedDistribution:
    """A version of a distribution with its accepted files.

    hashes: SHA-256 in hex. marker: an environment marker, empty without a condition.
    """

    name: str
    version: str
    hashes: frozenset[str]
    marker: str = ""

    def line(self) -> str:
        """Its line of a requirements file, continued over several lines."""
        condition = f" ; {self.marker}" if self.marker else ""
        hashes = "".join(f" \\\n    --hash=sha256:{each}" for each in sorted(self.hashes))
        return f"{self.name}=={self.version}{condition}{hashes}\n"


def read_lock(file: Path) -> tuple[LockedDistribution, ...]:
    """The distributions of a lock file. Raises BundleError."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise BundleError(f"{file}: {error.strerror}; it is made by `make lock`") from None
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    logical = "\n".join(lines).replace("\\\n", " ").splitlines()
    return tuple(_parse_line(line, file) for line in logical if line.strip())


def _parse_line(line: str, file: Path) -> LockedDistribution:
    spec, *hashes = line.split(" --hash=sha256:")
    try:
        found = Requirement(spec)
        (version,) = (each.version for each in found.specifier if each.operator == "==")
    except (InvalidRequirement, ValueError):
        raise BundleError(f"{file}: expected NAME==VERSION, found {spec.strip()!r}") from None
    if not hashes:
        raise BundleError(f"{file}: {found.name}: expected hashes; `make lock` writes them")
    names = frozenset(each.strip() for each in hashes)
    return LockedDistribution(
        canonicalize_name(found.name), version, names, str(found.marker or "")
    )


def for_target(
    locked: Iterable[LockedDistribution], target: Target
) -> tuple[LockedDistribution, ...]:
    """The distributions that the target installs, each once, by name."""
    found = {
        each.name: each
        for each in locked
        if not each.marker or Marker(each.marker).evaluate(dict(target.markers))
    }
    return tuple(found[name] for name in sorted(found))


def name_and_version(wheel: Path) -> tuple[str, str]:
    """Name and version from a wheel's file name. Raises BundleError."""
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename:
        raise BundleError(f"{wheel}: that is no name of a wheel") from None
    return name, str(version)
