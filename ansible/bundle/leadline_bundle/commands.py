"""The command line of `make bundle`, `make image` and `make dist`: the same options, and one way to
end."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from leadline_bundle.tools import BundleError, default_cache

_CHECKOUT = Path(__file__).resolve().parents[3]


class Command:
    """A command that builds from a checkout. name: as in `python -m`, and its last part before what
    goes wrong. out: the default folder, in the checkout. cache: the name of its cache."""

    def __init__(self, name: str, makes: str, out: str, cache: str) -> None:
        self._name = name.rpartition(".")[2].removeprefix("leadline_")
        self._out = out
        self.parser = argparse.ArgumentParser(prog=name, description=f"Make {makes}.")
        add = self.parser.add_argument
        add("--source", type=Path, default=_CHECKOUT, help="the checkout (this one)")
        add("--out", type=Path, help=f"where to write ({out} in the checkout)")
        add("--cache", type=Path, default=default_cache(cache), help="downloads (%(default)s)")

    def run(self, argv: Sequence[str] | None, work: Callable[[argparse.Namespace], None]) -> int:
        """Do the work with the options, whose paths are absolute. Returns the exit code: 0, 1 after
        an error, 130 after Ctrl-C."""
        options = self.parser.parse_args(argv)
        options.source = options.source.resolve()
        options.out = (options.out or options.source / self._out).resolve()
        os.umask(0o022)  # wheels keep their files' modes, and nothing that is built has secrets
        try:
            work(options)
        except BundleError as error:
            why = str(error)
        except OSError as error:  # a full disk, or no permission
            why = f"{error.filename}: {error.strerror}"
        except KeyboardInterrupt:
            sys.stderr.write(f"{self._name}: interrupted\n")
            return 130
        else:
            return 0
        sys.stderr.write(f"{self._name}: {why}\n")
        return 1
