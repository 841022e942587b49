"""What every step of a build uses: its error, the programs that it runs, and the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

_UNUSED_S = 30 * 24 * 3600
_TIMEOUT_S = 1800


class BundleError(Exception):
    """The bundle can't be built; the message says why and what to do, in one line."""


def run(command: Sequence[str | Path], environ: Mapping[str, str], what: str) -> None:
    """Run a program of the build. Raises BundleError with the program's last errors."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and no user input
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise BundleError(f"{what}: {command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BundleError(f"{what}: no end after {_TIMEOUT_S} s; is the network slow?") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines()]
        errors = [line for line in lines if line.lower().startswith(("error:", "caused by:"))]
        last = (errors or [line for line in lines if line])[-3:]
        raise BundleError(f"{what}: {' | '.join(last) or 'it failed and did not say why'}")


def default_cache(name: str) -> Path:
    """Where downloads are kept, unless somebody says otherwise."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/")) / ".cache"
    return Path(caches) / "leadline" / name


def sha256(file: Path) -> str:
    """A file's SHA-256 in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def key_of(*parts: str) -> str:
    """16 hex digits that stand for these texts, in that order."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


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
