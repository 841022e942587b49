"""The programs that build wheels, checked by hash and kept in the user's cache.

They are pip, hatchling and setuptools of requirements-bundle.lock in their own environment. So a
build downloads nothing, and the same source always gives the same wheel.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

from leadline_bundle.errors import run
from leadline_bundle.lock import sha256

# Any fixed time works; a zip file has none before 1980.
_EPOCH_S = "1577836800"
_UNUSED_S = 30 * 24 * 3600


class Cache:
    """Folders of downloads; a folder's name is derived from its inputs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._used: set[str] = set()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for changes of the cache."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as handle:
            flock(handle, LOCK_EX)
            yield

    def folder(
        self, name: str, make: Callable[[Path], None], is_complete: Callable[[Path], bool]
    ) -> Path:
        """The folder of this name. If it is missing or incomplete, `make` creates it."""
        cached = self._folder / name
        self._used.add(name)
        if not (cached.is_dir() and is_complete(cached)):
            shutil.rmtree(cached, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix="new-", dir=self._folder) as temporary:
                make(Path(temporary) / name)
                (Path(temporary) / name).rename(cached)
        os.utime(cached)
        return cached

    def prune(self) -> None:
        """Remove folders unused for a month, and those of killed runs."""
        for folder in self._folder.iterdir():
            is_old = time.time() - folder.stat().st_mtime > _UNUSED_S
            if folder.name.startswith("new-") or (is_old and folder.name not in self._used):
                shutil.rmtree(folder, ignore_errors=True)


class Tools:
    """pip with hatchling and setuptools."""

    def __init__(self, python: Path, name: str, environ: Mapping[str, str]) -> None:
        """name: differs between versions of the tools."""
        self.name = name
        self._python = python
        own = {k: v for k, v in environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        self._environ = {
            **own,
            "SOURCE_DATE_EPOCH": _EPOCH_S,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
        }

    def pip(self, *arguments: str | Path, what: str) -> None:
        """Run pip. Raises BundleError, whose message starts with `what`."""
        run([self._python, "-m", "pip", *arguments], self._environ, what)

    def wheel(self, folder: Path, *source: str | Path, what: str) -> None:
        """Build a wheel into `folder`. Raises BundleError."""
        fixed = ("--no-deps", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", folder)
        self.pip("wheel", *fixed, *source, what=what)


def prepare_tools(cache: Cache, lock: Path, environ: Mapping[str, str]) -> Tools:
    """The tools of this lock file. Raises BundleError."""
    name = f"tools-{sha256(lock)[:16]}"
    uv = Path(sys.executable).parent / "uv"

    def make(folder: Path) -> None:
        what = "the tools that build wheels, from the package index"
        run(
            [uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, folder],
            environ,
            what,
        )
        into = ("--python", folder / "bin" / "python")
        options = ("--quiet", "--require-hashes", "--requirements", lock)
        run([uv, "pip", "install", *into, *options], environ, what)

    python = Path("bin") / "python"
    folder = cache.folder(name, make, lambda cached: (cached / python).exists())
    return Tools(folder / python, name, environ)
