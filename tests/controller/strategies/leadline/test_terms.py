"""The arithmetic of the rule, against other ways to the same numbers."""

from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.strategies.leadline.terms import (
    MOST_BUSY,
    out_of_memory,
    over_error,
    restarts_ms,
    shown,
    slowdown,
)


def erlang_c(load: float, cores: int) -> float:
    """The mean time in M/M/c over the service time, by Erlang's formula."""
    offered = load * cores
    waits = offered**cores / factorial(cores) / (1 - load)
    chance = waits / (sum(offered**k / factorial(k) for k in range(cores)) + waits)
    return 1 + chance / (cores * (1 - load))


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
@pytest.mark.parametrize("load", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_the_slowdown_is_that_of_a_queue_with_as_many_servers(load: float, cores: int) -> None:
    found = slowdown(np.array([load]), np.array([float(cores)]))[0]
    assert found == pytest.approx(erlang_c(load, cores), rel=0.06)


@given(st.floats(0, 2), st.floats(0, 2), st.sampled_from([1.0, 2.0, 4.0, 16.0]))
def test_more_load_never_makes_work_quicker(a: float, b: float, cores: float) -> None:
    low, high = slowdown(np.array(sorted((a, b))), np.array([cores, cores]))
    assert 1.0 <= low <= high <= slowdown(np.array([MOST_BUSY]), np.array([cores]))[0]


def test_the_mean_over_an_error_is_that_of_many_draws() -> None:
    value, error = np.array([0.5]), np.array([0.1])
    cores = np.array([4.0])
    found = over_error(lambda busy: slowdown(busy, cores), value, error)
    draws = np.random.default_rng(0).normal(value, error, 200_000)
    drawn = slowdown(draws, np.full(draws.size, 4.0))
    assert found.mean[0] == pytest.approx(drawn.mean(), rel=0.01)
    assert found.deviation[0] == pytest.approx(drawn.std(), rel=0.2)
    assert found.value[0] == slowdown(value, cores)[0]


@given(st.floats(0, 1), st.one_of(st.just(float("nan")), st.floats(0, 1)))
def test_an_error_makes_no_wait_shorter(value: float, error: float) -> None:
    found = over_error(
        lambda busy: slowdown(busy, np.array([4.0])), np.array([value]), np.array([error])
    )
    assert found.mean[0] >= found.value[0]
    assert found.deviation[0] >= 0


def test_a_board_is_out_of_memory_when_the_kubelet_evicts() -> None:
    chances = out_of_memory(np.array([0.5, 0.8, 0.92, 1.0, 1.5]))
    assert chances[0] < 1e-6
    assert chances[2] == pytest.approx(0.5)
    assert chances[4] == pytest.approx(1.0)
    assert (np.diff(chances) > 0).all()


def test_a_pod_that_is_killed_each_five_minutes_costs_each_request_two_thirds_of_a_second() -> None:
    # 20 s of 300 it is away, and who comes then waits 10 s on average.
    assert restarts_ms(np.array([0.0, 1.0])).tolist() == pytest.approx([0.0, 20 / 300 * 10_000])


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0.0, "0"), (0.01234, "0.0123"), (211.8, "212"), (999.6, "1,000"), (102365.0, "102,000")],
)
def test_a_wait_is_shown_in_three_digits(ms: float, text: str) -> None:
    assert shown(ms) == text
