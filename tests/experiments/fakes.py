"""A fake experiment with rows, claims and a figure."""

from __future__ import annotations

from random import Random

from leadline_controller.framework.cycle import Strategy
from leadline_experiments.result import (
    Figure,
    Progress,
    Result,
    Row,
    Series,
    Setting,
    count_claim,
    gain_claim,
)

FIGURE = Figure(
    "fake-fig1",
    "Seconds to wait",
    "pods",
    "wait (s)",
    "bars",
    [Series("ours", ["5", "10"], [1.5, 2.5]), Series("theirs", ["5", "10"], [2.0, 4.0])],
)


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Return values that match, that differ, and that the paper does not have."""
    progress(0.5)
    drawn = Random(seed).random()
    names = [strategy.name] if strategy else []
    joined = [Row("Table 2", "low load", name, "", "wait_s", None, 4.5) for name in names]
    return Result(
        "fake",
        "Nobody, A Paper, Section 1",
        {"link": Setting("1 Mbit/s, a minimum", "paper")},
        [
            Row("Fig. 1", "5 pods", "dacs", "alpha=0.5", "pods_n1", 5, 5),
            Row("Fig. 1", "5 pods", "netsched", "", "pods_n1", 2, 3),
            Row(
                "Table 2", "low load", "dacs", "", "wait_s", 2.0, 2.5 + drawn, 2.0, is_headline=True
            ),
            Row("Table 2", "low load", "netsched", "", "wait_s", None, 4.0),
            *joined,
        ],
        [
            count_claim("Fig. 1", "5 pods", "All on n1.", [5], [5]),
            gain_claim(
                "Table 2", "low load", "DACS waits less.", 50, 30, "The load differs.", "fitted"
            ),
        ],
        [FIGURE],
    )
