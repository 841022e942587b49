"""Forecasts of measured series, where they have been better than the last value.

A series counts as a random walk that is measured with noise (the local level model). Its Kalman
filter, which is simdkalman's, forecasts as exponential smoothing does. What share of a change it
believes is chosen for each series: the one that would have forecast its last day best. Where that
is hardly better than the last value, there is no forecast. `tests/bench/forecast.py` compares
methods on recorded series.
"""

from typing import NamedTuple

import numpy as np
from simdkalman import KalmanFilter

from leadline_controller.framework.view import Floats

STEP_S = 300
# On recorded series of disk and network use, the last value was as good.
METRICS = ("cpu_percent", "rtt_ms")
AHEAD = 3  # steps; a quarter of an hour
_GAINS = np.array((0.03, 0.1, 0.2, 0.3, 0.5, 0.7))
_FEWEST = 72  # known values, six hours: of fewer the best gain is chance
_BETTER = 0.9
_COVERAGE = 0.9


class Forecast(NamedTuple):
    """Of the next AHEAD steps. error: 90 % of the forecasts of the last day were within it.
    mae_ratio: their mean absolute error, as a share of the last value's."""

    value: float
    error: float
    mae_ratio: float


def forecasts(means: Floats) -> list[Forecast | None]:
    """For each series, shape (series, steps) with NaN where unknown, its forecast; None if the last
    value is as good, or unknown."""
    found: list[Forecast | None] = [None] * len(means)
    rows = np.flatnonzero((~np.isnan(means)).sum(axis=1) >= _FEWEST)
    rows = rows[~np.isnan(means[rows, -1])]
    if not len(rows):
        return found
    levels = _levels(means[rows])
    for row, of_gains in zip(rows.tolist(), levels, strict=True):
        values = means[row]
        last = _errors(values, values)
        if not last.any():
            continue
        errors = [_errors(level, values) for level in of_gains]
        best = min(range(len(_GAINS)), key=lambda gain: float(errors[gain].mean()))
        ratio = float(errors[best].mean() / last.mean())
        if ratio <= _BETTER:
            error = float(np.quantile(errors[best], _COVERAGE))
            found[row] = Forecast(float(of_gains[best, -1]), error, ratio)
    return found


def _levels(means: Floats) -> Floats:
    """The filter's level after each step with each gain, shape (series, gains, steps)."""
    series, steps = means.shape
    gains = np.tile(_GAINS, series)[:, np.newaxis, np.newaxis]
    # With this ratio of the variances, the filter's gain becomes the wanted one.
    walk, one = gains**2 / (1 - gains), np.ones((1, 1))
    data = np.repeat(means, len(_GAINS), axis=0)
    first = np.take_along_axis(data, np.argmax(~np.isnan(data), axis=1)[:, np.newaxis], axis=1)
    filtered = KalmanFilter(one, walk, one, one).compute(
        data,
        0,
        initial_value=first[:, :, np.newaxis],
        initial_covariance=gains / (1 - gains),
        smoothed=False,
        filtered=True,
        covariances=False,
    )
    levels: Floats = filtered.filtered.observations.mean.reshape(series, len(_GAINS), steps)
    return levels


def _errors(forecast: Floats, values: Floats) -> Floats:
    """The errors of the forecasts made after each known step, for each of the next steps that are
    known."""
    errors = [np.abs(forecast[:-ahead] - values[ahead:]) for ahead in range(1, AHEAD + 1)]
    made = ~np.isnan(values)
    found: Floats = np.concatenate([each[made[: len(each)] & ~np.isnan(each)] for each in errors])
    return found
