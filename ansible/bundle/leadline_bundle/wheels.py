"""The wheels of others: downloaded once for each target, and held to the lock whenever used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from leadline_bundle.errors import BundleError
from leadline_bundle.lock import Locked, for_target, sha256, whose
from leadline_bundle.targets import Target
from leadline_bundle.tools import Cache, Tools

# Published as source alone, and pure Python: the wheel is built here.
BUILT_HERE = frozenset({"iperf3"})


class Wheels:
    """Fetches wheels through pip into the cache."""

    def __init__(self, tools: Tools, cache: Cache) -> None:
        self._tools = tools
        self._cache = cache

    def of(self, locked: Sequence[Locked], target: Target) -> list[Path]:
        """The wheels of all that is locked for this target.

        Raises BundleError where one of them has no wheel for it.
        """
        wanted = for_target(locked, target)
        built = [each for each in wanted if each.name in BUILT_HERE]
        fetched = [replace(each, marker="") for each in wanted if each not in built]
        where = (f"--platform={name}" for name in target.platforms)
        options = (*where, "--implementation=cp", f"--python-version={target.python}")
        return [*self._fetched(target.name, fetched, *options), *map(self._built, built)]

    def pip(self, locked: Sequence[Locked]) -> Path:
        """pip's own wheel. Raises BundleError."""
        (wheel,) = self._fetched("pip", [each for each in locked if each.name == "pip"])
        return wheel

    def _fetched(self, name: str, locked: Sequence[Locked], *options: str) -> list[Path]:
        text = "".join(each.line() for each in locked)

        def make(folder: Path) -> None:
            what = f"the wheels for {name}, from the package index"
            with _requirements(folder, text) as file:
                given = ("--only-binary=:all:", "--require-hashes", "--requirement", file)
                into = ("--no-deps", "--dest", folder)
                self._tools.pip("download", *into, *given, *options, what=what)

        key = f"{name}-{_fingerprint(text, *options)}"
        return sorted(self._cache.folder(key, make, lambda kept: _is_whole(kept, locked)).iterdir())

    def _built(self, locked: Locked) -> Path:
        text = replace(locked, marker="").line()

        def make(folder: Path) -> None:
            what = f"the wheel of {locked.name}"
            with _requirements(folder, text) as file:
                given = (f"--no-binary={locked.name}", "--require-hashes", "--requirement", file)
                self._tools.wheel(folder, *given, what=what)
            if not next(folder.iterdir()).name.endswith("-none-any.whl"):
                raise BundleError(f"{what}: it is for this machine alone, so no board's")

        key = f"{locked.name}-{_fingerprint(text, self._tools.name)}"
        return next(self._cache.folder(key, make, lambda kept: any(kept.iterdir())).iterdir())


@contextmanager
def _requirements(folder: Path, text: str) -> Iterator[Path]:
    """A requirements file in a new folder, which has it only meanwhile."""
    folder.mkdir()
    file = folder / "requirements.txt"
    file.write_text(text, encoding="utf-8")
    yield file
    file.unlink()


def _is_whole(folder: Path, locked: Sequence[Locked]) -> bool:
    found = {whose(wheel): sha256(wheel) for wheel in folder.iterdir()}
    return len(found) == len(locked) and all(
        found.get((each.name, each.version)) in each.hashes for each in locked
    )


def _fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
