"""Totals normalized to integers from 0 to 10."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.cycle import best, priorities

NAN = float("nan")

CASES = [
    # total, finalists, lower is better -> ranks
    ([1.0, 2.0, 3.0], [0], True, [10, 5, 0]),
    ([1.0, 2.0, 3.0], [2], False, [0, 5, 10]),
    ([0.0, 0.999, 1.0], [2], False, [0, 9, 10]),  # rounded down
    ([0.0, 0.05, 100.0], [2], False, [0, 0, 10]),  # an outlier moves the others together
    ([1.00, 1.04, 9.0], [1], True, [9, 10, 0]),  # the choice need not have the best total
    ([1.0, 1.0, 9.0], [0, 1], True, [10, 10, 0]),
    ([5.0, 5.0], [0], True, [10, 9]),  # equal totals, but one was preferred
    ([5.0], [0], True, [10]),
    ([NAN, 1.0, 2.0], [1], True, [0, 10, 0]),
    ([NAN, NAN], [0, 1], False, [10, 10]),
    ([-1e308, 1e308, 1.7e308], [2], False, [0, 7, 10]),
]


@pytest.mark.parametrize(("total", "finalists", "lower", "ranks"), CASES)
def test_scores_are_normalized_from_0_to_10(
    total: list[float], finalists: list[int], lower: bool, ranks: list[int]
) -> None:
    found = priorities(np.array(total), np.array(finalists), lower_is_better=lower)
    assert found.tolist() == ranks


@given(
    st.lists(st.one_of(st.just(NAN), st.floats(-1e308, 1e308)), min_size=1, max_size=50),
    st.booleans(),
)
def test_only_the_choice_gets_10_and_the_order_is_kept(totals: list[float], lower: bool) -> None:
    total = np.array(totals)
    finalists = best(total, "lower" if lower else "higher")
    ranks = priorities(total, finalists, lower_is_better=lower)
    assert ranks.min() >= 0
    assert np.flatnonzero(ranks == 10).tolist() == finalists.tolist()
    order = np.argsort(total)[: np.count_nonzero(~np.isnan(total))]
    steps = np.diff(ranks[order])
    assert (steps <= 0).all() if lower else (steps >= 0).all()
