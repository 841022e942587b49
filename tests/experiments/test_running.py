"""Experiments in worker processes: equal results in the same order for any number of workers."""

import multiprocessing

import pytest
from leadline_experiments.running import run, run_all

from tests.support.ports import wait_until

HERE = "tests.experiments"
BOTH = {"another": f"{HERE}.another", "fake": f"{HERE}.fakes"}


@pytest.mark.parametrize("workers", [1, 2])
def test_results_have_the_same_order_and_values_with_any_number_of_workers(workers: int) -> None:
    reported: list[float] = []
    found = run_all(BOTH, 3, reported.append, workers)
    assert found == [run(module, 3) for module in BOTH.values()]
    assert reported[-1] == pytest.approx(1.0)
    assert reported == sorted(reported)


def test_a_failing_experiment_ends_the_others() -> None:
    with pytest.raises(ValueError, match="no such load"):
        run_all({**BOTH, "broken": f"{HERE}.broken"}, 0, lambda _: None)
    wait_until(lambda: not multiprocessing.active_children(), "no worker is left")
