"""A fake experiment that is slower than the other one, and is listed first."""

from __future__ import annotations

import time

from leadline_controller.framework.cycle import Strategy
from leadline_experiments.result import Progress, Result, count_claim


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Return a claim on the seed."""
    for step in range(3):
        progress(step / 3)
        time.sleep(0.1)
    return Result(
        "another", "Nobody", {}, [], [count_claim("Fig. 2", "", "It is so.", [seed], [seed])]
    )
