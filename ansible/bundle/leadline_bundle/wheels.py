"""Third-party wheels: downloaded once for each target, and checked against the lock at each use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from leadline_bundle.errors import BundleError
from leadline_bundle.lock import LockedDistribution, for_target, name_and_version, sha256
from leadline_bundle.targets import Target
from leadline_bundle.tools import Cache, Tools

# Pure Python, and published only as source.
BUILT_FROM_SOURCE = frozenset({"iperf3"})


class Wheels:
    """Downloads wheels with pip into the cache."""

    def __init__(self, tools: Tools, cache: Cache) -> None:
        self._tools = tools
        self._cache = cache

    def of(self, locked: Sequence[LockedDistribution], target: Target) -> list[Path]:
        """The wheels that a target installs. Raises BundleError if one has no wheel for it."""
        wanted = for_target(locked, target)
        built = [each for each in wanted if each.name in BUILT_FROM_SOURCE]
        fetched = [replace(each, marker="") for each in wanted if each not in built]
        where = (f"--platform={name}" for name in target.platforms)
        options = (*where, "--implementation=cp", f"--python-version={target.python}")
        return [*self._download(target.name, fetched, *options), *map(self._build, built)]

    def pip(self, locked: Sequence[LockedDistribution]) -> Path:
        """pip's own wheel. Raises BundleError."""
        (wheel,) = self._download("pip", [each for each in locked if each.name == "pip"])
        return wheel

    def _download(
        self, name: str, locked: Sequence[LockedDistribution], *options: str
    ) -> list[Path]:
        text = "".join(each.line() for each in locked)

        def make(folder: Path) -> None:
            what = f"the wheels for {name}, from the package index"
            with _requirements(folder, text) as file:
                requirement = ("--only-binary=:all:", "--require-hashes", "--requirement", file)
                into = ("--no-deps", "--dest", folder)
                self._tools.pip("download", *into, *requirement, *options, what=what)

        key = f"{name}-{_fingerprint(text, *options)}"
        return sorted(
            self._cache.folder(key, make, lambda cached: _is_complete(cached, locked)).iterdir()
        )

    def _build(self, locked: LockedDistribution) -> Path:
        text = replace(locked, marker="").line()

        def make(folder: Path) -> None:
            what = f"the wheel of {locked.name}"
            with _requirements(folder, text) as file:
                requirement = (
                    f"--no-binary={locked.name}",
                    "--require-hashes",
                    "--requirement",
                    file,
                )
                self._tools.wheel(folder, *requirement, what=what)
            if not next(folder.iterdir()).name.endswith("-none-any.whl"):
                raise BundleError(f"{what}: it is for this machine alone, so no board's")

        key = f"{locked.name}-{_fingerprint(text, self._tools.name)}"
        return next(self._cache.folder(key, make, lambda cached: any(cached.iterdir())).iterdir())


@contextmanager
def _requirements(folder: Path, text: str) -> Iterator[Path]:
    """A new folder with a requirements file, which is removed at the end of the block."""
    folder.mkdir()
    file = folder / "requirements.txt"
    file.write_text(text, encoding="utf-8")
    yield file
    file.unlink()


def _is_complete(folder: Path, locked: Sequence[LockedDistribution]) -> bool:
    found = {name_and_version(wheel): sha256(wheel) for wheel in folder.iterdir()}
    return len(found) == len(locked) and all(
        found.get((each.name, each.version)) in each.hashes for each in locked
    )


def _fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
