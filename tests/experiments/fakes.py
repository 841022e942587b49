"""A fake experiment with rows, claims and a figure."""

from __future__ import annotations

from random import Random

from leadline_experiments.result import (
    Figure,
    Progress,
    Result,
    Row,
    Series,
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


def run(seed: int, progress: Progress) -> Result:
    """Return values that match, that differ, and that the paper does not have."""
    progress(0.5)
    drawn = Random(seed).random()
    return Result(
        "fake",
        "Nobody, A Paper, Section 1",
        {"link": "1 Mbit/s (the paper: a minimum)"},
        [
            Row("Fig. 1", "5 pods", "dacs", "alpha=0.5", "pods_n1", 5, 5),
            Row("Fig. 1", "5 pods", "netsched", "", "pods_n1", 2, 3),
            Row("Table 2", "low load", "dacs", "", "wait_s", 2.0, 2.5 + drawn, optimum=2.0),
            Row("Table 2", "low load", "netsched", "", "wait_s", None, 4.0),
        ],
        [
            count_claim("Fig. 1", "5 pods", "All on n1.", [5], [5]),
            gain_claim("Table 2", "low load", "DACS waits less.", 50, 37.5, "The load differs."),
        ],
        [FIGURE],
    )
