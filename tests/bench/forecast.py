"""Does a forecast of a board's values beat the last value? On recorded series, by MAE.

    python -m tests.bench.forecast FOLDER

FOLDER has one CSV for each series, with the columns timestamp and value, every 5 minutes; the
Numenta Anomaly Benchmark's data/realAWSCloudwatch are of this form (CPU, disk and network use of
machines, two weeks each). With `--record FOLDER SECONDS` it first records this machine, with the
agent's collectors, in means of a minute.

Each method sees a day before each of the origins, and forecasts the next 1 to 15 minutes. The
controller's forecasts fall back to the last value where there is none. If statsmodels is installed,
which is not among our dependencies, its methods are measured as well, from fewer origins.
"""

import csv
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
from leadline_controller.telemetry.forecast import forecasts
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_HORIZON_S = 900
_WINDOW = 288  # values, a day of those every 5 minutes
_FEWEST = 72  # values before the first origin
_ORIGINS = 500  # of each series, evenly spread
_SLOW_ORIGINS = 60


def slow_methods() -> dict[str, Callable[[Floats, int], Floats]]:
    """statsmodels': each takes the values so far and how many to forecast. Empty without it."""
    try:
        from statsmodels.tsa.arima.model import ARIMA  # type: ignore[import-not-found]  # optional
        from statsmodels.tsa.forecasting.theta import ThetaModel  # type: ignore[import-not-found]  # optional
        from statsmodels.tsa.holtwinters import (  # type: ignore[import-not-found]  # optional
            Holt,
            SimpleExpSmoothing,
        )
    except ImportError:
        return {}
    warnings.simplefilter("ignore")  # after the import, because it sets filters of its own
    start = {"initialization_method": "estimated"}
    return {
        "SES": lambda seen, ahead: SimpleExpSmoothing(seen, **start).fit().forecast(ahead),
        "Holt, damped": lambda seen, ahead: (
            Holt(seen, damped_trend=True, **start).fit().forecast(ahead)
        ),
        "Theta": lambda seen, ahead: np.asarray(ThetaModel(seen, period=1).fit().forecast(ahead)),
        "ARIMA(1,0,1)": lambda seen, ahead: ARIMA(seen, order=(1, 0, 1)).fit().forecast(ahead),
    }


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


def ratios(values: Floats, step_s: float) -> dict[str, float]:
    """The MAE of each method as a share of the last value's."""
    ahead = max(round(_HORIZON_S / step_s), 1)
    first = min(_WINDOW, max(_FEWEST, len(values) // 3))
    origins = np.unique(np.linspace(first, len(values) - ahead, _ORIGINS).astype(int)).tolist()
    windows = np.full((len(origins), _WINDOW), np.nan)
    for window, origin in zip(windows, origins, strict=True):
        seen = values[max(0, origin - _WINDOW) : origin]
        window[-len(seen) :] = seen
    truth = np.stack([values[origin : origin + ahead] for origin in origins])
    last = windows[:, -1:]
    made = [
        each.value if each else value
        for each, value in zip(forecasts(windows), last[:, 0], strict=True)
    ]
    share = max(round(_HORIZON_S / step_s), 2)
    of_last = np.abs(last - truth)
    found = {
        "mean of 15 min": _share(windows[:, -share:].mean(axis=1, keepdims=True), truth, of_last),
        "Leadline": _share(np.array(made)[:, np.newaxis], truth, of_last),
    }
    some = np.unique(np.linspace(0, len(origins) - 1, _SLOW_ORIGINS).astype(int))
    for name, method in slow_methods().items():
        rows = np.repeat(last[some], ahead, axis=1)
        for row, at in zip(rows, some.tolist(), strict=True):
            with suppress(Exception):  # each library has errors of its own; the last value counts
                row[:] = method(windows[at][~np.isnan(windows[at])], ahead)
        found[name] = _share(rows, truth[some], of_last[some])
    return found


def _share(made: Floats, truth: Floats, of_last: Floats) -> float:
    return float(np.abs(made - truth).mean() / of_last.mean())


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


def main() -> None:
    """Print each method's MAE as a share of the last value's, for each series and together."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--record"]:
        record(Path(arguments[1]), float(arguments[2]))
        arguments = arguments[1:]
    names = ["mean of 15 min", "Leadline", *slow_methods()]
    print(f"{'MAE / that of the last value':44}{''.join(f'{name:>16}' for name in names)}")
    every: dict[str, list[float]] = defaultdict(list)
    for path in sorted(Path(arguments[0]).glob("*.csv")):
        values, step_s = read(path)
        if len(values) < 2 * _FEWEST or values.min() == values.max():
            continue
        found = ratios(values, step_s)
        for name in names:
            every[name].append(found[name])
        print(f"{path.stem[:43]:44}{''.join(f'{found[name]:16.2f}' for name in names)}", flush=True)
    if every:
        print(f"{'median':44}{''.join(f'{median(every[name]):16.2f}' for name in names)}")
        print(f"{'largest':44}{''.join(f'{max(every[name]):16.2f}' for name in names)}")


if __name__ == "__main__":
    main()
