"""`make bundle`: the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from leadline_bundle.build import build
from leadline_bundle.tools import Cache, default_cache, ended

_CHECKOUT = Path(__file__).resolve().parents[3]


def main(argv: Sequence[str] | None = None) -> int:
    """Build the bundle; the exit code is 0, 1 after an error, or 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="leadline_bundle", description="Make a bundle.")
    parser.add_argument("--source", type=Path, default=_CHECKOUT, help="the checkout (this one)")
    parser.add_argument("--out", type=Path, help="the bundle (dist/bundle in the checkout)")
    parser.add_argument(
        "--cache", type=Path, default=default_cache("bundle"), help="downloads (%(default)s)"
    )
    options = parser.parse_args(argv)
    os.umask(0o022)  # wheels keep their files' modes, and a bundle has no secrets
    source = options.source.resolve()
    out = (options.out or options.source / "dist/bundle").resolve()

    def work() -> None:
        release = build(source, out, Cache(options.cache), os.environ, _say)
        sys.stdout.write(f"{out}: {release}\n")

    return ended("bundle", work)


def _say(text: str) -> None:
    sys.stderr.write(f"bundle: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
