"""Run the system's tools (ip, tc, ethtool), with uniform errors."""

import shlex
import subprocess

from leadline_controller.lab.errors import CommandError

_LIMIT_S = 20.0


def run(*argv: str) -> str:
    """Run a command and return its standard output. Raises :class:`CommandError`."""
    try:
        result = subprocess.run(  # noqa: S603 - a list of words, no shell; names are checked in spec
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        raise CommandError(f"{argv[0]} is not installed (Debian: iproute2, ethtool)") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{shlex.join(argv)}: {error}") from None
    if result.returncode:
        message = " ".join((result.stderr or result.stdout).split()) or "no message"
        raise CommandError(f"{shlex.join(argv)}: exit {result.returncode}: {message}")
    return result.stdout
