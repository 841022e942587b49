"""Does a forecast of a board's values beat the last value? On recorded series, by MAE.

    python -m tests.bench.forecast FOLDER

FOLDER has one CSV for each series, with the columns timestamp and value, at equal intervals; the
Numenta Anomaly Benchmark's data/realAWSCloudwatch are of this form (machines' CPU, disk and network
use, every 5 minutes for two weeks). With `--record FOLDER SECONDS` it first records this machine,
every 10 seconds as the agent does, and writes means of a minute.

Each method sees a day before each of the origins and forecasts the next 1 to 15 minutes. The
methods are statsmodels', which is not among our dependencies: install it beside, to run this.
"""

import csv
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Method = Callable[[Floats, int], Floats]
_HORIZON_S = 900
_WINDOW_S = 86_400
_FEWEST = 20  # values before the first origin
_ORIGINS = 40  # of each series, evenly spread
_METHODS = (
    *("last value", "mean of 15 min", "SES", "Holt, damped", "Theta", "ARIMA(1,0,1)"),
    *("local level 0.3", "local level 0.5", "local level 0.7"),
)


def methods(step_s: float) -> dict[str, Method]:
    """Each takes the values so far and how many to forecast."""
    from statsmodels.tsa.arima.model import ARIMA  # type: ignore[import-not-found]
    from statsmodels.tsa.forecasting.theta import ThetaModel  # type: ignore[import-not-found]
    from statsmodels.tsa.holtwinters import (  # type: ignore[import-not-found]
        Holt,
        SimpleExpSmoothing,
    )

    warnings.simplefilter("ignore")  # statsmodels' own filters show each one
    recent = max(round(_HORIZON_S / step_s), 2)
    made: tuple[Method, ...] = (
        lambda seen, ahead: np.repeat(seen[-1], ahead),
        lambda seen, ahead: np.repeat(seen[-recent:].mean(), ahead),
        lambda seen, ahead: (
            SimpleExpSmoothing(seen, initialization_method="estimated").fit().forecast(ahead)
        ),
        lambda seen, ahead: (
            Holt(seen, damped_trend=True, initialization_method="estimated").fit().forecast(ahead)
        ),
        lambda seen, ahead: np.asarray(ThetaModel(seen, period=1).fit().forecast(ahead)),
        lambda seen, ahead: ARIMA(seen, order=(1, 0, 1)).fit().forecast(ahead),
        lambda seen, ahead: local_level(seen, ahead, 0.3),
        lambda seen, ahead: local_level(seen, ahead, 0.5),
        lambda seen, ahead: local_level(seen, ahead, 0.7),
    )
    return dict(zip(_METHODS, made, strict=True))


def local_level(seen: Floats, ahead: int, gain: float) -> Floats:
    """A random walk measured with noise, in simdkalman's filter, whose forecast is that of
    exponential smoothing. The ratio of both variances is such that its steady gain is `gain`."""
    from simdkalman import KalmanFilter  # type: ignore[import-not-found]

    one, recent = np.ones((1, 1)), seen[-120:]
    model = KalmanFilter(one, one * gain**2 / (1 - gain), one, one)
    start = {"initial_value": recent[:1].reshape(1, 1, 1), "initial_covariance": one[np.newaxis]}
    made: Floats = model.predict(recent, ahead, **start).observations.mean
    return made.ravel()


def read(path: Path) -> tuple[Floats, float]:
    """The values of a series and the seconds between two."""
    with path.open(newline="") as file:
        rows = [(datetime.fromisoformat(at), float(value)) for at, value, *_ in _rows(file)]
    gaps = [(b - a).total_seconds() for (a, _), (b, _) in pairwise(rows)]
    return np.array([value for _, value in rows]), median(gaps)


def _rows(file: Iterator[str]) -> Iterator[list[str]]:
    rows = csv.reader(file)
    next(rows)
    return rows


def errors(values: Floats, step_s: float) -> dict[str, Floats]:
    """The absolute errors of each method, shape (origins, values ahead). Where a method fails, the
    last value is its forecast."""
    ahead, window = max(round(_HORIZON_S / step_s), 1), round(_WINDOW_S / step_s)
    first = max(_FEWEST, min(window, len(values) // 3))
    origins = np.unique(np.linspace(first, len(values) - ahead, _ORIGINS).astype(int))
    found: dict[str, list[Floats]] = defaultdict(list)
    for origin in origins.tolist():
        seen, truth = values[max(0, origin - window) : origin], values[origin : origin + ahead]
        for name, forecast in methods(step_s).items():
            try:
                made = forecast(seen, ahead)
            except Exception:  # noqa: BLE001  # each library has errors of its own
                made = np.repeat(seen[-1], ahead)
            found[name].append(np.abs(np.where(np.isfinite(made), made, seen[-1]) - truth))
    return {name: np.array(rows) for name, rows in found.items()}


def record(folder: Path, seconds: float) -> None:
    """Record this machine with the agent's collectors."""
    from leadline_agent.collectors import Collectors
    from leadline_controller.telemetry.collectors import decode

    collectors, minutes = Collectors(), defaultdict[str, dict[int, list[float]]](dict)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        minute = int(time.time() // 60)
        for name, value in decode(collectors.collect()).values.items():
            minutes[name].setdefault(minute, []).append(value)
        time.sleep(10)
    for name, series in minutes.items():
        with (folder / f"own_{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("timestamp", "value"))
            for minute, values in sorted(series.items()):
                at = datetime.fromtimestamp(minute * 60)  # noqa: DTZ006  # only gaps count
                writer.writerow((at.isoformat(), sum(values) / len(values)))


def main(arguments: list[str] | None = None) -> None:
    """Print each method's MAE as a share of the last value's, for each series and together."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--record"]:
        folder = Path(arguments[1])
        record(folder, float(arguments[2]))
    else:
        folder = Path(arguments[0])
    warnings.simplefilter("ignore")
    print(f"{'MAE / that of the last value':44}{'MAE of it':>12}", end="")
    print("".join(f"{name:>16}" for name in _METHODS[1:]))
    ratios: dict[str, list[float]] = defaultdict(list)
    ahead: dict[tuple[str, float], list[float]] = defaultdict(list)
    for path in sorted(folder.glob("*.csv")):
        values, step_s = read(path)
        if len(values) < 2 * _FEWEST or values.min() == values.max():
            continue
        found = errors(values, step_s)
        base = found[_METHODS[0]].mean(axis=0)
        if not base.mean():
            continue
        for name, rows in found.items():
            ratios[name].append(float(rows.mean() / base.mean()))
            for at, share in enumerate(rows.mean(axis=0) / np.maximum(base, 1e-12), start=1):
                ahead[name, at * step_s].append(float(share))
        shares = "".join(f"{ratios[name][-1]:16.2f}" for name in _METHODS[1:])
        print(f"{path.stem[:43]:44}{base.mean():12.4g}{shares}", flush=True)
    for label, of in (("median", median), ("mean", lambda each: sum(each) / len(each))):
        print(f"{label:56}{''.join(f'{of(ratios[name]):16.2f}' for name in _METHODS[1:])}")
    better = {name: sum(each < 0.98 for each in ratios[name]) for name in _METHODS}
    worse = {name: sum(each > 1.02 for each in ratios[name]) for name in _METHODS}
    columns = "".join(f"{f'{better[name]}/{worse[name]}':>16}" for name in _METHODS[1:])
    print(f"{'series better / worse by 2 %':56}{columns}")
    for step_s in sorted({at for _, at in ahead}):
        shares = "".join(f"{median(ahead[name, step_s]):16.2f}" for name in _METHODS[1:])
        print(f"{f'median, {step_s / 60:g} min ahead':56}{shares}")


if __name__ == "__main__":
    main()
