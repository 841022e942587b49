"""The evidence of a run of the rollout, in files: recaps, durations, differences.

The folder is LEADLINE_EVIDENCE, and `.rollout` beside the Makefile by default.
"""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT = Path(__file__).parents[2] / ".rollout"


class Evidence:
    """A folder of files."""

    def __init__(self) -> None:
        self.folder = Path(os.environ.get("LEADLINE_EVIDENCE") or DEFAULT)
        self.folder.mkdir(parents=True, exist_ok=True)

    def keep(self, name: str, text: str) -> None:
        """Write a file; it replaces that of an earlier run."""
        (self.folder / name).write_text(text if text.endswith("\n") else text + "\n")

    def say(self, name: str, text: str) -> None:
        """Write a file and print it."""
        self.keep(name, text)
        print(f"\n{name}:\n{text}")


def difference(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """A line for each path that was added, removed or changed: `+ path`, `- path`, `~ path`."""
    lines = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old != new:
            sign = "+" if old is None else "-" if new is None else "~"
            lines.append(f"{sign} {path}: {old or 'nothing'} -> {new or 'nothing'}")
    return lines
