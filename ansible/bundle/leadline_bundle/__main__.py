"""`make bundle`: the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from leadline_bundle.build import build
from leadline_bundle.tools import BundleError, Cache

_CHECKOUT = Path(__file__).resolve().parents[3]


def main(argv: Sequence[str] | None = None) -> int:
    """Build the bundle; the exit code is 0, 1 after an error, or 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    os.umask(0o022)  # wheels keep their files' modes, and a bundle has no secrets
    source, out = (
        options.source.resolve(),
        (options.out or options.source / "dist/bundle").resolve(),
    )
    try:
        release = build(source, out, Cache(options.cache), os.environ, _report)
    except BundleError as error:
        sys.stderr.write(f"bundle: {error}\n")
        return 1
    except OSError as error:  # a full disk, or no permission
        sys.stderr.write(f"bundle: {error.filename}: {error.strerror}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("bundle: interrupted; nothing was changed\n")
        return 130
    sys.stdout.write(f"{out}: {release}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="leadline_bundle", description="Make a bundle.")
    parser.add_argument("--source", type=Path, default=_CHECKOUT, help="the checkout (this one)")
    parser.add_argument("--out", type=Path, help="the bundle (dist/bundle in the checkout)")
    parser.add_argument("--cache", type=Path, default=_cache(), help="downloads (%(default)s)")
    return parser


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/")) / ".cache"
    return Path(base) / "leadline" / "bundle"


def _report(step: str) -> None:
    sys.stderr.write(f"bundle: {step}\n")


if __name__ == "__main__":
    sys.exit(main())
