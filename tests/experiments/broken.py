"""A fake experiment that fails."""

from __future__ import annotations

from leadline_controller.framework.cycle import Strategy
from leadline_experiments.result import Progress, Result


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Raise ValueError."""
    raise ValueError("no such load")
