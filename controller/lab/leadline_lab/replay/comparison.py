"""Means and worst values of each strategy, and how certain they and their differences are.

Pods of one day are not independent: one slow link or full board touches many. So the intervals
come from a bootstrap of whole blocks of time, all seeds of a block together (Davison and Hinkley
1997, 3.8: groups are drawn, what is within a group is kept). Every strategy gets the same draws of
blocks, so its difference to the base is paired. Intervals are widened for few blocks (Hesterberg
2015, expanded percentile).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from leadline_lab.replay.measures import CELL_S, MEASURES, Floats, Measure, Values
from leadline_lab.replay.outcomes import Outcome

WORST_SHARE = 0.05
DRAWS = 2000
MIN_BLOCKS = 5  # with fewer there is no interval
_MIN_TAIL = 5  # pods in the worst 5 %; with fewer they have no interval
# The longest of which a recording has enough is drawn. Seconds.
BLOCKS: Mapping[str, float] = {"day": 86400.0, "hour": 3600.0, "five minutes": CELL_S}
_ROUNDING = 1e-9  # of a value; a smaller difference is an error of rounding
_NORMAL = NormalDist()


class ComparisonError(ValueError):
    """These runs cannot be compared; the message says why."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; without bounds where too little is known for one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_certain(self) -> bool:
        """Of a difference: the interval leaves out 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, slots=True)
class Difference:
    """A strategy's value less the base's."""

    absolute: Estimate
    percent: Estimate | None  # of the base's; None for shares, and where the base's may be 0

    @property
    def shown(self) -> Estimate:
        """What people are told."""
        return self.percent or self.absolute


@dataclass(frozen=True, slots=True)
class Finding:
    """One measure under one strategy. None where nothing is known."""

    strategy: str
    measure: Measure
    known: int  # pods, over all runs
    unknown: int
    mean: Estimate | None
    worst: Estimate | None  # the mean of the worst 5 %
    # None for the base itself.
    mean_difference: Difference | None
    worst_difference: Difference | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All strategies beside the base."""

    strategies: Sequence[str]  # the base first
    block: str  # of what was drawn: a key of BLOCKS
    blocks: int
    windows: Sequence[str]
    seeds: Sequence[int]
    findings: Sequence[Finding]

    @property
    def base(self) -> str:
        """The strategy that really decided, or else the first one."""
        return self.strategies[0]

    @property
    def has_intervals(self) -> bool:
        """Whether there are enough blocks."""
        return self.blocks >= MIN_BLOCKS


def label(outcome: Outcome, outcomes: Sequence[Outcome]) -> str:
    """The strategy, with the options by which it differs from others of these runs."""
    same = [each.options for each in outcomes if each.strategy == outcome.strategy]
    options = ", ".join(
        f"{name}={value}"
        for name, value in sorted(outcome.options.items())
        if any(other.get(name) != value for other in same)
    )
    return f"{outcome.strategy} ({options})" if options else outcome.strategy


def compare(
    outcomes: Sequence[Outcome], measures: Sequence[Measure] = MEASURES, draws: int = DRAWS
) -> Comparison:
    """The base is the strategy that decided when it was recorded, or else the first one. The same
    outcomes always give the same numbers. Raises ComparisonError."""
    runs: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda each: not each.is_recorded):
        runs.setdefault(label(outcome, outcomes), []).append(outcome)
    if not runs:
        raise ComparisonError("there is no run to compare")
    lengths_s = _lengths_s(runs)
    block = next(
        (name for name, size_s in BLOCKS.items() if _total(lengths_s, size_s) >= MIN_BLOCKS),
        list(BLOCKS)[-1],
    )
    blocks = _total(lengths_s, BLOCKS[block])
    random = np.random.default_rng(0)
    drawn = random.multinomial(blocks, np.full(blocks, 1 / blocks), draws)
    # The first row is what was seen: each block once.
    counts = np.vstack([np.ones((1, blocks)), drawn]).astype(np.float64)
    findings = []
    for measure in measures:
        base: _Drawn | None = None
        for strategy, of_strategy in runs.items():
            values = [measure.values(each) for each in of_strategy]
            at = _blocks(of_strategy, values, lengths_s, BLOCKS[block])
            found = _Drawn(measure, counts, at, values)
            findings.append(found.finding(strategy, base))
            base = base or found
    return Comparison(
        tuple(runs),
        block,
        blocks,
        tuple(lengths_s),
        sorted({each.seed for each in outcomes}),
        findings,
    )


def _lengths_s(runs: Mapping[str, Sequence[Outcome]]) -> Mapping[str, float]:
    """The length of each window, which all strategies have."""
    lengths_s: dict[str, float] = {}
    first, wanted = next((name, _seen(name, each)) for name, each in runs.items())
    for strategy, of_strategy in runs.items():
        seen = _seen(strategy, of_strategy)
        if missing := sorted(wanted ^ seen):
            window, seed = missing[0]
            without = strategy if missing[0] in wanted else first
            where = f"{window or 'the recording'}, seed {seed}"
            raise ComparisonError(f"{without} has no run of {where}: give all strategies the same")
        for each in of_strategy:
            lengths_s[each.window] = max(lengths_s.get(each.window, 0.0), each.length_s)
    return lengths_s


def _seen(strategy: str, outcomes: Sequence[Outcome]) -> set[tuple[str, int]]:
    seen = {(each.window, each.seed) for each in outcomes}
    if len(seen) < len(outcomes):
        raise ComparisonError(f"{strategy} has two runs of the same hours and seed: give one")
    return seen


def _number(length_s: float, size_s: float) -> int:
    """How many blocks: what is left is part of the last one, or one itself if it is the larger
    part of one."""
    return max(1, round(length_s / size_s))


def _total(lengths_s: Mapping[str, float], size_s: float) -> int:
    return sum(_number(length_s, size_s) for length_s in lengths_s.values())


def _blocks(
    outcomes: Sequence[Outcome],
    values: Sequence[Values],
    lengths_s: Mapping[str, float],
    size_s: float,
) -> NDArray[np.int64]:
    """Of each value the number of its block, over all windows."""
    firsts, first = {}, 0
    for window, length_s in lengths_s.items():
        firsts[window] = first
        first += _number(length_s, size_s)
    parts = []
    for outcome, (at_s, *_) in zip(outcomes, values, strict=True):
        last = _number(lengths_s[outcome.window], size_s) - 1
        within = np.clip((at_s / size_s).astype(np.int64), 0, last)
        parts.append(firsts[outcome.window] + within)
    return np.concatenate(parts)


class _Drawn:
    """A measure of a strategy, in what was seen and in each draw."""

    def __init__(
        self,
        measure: Measure,
        counts: Floats,
        block: NDArray[np.int64],
        values: Sequence[Values],
    ) -> None:
        self._measure = measure
        self._known = sum(each.known for each in values)
        self._unknown = sum(each.unknown for each in values)
        value = np.concatenate([each.value for each in values])
        weight = np.concatenate([each.weight for each in values])
        size = counts.shape[1]
        weights = np.bincount(block, weight, size)
        self._blocks = int(np.count_nonzero(weights))  # that have a value
        self._tail_blocks = self._blocks if len(value) * WORST_SHARE >= _MIN_TAIL else 0
        self._means = self._worst = None
        if len(value):
            with np.errstate(invalid="ignore"):  # a draw may have no value at all
                self._means = counts @ np.bincount(block, weight * value, size) / (counts @ weights)
                if measure.has_worst:
                    self._worst = _tails(counts, block, value)

    def finding(self, strategy: str, base: "_Drawn | None") -> Finding:
        """base: None if this is the base."""
        return Finding(
            strategy,
            self._measure,
            self._known,
            self._unknown,
            None if self._means is None else _estimate(self._means, self._blocks),
            None if self._worst is None else self._worst_estimate(self._worst),
            None if base is None else self._less(base, base._means, tail=False),
            None if base is None else self._less(base, base._worst, tail=True),
        )

    def _worst_estimate(self, worst: Floats) -> Estimate:
        found = _estimate(worst, self._tail_blocks, tail=True)
        if found.low is not None and found.low < 0 <= np.nanmin(worst):  # no value is below 0
            return replace(found, low=0.0)
        return found

    def _less(self, base: "_Drawn", theirs: Floats | None, *, tail: bool) -> Difference | None:
        ours = self._worst if tail else self._means
        if ours is None or theirs is None:
            return None
        ends = (self._tail_blocks, base._tail_blocks) if tail else (self._blocks, base._blocks)
        less = ours - theirs
        less[np.abs(less) <= _ROUNDING * np.abs(theirs)] = 0.0
        percent = None
        if self._measure.in_percent and np.nanmin(theirs) > 0:
            percent = _estimate(less / theirs * 100, min(ends), tail=tail)
        return Difference(_estimate(less, min(ends), tail=tail), percent)


def _tails(counts: Floats, block: NDArray[np.int64], value: Floats) -> Floats:
    """For each row of counts the mean of the largest 5 %; of the value at the border a part."""
    order = np.argsort(-value, kind="stable")
    block, value = block[order], value[order]
    need = WORST_SHARE * (counts @ np.bincount(block, minlength=counts.shape[1]))
    # A fifth of the values nearly always has enough, and takes a fifth of the memory.
    for kept in (len(value) // 5, len(value)):
        # Of each block how many of the first values are its own, and their sum.
        seen = np.zeros((kept + 1, counts.shape[1]), np.int32)
        seen[np.arange(1, kept + 1), block[:kept]] = 1
        np.cumsum(seen, axis=0, out=seen)
        if np.all(counts @ seen[-1] >= need):
            break
    sums = np.zeros(seen.shape)
    sums[np.arange(1, kept + 1), block[:kept]] = value[:kept]
    np.cumsum(sums, axis=0, out=sums)
    # The least number of values that is enough, by bisection for all rows at once.
    low, high = np.ones(len(counts), np.int64), np.full(len(counts), kept)
    while np.any(low < high):
        middle = (low + high) // 2
        enough = np.einsum("rb,rb->r", counts, seen[middle]) >= need
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    left = need - np.einsum("rb,rb->r", counts, seen[low - 1])
    result: Floats = (np.einsum("rb,rb->r", counts, sums[low - 1]) + left * value[low - 1]) / need
    return result


def _estimate(drawn: Floats, blocks: int, *, tail: bool = False) -> Estimate:
    """What was seen, and between which values 95 % of the draws are. tail: of the worst values,
    which few blocks show too small: both bounds are as far away as the farther one."""
    value = float(drawn[0])
    if blocks < MIN_BLOCKS:
        return Estimate(value)
    share = _NORMAL.cdf(-sqrt(blocks / (blocks - 1)) * _t(blocks - 1))
    low, high = map(float, np.nanquantile(drawn[1:], [share, 1 - share]))
    if tail:
        low, high = min(low, 2 * value - high), max(high, 2 * value - low)
    return Estimate(value, low, high)


def _t(freedom: int) -> float:
    """Student's t at 97.5 %, to 1 % from 4 degrees of freedom on (Abramowitz and Stegun 26.7.5)."""
    z = _NORMAL.inv_cdf(0.975)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
