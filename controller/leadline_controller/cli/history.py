"""Measured series of a node as plain data for JSON and YAML, and as charts of one line each."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from leadline_wire.v1 import control_pb2 as pb
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.output import FirstThatFits, cell, table

CHART_STEPS = 60
_STEPS_A_SIGN = (1, 2, 3, 4)


def document(history: pb.GetHistoryResponse) -> dict[str, Any]:
    """All series: of each step from `from_unix_s` on a value, None where nothing was measured."""
    return {
        "from_unix_s": history.from_unix_s,
        "step_s": history.step_s,
        "series": [
            {
                "name": series.name,
                "peer": series.peer or None,
                "mean": _known(series.mean),
                "min": _known(series.min),
                "max": _known(series.max),
            }
            for series in history.series
        ],
    }


def _known(values: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(f"{value:.6g}") for value in values]


def _merged(values: Sequence[float], count: int) -> list[float]:
    """The means of so many values after each other; NaN where none is known."""
    parts = (values[at : at + count] for at in range(0, len(values), count))
    known = ([value for value in part if not math.isnan(value)] for part in parts)
    return [sum(part) / len(part) if part else math.nan for part in known]


class Charts:
    """A line for each series: its means as a chart, and the extremes of the whole time. On a narrow
    console a sign of the charts stands for several steps."""

    def __init__(self, history: pb.GetHistoryResponse) -> None:
        self._history = history

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = options.ascii_only or not console.is_terminal
        history = self._history
        steps = max((len(series.mean) for series in history.series), default=0)
        span_s = steps * history.step_s
        columns = (f"LAST {human.age(span_s)}", "", "MIN", "MEAN", "MAX")
        yield FirstThatFits(
            (
                table(columns, self._rows(steps_a_sign, plain), numbers=columns[2:]),
                Text(
                    f"from {human.moment(history.from_unix_s)}, "
                    f"a sign for each {human.age(steps_a_sign * history.step_s)}"
                ),
            )
            for steps_a_sign in _STEPS_A_SIGN
        )

    def _rows(self, steps_a_sign: int, plain: bool) -> Iterator[Sequence[object]]:
        for series in self._history.series:
            means = [value for value in series.mean if not math.isnan(value)]
            least = min(value for value in series.min if not math.isnan(value))
            most = max(value for value in series.max if not math.isnan(value))
            numbers = (least, sum(means) / len(means), most)
            name = f"{series.name} {series.peer}".strip()
            chart = human.chart(_merged(series.mean, steps_a_sign), plain=plain)
            yield (name, cell(chart, folds=False), *map(human.number, numbers))
