"""Builds our own wheels, and downloads the third-party ones, once for each target.

pip, hatchling and setuptools are those of requirements-bundle.lock, in their own environment. So
building a wheel downloads nothing, and the same source always gives the same wheel. What was
downloaded is in the user's cache, and checked against the lock at each use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from leadline_bundle.lock import LockedDistribution, for_target, name_and_version, read_lock
from leadline_bundle.targets import Target
from leadline_bundle.tools import BundleError, Cache, key_of, run, sha256

UV = Path(sys.executable).parent / "uv"
# The builder's own tools, and the pip of the boards.
LOCK = Path(__file__).parents[3] / "requirements-bundle.lock"
# Pure Python, and published only as source.
BUILT_FROM_SOURCE = frozenset({"iperf3"})
# Any fixed time works; a zip file has none before 1980.
EPOCH_S = "1577836800"


def environment(name: str, lock: Path, cache: Cache, environ: Mapping[str, str]) -> Path:
    """A virtual environment with what is in this lock, from the cache. Raises BundleError."""

    def make(folder: Path) -> None:
        what = f"the programs of {lock.name}, from the package index"
        venv = ("venv", "--quiet", "--relocatable", "--python", sys.executable, folder)
        run([UV, *venv], environ, what)
        into = ("--python", folder / "bin/python")
        options = ("--quiet", "--require-hashes", "--requirements", lock)
        run([UV, "pip", "install", *into, *options], environ, what)

    key = f"{name}-{sha256(lock)[:16]}"
    return cache.folder(key, make, lambda cached: (cached / "bin/python").exists())


class Wheels:
    """Makes wheels with the tools of LOCK. Its methods raise BundleError."""

    def __init__(self, cache: Cache, environ: Mapping[str, str]) -> None:
        """Install the tools, unless the cache has them. Raises BundleError."""
        self._cache = cache
        folder = environment("tools", LOCK, cache, environ)
        self._tools = folder.name
        self._python = folder / "bin/python"
        self._environ = {
            **{k: v for k, v in environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))},
            "SOURCE_DATE_EPOCH": EPOCH_S,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
        }

    def build(self, folder: Path, *source: str | Path, what: str) -> None:
        """Build a wheel into `folder`. Raises BundleError, whose message starts with `what`."""
        fixed = ("--no-deps", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", folder)
        self._pip("wheel", *fixed, *source, what=what)

    def of(self, locked: Sequence[LockedDistribution], target: Target) -> list[Path]:
        """The wheels that a target installs. Raises BundleError if one has no wheel for it."""
        wanted = for_target(locked, target)
        built = [each for each in wanted if each.name in BUILT_FROM_SOURCE]
        fetched = [replace(each, marker="") for each in wanted if each not in built]
        where = (f"--platform={name}" for name in target.platforms)
        options = (*where, "--implementation=cp", f"--python-version={target.python}")
        return [*self._download(target.name, fetched, *options), *map(self._built, built)]

    def pip(self) -> Path:
        """pip's own wheel. Raises BundleError."""
        (wheel,) = self._download("pip", [each for each in read_lock(LOCK) if each.name == "pip"])
        return wheel

    def _pip(self, *arguments: str | Path, what: str) -> None:
        run([self._python, "-m", "pip", *arguments], self._environ, what)

    def _download(
        self, name: str, locked: Sequence[LockedDistribution], *options: str
    ) -> list[Path]:
        text = "".join(each.line() for each in locked)

        def make(folder: Path) -> None:
            what = f"the wheels for {name}, from the package index"
            with _requirements(folder, text) as file:
                requirement = ("--only-binary=:all:", "--require-hashes", "--requirement", file)
                into = ("--no-deps", "--dest", folder)
                self._pip("download", *into, *requirement, *options, what=what)

        key = f"{name}-{key_of(text, *options)}"
        return sorted(
            self._cache.folder(key, make, lambda cached: _is_complete(cached, locked)).iterdir()
        )

    def _built(self, locked: LockedDistribution) -> Path:
        text = replace(locked, marker="").line()

        def make(folder: Path) -> None:
            what = f"the wheel of {locked.name}"
            with _requirements(folder, text) as file:
                source = (f"--no-binary={locked.name}", "--require-hashes", "--requirement", file)
                self.build(folder, *source, what=what)
            if not next(folder.iterdir()).name.endswith("-none-any.whl"):
                raise BundleError(f"{what}: it is for this machine alone, so no board's")

        key = f"{locked.name}-{key_of(text, self._tools)}"
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
