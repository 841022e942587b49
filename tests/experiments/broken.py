"""A fake experiment that fails."""

from __future__ import annotations

from leadline_experiments.result import Progress, Result


def run(seed: int, progress: Progress) -> Result:
    """Raise ValueError."""
    raise ValueError("no such load")
