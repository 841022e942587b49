"""A comparison's pictures as SVG, for the page and as files: intervals, how soon pods are ready,
pods per board over time. The same input gives the same bytes.

They are drawn here and not by a plotting library, so that they follow the reader's light or dark
theme and the page needs nothing from elsewhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

import numpy as np
from leadline_controller.cli import human
from leadline_controller.cli.output import clean

from leadline_lab.replay import verdict
from leadline_lab.replay.comparison import Comparison, Estimate, label
from leadline_lab.replay.measures import READY, SHARE, Measure, nodes, stays
from leadline_lab.replay.outcomes import Outcome

# Of both themes, with a contrast of at least 4.5 for text and 3 for lines. The base is grey.
COLOURS = """
:root { color-scheme: light dark; --page: #f4f6f8; --card: #ffffff; --text: #1c2530;
  --quiet: #55606e; --line: #d8dee5; --good: #146c62; --bad: #b3261e; --s0: #55606e; --s1: #1f5fa8;
  --s2: #b3450f; --s3: #7a3fa0; --s4: #1f7a70; --s5: #b0306f; --s6: #7a6200; --s7: #3f7a1f; }
@media (prefers-color-scheme: dark) { :root { --page: #10151b; --card: #192028; --text: #e6eaef;
  --quiet: #a3adb9; --line: #323c47; --good: #4fc3b5; --bad: #ff8a75; --s0: #a3adb9; --s1: #7cb7f5;
  --s2: #ff9a6a; --s3: #c9a6ff; --s4: #4fc3b5; --s5: #f58fc0; --s6: #e0c050; --s7: #9fd070; } }
svg { background: var(--card); font: 13px system-ui, sans-serif; }
svg text { fill: var(--text); stroke: var(--card); stroke-width: 3px; paint-order: stroke; }
svg .quiet { fill: var(--quiet); }
svg line, svg polyline { stroke: var(--quiet); fill: none; } svg .grid { stroke: var(--line); }
"""
_HUES = 8
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_WIDTH, _ROW, _AXIS = 340, 42, 22
_BINS = 120
_POINTS = 200
_LONGEST = 34  # characters of a label


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture."""

    name: str  # of its file, without suffix
    title: str
    text: str  # what it shows, in words
    svg: str

    def file(self) -> str:
        """As a file of its own."""
        head, tail = self.svg.split(">", 1)
        return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{COLOURS}</style>{tail}\n'


def text(value: object) -> str:
    """For HTML and XML: names come from elsewhere."""
    return escape(clean(value))


def colour(number: int) -> str:
    """Of the strategy with this number."""
    return f"var(--s{number % _HUES})"


_Row = tuple[str, Estimate | None, Estimate | None]  # a strategy's mean and worst 5 %


def levels(comparison: Comparison, measure: Measure) -> Picture | None:
    """Mean and worst 5 % of each strategy with their intervals; None if nothing is known."""
    found = [each for each in comparison.findings if each.measure.key == measure.key]
    times = 100 if measure.unit == SHARE else 1
    rows = [
        (each.strategy, _scaled(each.mean, times), _scaled(each.worst, times)) for each in found
    ]
    says = "; ".join(
        f"{each.strategy} {verdict.level(measure, each.mean)}" for each in found if each.mean
    )
    return _intervals(measure.key, f"{measure.title}: mean", says, rows, verdict.unit(measure))


def differences(comparison: Comparison, measure: Measure) -> Picture | None:
    """How far each strategy is from the base; None if nothing is known."""
    rows: list[_Row] = [(comparison.base, None, None)]
    says, unit = [], "points" if measure.unit == SHARE else measure.unit
    for found in comparison.findings:
        mean, worst = found.mean_difference, found.worst_difference
        if found.measure.key != measure.key or mean is None:
            continue
        if mean.percent is not None:
            unit = "%"
            rows.append((found.strategy, mean.percent, None if worst is None else worst.percent))
        else:
            times = 100 if measure.unit == SHARE else 1
            absolute = None if worst is None else _scaled(worst.absolute, times)
            rows.append((found.strategy, _scaled(mean.absolute, times), absolute))
        says.append(f"{found.strategy} {verdict.change(measure, mean)}")
    title = f"{measure.title}: difference to {comparison.base}"
    zero = f"as {comparison.base}"
    return _intervals(f"{measure.key}-difference", title, "; ".join(says), rows, unit, zero)


def _scaled(estimate: Estimate | None, times: float) -> Estimate | None:
    if estimate is None or estimate.low is None or estimate.high is None:
        return estimate and Estimate(estimate.value * times)
    return Estimate(estimate.value * times, estimate.low * times, estimate.high * times)


def _intervals(
    name: str, title: str, says: str, rows: Sequence[_Row], unit: str, zero: str = ""
) -> Picture | None:
    """A dot for a mean and a ring for the worst 5 %, with their intervals as lines. zero: what 0
    means; it is drawn then."""
    drawn = [(number, *row) for number, row in enumerate(rows) if row[1] is not None]
    if not drawn:
        return None
    ends = [
        end
        for _, _, *estimates in drawn
        for each in estimates
        if each is not None
        for end in (each.value, each.low, each.high)
        if end is not None
    ]
    scale = _Scale.of([*ends, 0.0], 12, _WIDTH - 12)
    top = 18 if zero else 4
    bottom = top + _ROW * len(drawn)
    parts = list(_x_axis(scale, top, bottom, unit))
    if zero:
        x = scale(0)
        anchor = "start" if x < _WIDTH / 3 else "end" if x > _WIDTH * 2 / 3 else "middle"
        parts += [_line(x, top, x, bottom), _text(x, 12, _cut(zero), anchor, "quiet")]
    for row, (number, strategy, *estimates) in enumerate(drawn):
        y = top + _ROW * row
        parts.append(_text(12, y + 14, _cut(strategy)))
        for at, each in enumerate(estimates):
            if each is not None:
                parts += _mark(scale, each, y + 24 + 10 * at, colour(number), filled=at == 0)
    return _picture(name, title, says, _WIDTH, bottom + _AXIS, parts)


def _mark(scale: "_Scale", each: Estimate, y: float, hue: str, *, filled: bool) -> Iterator[str]:
    if each.low is not None and each.high is not None:
        ends = f'x1="{scale(each.low):.1f}" y1="{y}" x2="{scale(each.high):.1f}" y2="{y}"'
        yield f'<line {ends} style="stroke:{hue};stroke-width:2"/>'
    x, inner = scale(each.value), hue if filled else "var(--card)"
    yield f'<circle cx="{x:.1f}" cy="{y}" r="4" style="fill:{inner};stroke:{hue};stroke-width:2"/>'


def ready_curves(comparison: Comparison, outcomes: Sequence[Outcome]) -> Picture | None:
    """For each time the share of all pods that were ready by then."""
    width, height, left, top = 480, 300, 54, 10
    pods = dict.fromkeys(comparison.strategies, 0)
    times: dict[str, list[float]] = {strategy: [] for strategy in comparison.strategies}
    for outcome in outcomes:
        strategy = label(outcome, outcomes)
        pods[strategy] += len(outcome.pods)
        times[strategy] += READY.values(outcome).value.tolist()
    if not any(times.values()):
        return None
    # The slowest pods would press all others against the left edge.
    longest = max(float(np.quantile(each, 0.98)) for each in times.values() if each)
    scale = _Scale.of([0.0, longest], left, width - 12)
    bottom = height - _AXIS
    parts = list(_x_axis(scale, top, bottom, "s"))
    for percent in (0, 25, 50, 75, 100):
        y = bottom - (bottom - top) * percent / 100
        parts += [_line(left, y, width - 12, y, "grid")]
        parts += [_text(left - 6, y + 4, f"{percent} %", "end", "quiet")]
    says = []
    for number, (strategy, of_strategy) in enumerate(times.items()):
        if not of_strategy:
            continue
        ordered = np.sort(of_strategy)
        ready = np.linspace(0, len(ordered) - 1, min(len(ordered), _POINTS)).astype(int)
        points = [
            f"{scale(ordered[at]):.1f},{bottom - (bottom - top) * (at + 1) / pods[strategy]:.1f}"
            for at in ready
            if ordered[at] <= scale.high
        ]
        dash = _DASHES[number // _HUES % len(_DASHES)]
        parts.append(
            f'<polyline points="{" ".join(points)}" style="stroke:{colour(number)};'
            f'stroke-width:2;stroke-dasharray:{dash or "none"}"/>'
        )
        says.append(f"{strategy}: half of the ready pods within {np.median(ordered):.3g} s")
    return _picture("ready", "Time to ready", "; ".join(says), width, height, parts)


def boards(comparison: Comparison, outcomes: Sequence[Outcome]) -> Iterator[tuple[str, Picture]]:
    """Of each strategy the pods per board over time, in its first run."""
    first: dict[str, list[Outcome]] = {strategy: [] for strategy in comparison.strategies}
    for outcome in outcomes:
        first[label(outcome, outcomes)].append(outcome)
    counts = {strategy: _counts(of[0]) for strategy, of in first.items()}
    most = max(float(each.max(initial=0)) for each in counts.values())
    for number, (strategy, count) in enumerate(counts.items()):
        yield strategy, _board_picture(number, strategy, count, most, first[strategy][0].length_s)


def _counts(outcome: Outcome) -> np.typing.NDArray[np.float64]:
    """Pods on each board (rows) in the middle of each span of time (columns)."""
    index = {node: row for row, node in enumerate(nodes(outcome))}
    middles = (np.arange(_BINS) + 0.5) * outcome.length_s / _BINS
    changes = np.zeros((max(1, len(index)), _BINS + 1))
    found = [stay for pod in outcome.pods for stay in stays(pod, outcome.length_s)]
    rows = np.array([index[stay.node] for stay in found], dtype=np.int64)
    since = np.searchsorted(middles, [each.since_s for each in found])
    until = np.searchsorted(middles, [each.until_s for each in found])
    np.add.at(changes, (rows, since), 1)
    np.add.at(changes, (rows, until), -1)
    return np.cumsum(changes, axis=1)[:, :_BINS]


def _board_picture(
    number: int,
    strategy: str,
    counts: np.typing.NDArray[np.float64],
    most: float,
    length_s: float,
) -> Picture:
    left, top, bottom = 34, 8, 128
    hours = length_s >= 2 * 3600
    x = _Scale.of([0.0, length_s / (3600 if hours else 60)], left, _WIDTH - 12, exact=True)
    y = _Scale.of([0.0, max(most, 1.0)], bottom, top)
    parts = list(_x_axis(x, top, bottom, "h" if hours else "min"))
    for tick in y.ticks():
        parts += [_line(left, y(tick), _WIDTH - 12, y(tick), "grid")]
        parts += [_text(left - 6, y(tick) + 4, human.number(tick), "end", "quiet")]
    at = [x.high * (span + 0.5) / _BINS for span in range(_BINS)]
    for (low, high), opacity in (((0, 100), 0.2), ((25, 75), 0.35)):
        edges = np.percentile(counts, [low, high], axis=0)
        outline = [
            *(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(at, edges[1], strict=True)),
            *reversed([f"{x(a):.1f},{y(b):.1f}" for a, b in zip(at, edges[0], strict=True)]),
        ]
        parts.append(
            f'<polygon points="{" ".join(outline)}" '
            f'style="fill:{colour(number)};fill-opacity:{opacity}"/>'
        )
    means = zip(at, counts.mean(axis=0), strict=True)
    line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in means)
    parts.append(f'<polyline points="{line}" style="stroke:{colour(number)};stroke-width:2"/>')
    says = f"{counts.mean():.3g} pods a board on average, at most {counts.max():.0f}"
    title = f"Pods per board under {strategy}"
    return _picture(f"boards-{number}", title, says, _WIDTH, bottom + _AXIS, parts)


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to coordinates."""

    low: float
    high: float
    step: float
    start: float
    end: float

    @classmethod
    def of(
        cls, values: Sequence[float], start: float, end: float, *, exact: bool = False
    ) -> "_Scale":
        """From one round number to another. exact: it ends with the largest value."""
        low, high = min(values), max(values)
        if high <= low:
            high = low + 1
        rough = (high - low) / 4
        power = 10 ** floor(log10(rough))
        steps = (1, 2, 3, 6, 10) if exact else (1, 2, 2.5, 5, 10)
        step = next(each * power for each in steps if each * power >= rough * 0.999)
        if not exact:
            low, high = floor(low / step) * step, ceil(high / step) * step
        return cls(low, high, step, start, end)

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    def ticks(self) -> Iterator[float]:
        """Round numbers."""
        first = ceil(self.low / self.step - 1e-9)
        for number in range(first, floor(self.high / self.step + 1e-9) + 1):
            yield number * self.step


def _x_axis(scale: _Scale, top: float, bottom: float, unit: str) -> Iterator[str]:
    """The last number has the unit."""
    yield _line(scale.start, bottom, scale.end, bottom)
    ticks = list(scale.ticks())
    for tick in ticks:
        x = scale(tick)
        yield _line(x, top, x, bottom, "grid")
        if tick == ticks[-1]:
            near = scale.end - x < 40
            x, anchor = (max(x + 8, scale.start + 40), "end") if near else (x - 8, "start")
        else:
            anchor = "middle" if x > scale.start + 8 else "start"
            x = x if anchor == "middle" else x - 8
        shown = f"{human.number(tick)} {unit if tick == ticks[-1] else ''}".rstrip()
        yield _text(x, bottom + 16, shown, anchor, "quiet")


def _line(x1: float, y1: float, x2: float, y2: float, name: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    return f'<line{kind} x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, value: str, anchor: str = "start", name: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(value)}</text>'


def _cut(value: str) -> str:
    value = clean(value)
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"


def _picture(
    name: str, title: str, says: str, width: float, height: float, parts: Sequence[str]
) -> Picture:
    svg = (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(f"{title}. {says}")}">'
        f"{''.join(parts)}</svg>"
    )
    return Picture(name, title, says, svg)
