"""Forecasts: exponential smoothing where it was better than the last value, else none."""

import numpy as np
import pytest
from leadline_controller.framework.view import Floats
from leadline_controller.telemetry.forecast import _GAINS, AHEAD, _levels, forecasts

STEPS = 288


def noisy(seed: int, walk: float = 0.3, noise: float = 2.0) -> tuple[Floats, Floats]:
    """A random walk, and what is measured of it."""
    random = np.random.default_rng(seed)
    truth = 30 + np.cumsum(random.normal(0, walk, STEPS))
    return truth, truth + random.normal(0, noise, STEPS)


def test_the_levels_are_those_of_exponential_smoothing() -> None:
    _, values = noisy(1)
    for gain, level in zip(_GAINS, _levels(values[np.newaxis])[0], strict=True):
        smoothed, expected = values[0], []
        for value in values:
            smoothed += gain * (value - smoothed)
            expected.append(smoothed)
        np.testing.assert_allclose(level, expected, rtol=1e-9)


def test_of_a_noisy_series_the_forecast_is_nearer_to_the_truth_than_the_last_value() -> None:
    made = [(*noisy(seed), forecasts(noisy(seed)[1][np.newaxis])[0]) for seed in range(20)]
    of_forecasts = [abs(each.value - truth[-1]) for truth, _, each in made if each]
    of_last = [abs(values[-1] - truth[-1]) for truth, values, each in made if each]
    assert len(of_forecasts) == 20
    assert np.mean(of_forecasts) < 0.6 * np.mean(of_last)
    assert all(each.mae_ratio < 0.9 for _, _, each in made if each)


def test_nine_of_ten_forecasts_are_within_their_error() -> None:
    within = []
    for seed in range(60):
        _, values = noisy(seed, noise=3.0)
        (made,) = forecasts(values[np.newaxis, :-AHEAD])
        assert made is not None
        within += (np.abs(values[-AHEAD:] - made.value) <= made.error).tolist()
    assert 0.84 < np.mean(within) < 0.96


@pytest.mark.parametrize(
    "values",
    [
        np.cumsum(np.random.default_rng(1).normal(0, 1, STEPS)),  # the last value is best
        np.linspace(0, 100, STEPS),
        np.full(STEPS, 42.0),
        np.full(STEPS, np.nan),
        np.where(np.arange(STEPS) < STEPS - 71, np.nan, noisy(1)[1]),  # too few
        np.where(np.arange(STEPS) == STEPS - 1, np.nan, noisy(1)[1]),  # not measured now
    ],
    ids=["walk", "line", "constant", "unknown", "few", "ended"],
)
def test_where_the_last_value_is_as_good_or_unknown_there_is_no_forecast(values: Floats) -> None:
    made = forecasts(np.stack((values, noisy(2)[1])))
    assert made[0] is None
    assert made[1] is not None


def test_gaps_do_not_count() -> None:
    _, values = noisy(3)
    gaps = values.copy()
    gaps[40:90] = gaps[200] = np.nan
    (made,) = forecasts(gaps[np.newaxis])
    (whole,) = forecasts(values[np.newaxis])
    assert made is not None
    assert whole is not None
    assert made.value == pytest.approx(whole.value, abs=0.5)


def test_without_series_there_is_nothing() -> None:
    assert forecasts(np.zeros((0, STEPS))) == []
