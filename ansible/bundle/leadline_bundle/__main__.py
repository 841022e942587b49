"""`make bundle`: the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from leadline_bundle.build import build
from leadline_bundle.commands import Command
from leadline_bundle.tools import Cache


def main(argv: Sequence[str] | None = None) -> int:
    """Build the bundle; the exit code is 0, 1 after an error, or 130 after Ctrl-C."""

    def work(options: argparse.Namespace) -> None:
        cache = Cache(options.cache)
        release = build(options.source, options.out, cache, os.environ, _say)
        sys.stdout.write(f"{options.out}: {release}\n")

    return Command("leadline_bundle", "a bundle", "dist/bundle", "bundle").run(argv, work)


def _say(text: str) -> None:
    sys.stderr.write(f"bundle: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
