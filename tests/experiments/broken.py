"""One that fails."""

from __future__ import annotations

from leadline_experiments.result import Progress, Result


def run(seed: int, progress: Progress) -> Result:
    """Fail."""
    raise ValueError("no such load")
