"""Figures as SVG and PNG files. The same figure always gives the same bytes of SVG.

This uses matplotlib's objects and not its global state, so an import has no side effects.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from leadline_experiments.result import Figure, Series

# Okabe and Ito's colours, distinct for any colour vision; hatches and markers serve prints
# without colours.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
_HATCHES = ("", "//", "..", "\\\\", "xx", "--", "++", "oo")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "leadline",  # names in the SVG are random without it
    "svg.fonttype": "path",  # looks the same where the font is missing
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
}
_INCHES = (7.2, 3.6)
_DPI = 110
_LABELS_WIDTH = 60  # characters; wider labels are rotated
_GROUP_WIDTH = 0.8  # share of its space that a group of bars fills


def save(figure: Figure, folder: Path) -> list[Path]:
    """Write <name>.svg and <name>.png and return their paths. Raises OSError."""
    style: dict[Any, Any] = {**matplotlib.rcParamsDefault, **_STYLE}
    with matplotlib.rc_context(style):
        canvas = draw(figure)
        files = [folder / f"{figure.name}.{suffix}" for suffix in ("svg", "png")]
        canvas.savefig(files[0], metadata={"Date": None, "Creator": None})
        canvas.savefig(files[1], dpi=_DPI, metadata={"Software": None})
    return files


def draw(figure: Figure) -> Canvas:
    """Draw the figure on a new canvas."""
    canvas = Canvas(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    _KINDS[figure.kind](axes, figure.series)
    axes.set_title(figure.title)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    if len(figure.series) > 1:
        canvas.legend(loc="outside right upper")
    return canvas


def _bars(axes: Axes, series: Sequence[Series]) -> None:
    groups = list(dict.fromkeys(str(x) for each in series for x in each.x))
    width = _GROUP_WIDTH / len(series)
    for number, (label, x, y) in enumerate(series):
        at = np.array([groups.index(str(each)) for each in x], dtype=np.float64)
        at += (number - (len(series) - 1) / 2) * width
        colour, hatch = _nth(COLOURS, number), _nth(_HATCHES, number)
        axes.bar(at, y, width * 0.95, label=label, color=colour, hatch=hatch, edgecolor="white")
    axes.set_xticks(range(len(groups)), groups)
    if sum(map(len, groups)) > _LABELS_WIDTH:
        axes.tick_params("x", rotation=30)
        for group in axes.get_xticklabels():
            group.set_horizontalalignment("right")


def _lines(axes: Axes, series: Sequence[Series]) -> None:
    for number, (label, x, y) in enumerate(series):
        marker = _nth(_MARKERS, number)
        axes.plot(x, y, label=label, color=_nth(COLOURS, number), marker=marker, markersize=4)


def _steps(axes: Axes, series: Sequence[Series]) -> None:
    for number, (label, x, y) in enumerate(series):
        style = _nth(("-", "--", "-.", ":"), number)
        axes.step(x, y, where="post", label=label, color=_nth(COLOURS, number), linestyle=style)


def _nth(choices: Sequence[str], number: int) -> str:
    return choices[number % len(choices)]


_KINDS = {"bars": _bars, "lines": _lines, "steps": _steps}
