"""The error of a build, and the programs that a build runs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

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
        raise BundleError(f"{what}: {_complaint(done.stderr or done.stdout)}")


def _complaint(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error:", "caused by:"))]
    return " | ".join((errors or lines)[-3:]) or "it failed and did not say why"
