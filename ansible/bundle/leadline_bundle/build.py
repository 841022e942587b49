"""Puts a bundle together: all of it in a folder beside, which then takes the old one's place."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from leadline_bundle.errors import BundleError
from leadline_bundle.lock import Locked, for_target, read_lock, sha256, whose
from leadline_bundle.targets import TARGETS, Target
from leadline_bundle.tools import Cache, Tools, tools
from leadline_bundle.wheels import Wheels

# What each part of the suite is made of: our own distributions, by their folders.
PARTS: Mapping[str, tuple[str, ...]] = {
    "agent": ("agent", "proto"),
    "controller": ("controller", "proto"),
}
# The builder's own tools, and the pip that boards install with, whatever it packs.
LOCK = Path(__file__).parents[3] / "requirements-bundle.lock"
Tell = Callable[[str], None]


def build(source: Path, out: Path, cache: Cache, environ: Mapping[str, str], tell: Tell) -> str:
    """Make the bundle of a checkout and return its release id. Raises BundleError.

    An existing one that is the same is left as it is; another is replaced when the new one is
    whole.
    """
    version = _version(source / "pyproject.toml")
    out.parent.mkdir(parents=True, exist_ok=True)
    with cache.locked():
        for left in out.parent.glob(f".{out.name}-*"):  # by a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as beside:
            new = Path(beside) / "new"
            _fill(new, source, version, cache, environ, tell)
            release = f"{version}-{fingerprint(new)}"
            (new / "VERSION").write_text(f"{release}\n", encoding="utf-8")
            if not is_bundle(out, release):
                if out.exists():
                    out.rename(Path(beside) / "old")
                new.rename(out)
        cache.prune()
    return release


def fingerprint(bundle: Path) -> str:
    """12 hex digits of the SHA-256 over all files of a bundle and their names, but VERSION."""
    digest = hashlib.sha256()
    for file in sorted(file for file in bundle.rglob("*") if file.is_file()):
        name = file.relative_to(bundle).as_posix()
        if name != "VERSION":
            digest.update(f"{name}\0{sha256(file)}\n".encode())
    return digest.hexdigest()[:12]


def is_bundle(folder: Path, release: str) -> bool:
    """Whether the folder holds this release, whole."""
    version = folder / "VERSION"
    return (
        version.is_file()
        and version.read_text(encoding="utf-8").strip() == release
        and release.endswith(f"-{fingerprint(folder)}")
    )


def _version(file: Path) -> str:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["version"]
        return str(Version(found))
    except OSError as error:
        raise BundleError(f"{file}: {error.strerror}; --source names a checkout") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, InvalidVersion):
        raise BundleError(f"{file}: expected project.version, as in a checkout") from None


def _fill(
    new: Path, source: Path, version: str, cache: Cache, environ: Mapping[str, str], tell: Tell
) -> None:
    made = tools(cache, LOCK, environ)
    for folder in ("wheels", "pip", "units"):
        (new / folder).mkdir(parents=True)
    for part in PARTS:
        _copy(source / "systemd" / f"leadline-{part}.service", new / "units")
    own = _own(source, version, new / "wheels", made, tell)
    wheels = Wheels(made, cache)
    _copy(wheels.pip(read_lock(LOCK)), new / "pip")
    locks = {part: read_lock(source / part / "requirements.lock") for part in PARTS}
    fetched = _fetch(wheels, [each for part in PARTS for each in locks[part]], tell)
    for wheel in {wheel for several in fetched.values() for wheel in several}:
        _copy(wheel, new / "wheels")
    for part, folders in PARTS.items():
        _write(new, part, locks[part] + tuple(own[folder] for folder in folders))


def _own(source: Path, version: str, store: Path, made: Tools, tell: Tell) -> dict[str, Locked]:
    own = {}
    for folder in sorted({folder for folders in PARTS.values() for folder in folders}):
        tell(f"our own wheel of {folder}")
        before = set(store.iterdir())
        made.wheel(store, source / folder, what=f"the wheel of {source / folder}")
        (wheel,) = set(store.iterdir()) - before
        name, its = whose(wheel)
        if Version(its) != Version(version):
            # The rollout waits for a daemon that says the release's version.
            raise BundleError(f"{source / folder}: {name} is {its}, the release {version}")
        own[folder] = Locked(name, its, frozenset({sha256(wheel)}))
    return own


def _fetch(wheels: Wheels, locked: Sequence[Locked], tell: Tell) -> dict[Target, list[Path]]:
    fetched = {}
    for number, target in enumerate(TARGETS, 1):
        tell(f"the wheels for {target.name} ({number} of {len(TARGETS)})")
        fetched[target] = wheels.of(locked, target)
    return fetched


def _write(bundle: Path, part: str, locked: Sequence[Locked]) -> None:
    """The requirements of a part, and for each target a list of the wheels that it takes."""
    folder, store = bundle / part, sorted((bundle / "wheels").iterdir())
    folder.mkdir()
    files = [(*whose(wheel), sha256(wheel)) for wheel in store]
    here = [
        replace(
            each, hashes=frozenset(h for n, v, h in files if (n, v) == (each.name, each.version))
        )
        for each in locked
    ]
    text = "".join(each.line() for each in sorted(here, key=lambda each: (each.name, each.marker)))
    (folder / "requirements.txt").write_text(text, encoding="utf-8")
    for target in TARGETS:
        wanted = {(each.name, each.version) for each in for_target(locked, target)}
        names = [w.name for w in store if whose(w) in wanted and target.takes(w)]
        (folder / f"wheels-{target.name}.txt").write_text("\n".join([*names, ""]))


def _copy(file: Path, folder: Path) -> None:
    try:
        shutil.copyfile(file, folder / file.name)
    except OSError as error:
        raise BundleError(f"{file}: {error.strerror}") from None
