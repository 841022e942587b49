from __future__ import annotations

from tests.system.judge_lab import RealRun, table


def run(strategy: str, number: int, *ready_s: float) -> RealRun:
    seen = {f"pod-{at}": each for at, each in enumerate(ready_s)}
    return RealRun(strategy, number, {}, seen, dict.fromkeys(seen, 0.1))


def test_a_row_has_the_means_of_all_pods_and_of_the_worst_ones() -> None:
    slow = [9.0, 5.0, *([1.0] * 38)]  # two of forty
    (row,) = list(table([run("dacs", 1, *slow)]))[2:]
    assert row == "| dacs | 1 | 1.30 | 7.00 | 1.30 to 1.30 | 0.10 | 0.10 |"


def test_the_runs_of_a_strategy_are_one_row_with_their_means() -> None:
    rows = list(table([run("dacs", 1, 1.0), run("leadline", 1, 4.0), run("dacs", 2, 2.0)]))[2:]
    assert rows == [
        "| dacs | 2 | 1.50 | 2.00 | 1.00 to 2.00 | 0.10 | 0.10 |",
        "| leadline | 1 | 4.00 | 4.00 | 4.00 to 4.00 | 0.10 | 0.10 |",
    ]
