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
    caches = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/")) / ".cache"
    cache = Path(caches) / "leadline" / "bundle"
    parser = argparse.ArgumentParser(prog="leadline_bundle", description="Make a bundle.")
    parser.add_argument("--source", type=Path, default=_CHECKOUT, help="the checkout (this one)")
    parser.add_argument("--out", type=Path, help="the bundle (dist/bundle in the checkout)")
    parser.add_argument("--cache", type=Path, default=cache, help="downloads (%(default)s)")
    options = parser.parse_args(argv)
    os.umask(0o022)  # wheels keep their files' modes, and a bundle has no secrets
    source = options.source.resolve()
    out = (options.out or options.source / "dist/bundle").resolve()
    try:
        release = build(source, out, Cache(options.cache), os.environ, _say)
    except BundleError as error:
        _say(str(error))
        return 1
    except OSError as error:  # a full disk, or no permission
        _say(f"{error.filename}: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; nothing was changed")
        return 130
    sys.stdout.write(f"{out}: {release}\n")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"bundle: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
