"""Builds a bundle in a temporary folder, which then replaces the old bundle."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from leadline_bundle.lock import LockedDistribution, for_target, name_and_version, read_lock
from leadline_bundle.targets import TARGETS
from leadline_bundle.tools import BundleError, Cache, sha256
from leadline_bundle.wheels import Wheels

# The folders of each part's own distributions; the first has its lock, too.
PARTS: Mapping[str, tuple[str, ...]] = {
    "agent": ("agent", "proto"),
    "controller": ("controller", "proto"),
    "flows": ("agent/flows",),
}
Progress = Callable[[str], None]


def build(
    source: Path, out: Path, cache: Cache, environ: Mapping[str, str], progress: Progress
) -> str:
    """Build the bundle of a checkout and return its release id. Raises BundleError.

    An identical bundle is left as it is; another is replaced once the new one is complete.
    """
    version = release_version(source / "pyproject.toml")
    out.parent.mkdir(parents=True, exist_ok=True)
    with cache.locked():
        for leftover in out.parent.glob(f".{out.name}-*"):  # of a run that was killed
            # What cannot be removed only takes space: no later run uses it.
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as temporary:
            new = Path(temporary) / "new"
            _fill(new, source, version, cache, environ, progress)
            release = f"{version}-{fingerprint(new)}"
            (new / "VERSION").write_text(f"{release}\n", encoding="utf-8")
            if not is_bundle(out, release):
                if out.exists():
                    out.rename(Path(temporary) / "old")
                new.rename(out)
        cache.prune()
    return release


def fingerprint(bundle: Path) -> str:
    """12 hex digits of the SHA-256 of a bundle's files and their names, without VERSION."""
    digest = hashlib.sha256()
    for file in sorted(file for file in bundle.rglob("*") if file.is_file()):
        name = file.relative_to(bundle).as_posix()
        if name != "VERSION":
            digest.update(f"{name}\0{sha256(file)}\n".encode())
    return digest.hexdigest()[:12]


def is_bundle(folder: Path, release: str) -> bool:
    """Whether the folder has this release, complete and unchanged."""
    version = folder / "VERSION"
    return (
        version.is_file()
        and version.read_text(encoding="utf-8").strip() == release
        and release.endswith(f"-{fingerprint(folder)}")
    )


def release_version(file: Path) -> str:
    """The version in a checkout's pyproject.toml. Raises BundleError."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["version"]
        return str(Version(found))
    except OSError as error:
        raise BundleError(f"{file}: {error.strerror}; --source names a checkout") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, InvalidVersion):
        raise BundleError(f"{file}: expected project.version, as in a checkout") from None


def _fill(
    new: Path,
    source: Path,
    version: str,
    cache: Cache,
    environ: Mapping[str, str],
    progress: Progress,
) -> None:
    wheels = Wheels(cache, environ)
    for folder in ("wheels", "pip", "units"):
        (new / folder).mkdir(parents=True)
    for part in PARTS:
        _copy(source / "systemd" / f"leadline-{part}.service", new / "units")
    built = _build_own_wheels(source, version, new / "wheels", wheels, progress)
    _copy(wheels.pip(), new / "pip")
    locks = {part: read_lock(source / own[0] / "requirements.lock") for part, own in PARTS.items()}
    fetched: set[Path] = set()
    for number, target in enumerate(TARGETS, 1):
        progress(f"the wheels for {target.name} ({number} of {len(TARGETS)})")
        fetched.update(wheels.of([each for part in PARTS for each in locks[part]], target))
    for wheel in fetched:
        _copy(wheel, new / "wheels")
    for part, folders in PARTS.items():
        _write(new, part, locks[part] + tuple(built[folder] for folder in folders))


def _build_own_wheels(
    source: Path, version: str, store: Path, wheels: Wheels, progress: Progress
) -> dict[str, LockedDistribution]:
    own = {}
    for folder in sorted({folder for folders in PARTS.values() for folder in folders}):
        progress(f"our own wheel of {folder}")
        before = set(store.iterdir())
        wheels.build(store, source / folder, what=f"the wheel of {source / folder}")
        (wheel,) = set(store.iterdir()) - before
        name, found = name_and_version(wheel)
        if Version(found) != Version(version):
            # The rollout waits until the daemons report the release's version.
            raise BundleError(f"{source / folder}: {name} is {found}, the release {version}")
        own[folder] = LockedDistribution(name, found, frozenset({sha256(wheel)}))
    return own


def _write(bundle: Path, part: str, locked: Sequence[LockedDistribution]) -> None:
    """Write a part's requirements and, for each target, the list of its wheels."""
    folder, store = bundle / part, sorted((bundle / "wheels").iterdir())
    folder.mkdir()
    files = [(name_and_version(wheel), sha256(wheel)) for wheel in store]
    lines = []
    for each in sorted(locked, key=lambda each: (each.name, each.marker)):
        here = frozenset(found for key, found in files if key == (each.name, each.version))
        lines.append(replace(each, hashes=here).line())
    (folder / "requirements.txt").write_text("".join(lines), encoding="utf-8")
    for target in TARGETS:
        wanted = {(each.name, each.version) for each in for_target(locked, target)}
        names = [w.name for w in store if name_and_version(w) in wanted and target.takes(w)]
        (folder / f"wheels-{target.name}.txt").write_text("\n".join([*names, ""]))


def _copy(file: Path, folder: Path) -> None:
    try:
        shutil.copyfile(file, folder / file.name)
    except OSError as error:
        raise BundleError(f"{file}: {error.strerror}") from None
