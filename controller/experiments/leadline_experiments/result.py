"""The result of an experiment: rows beside the paper's values, claims that hold or miss, figures.

Pure data: the command line, the plots and the docs read the same result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from leadline_controller.framework.cycle import Strategy

Compare = Literal["exact", "order", "gain"]
# independent: nothing was chosen by this value. fitted: a setting was chosen so that this value, or
# one that it follows from, comes out. by-construction: the set-up says it already.
Kind = Literal["independent", "fitted", "by-construction"]
KINDS: Sequence[Kind] = get_args(Kind)
# Where a setting is from: the paper, its authors' public programs and logs, a fit to the paper's
# results, or a choice that was made without looking at them.
Source = Literal["paper", "authors", "fitted", "chosen"]
# A gain may differ by this share of the paper's, and one below 10 % by so many points.
GAIN_TOLERANCE, SMALL_GAIN_TOLERANCE_POINTS, _SMALL_GAIN_PERCENT = 0.3, 3.0, 10.0
# A difference that is so much smaller than the paper's is a tie.
_TIE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """One value of one figure or table."""

    table: str
    case: str
    strategy: str
    option: str
    metric: str
    paper: float | None  # the printed value, None if there is none
    ours: float
    optimum: float | None = None  # the best value of any placement, None if it was not computed
    is_headline: bool = False  # it is one of the few that docs/experiments.md shows

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None else self.ours - self.paper

    @property
    def gap_percent(self) -> float | None:
        """The distance from the optimum in percent of it; None without an optimum or if it is 0."""
        return (self.ours - self.optimum) / abs(self.optimum) * 100 if self.optimum else None


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the paper, and whether the experiment confirms it."""

    table: str
    case: str
    says: str  # one sentence
    # "exact" for counts, "order" for the order of the methods, "gain" for a gain in percent.
    compare: Compare
    # The compared values, as text.
    paper: str
    ours: str
    holds: bool
    kind: Kind = "independent"  # what its outcome is worth
    why: str = ""  # the reason if the claim does not hold

    @property
    def where(self) -> str:
        """Table and case, as one label."""
        return f"{self.table}, {self.case}" if self.case else self.table


class Series(NamedTuple):
    """A line, or a group of bars."""

    label: str
    x: Sequence[float | str]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Figure:
    """The data of a plot."""

    name: str  # of its file, without suffix
    title: str
    x_label: str
    y_label: str
    kind: Literal["bars", "lines", "steps"]
    series: Sequence[Series]


class Setting(NamedTuple):
    """A value, with its unit and, where it needs one, a reason; and where it is from."""

    value: str
    source: Source


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one experiment."""

    experiment: str
    paper: str
    settings: Mapping[str, Setting]  # by name, the same for every method
    rows: Sequence[Row]
    claims: Sequence[Claim]
    figures: Sequence[Figure] = ()

    @property
    def misses(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if not claim.holds)


Progress = Callable[[float], None]  # the share that is done, 0 to 1
# Runs a paper's experiment again, all of it. The same seed gives the same Result, to the last bit.
# The strategy, if one is given, joins the paper's methods: it has rows, and no claims are about it.
Experiment = Callable[[int, Progress, Strategy | None], Result]


def gain_percent(ours: float, baseline: float) -> float:
    """How much less `ours` is than `baseline`, in percent of the baseline."""
    return (baseline - ours) / baseline * 100


def make_claim(
    table: str,
    case: str,
    says: str,
    compare: Compare,
    texts: tuple[str, str],
    holds: bool,
    why: str = "",
    kind: Kind = "independent",
) -> Claim:
    """A claim from texts that are formatted already. texts: the paper's value and ours. why: the
    reason of a miss; dropped if the claim holds."""
    return Claim(table, case, says, compare, *texts, holds, kind, "" if holds else why)


def gain_claim(
    table: str,
    case: str,
    says: str,
    paper_percent: float,
    ours_percent: float,
    why: str = "",
    kind: Kind = "independent",
) -> Claim:
    """A claim on a gain. It holds if the sign is the paper's and the value differs by no more than
    GAIN_TOLERANCE of the paper's, or by SMALL_GAIN_TOLERANCE_POINTS if that is below 10 %."""
    is_small = abs(paper_percent) < _SMALL_GAIN_PERCENT
    tolerance = SMALL_GAIN_TOLERANCE_POINTS if is_small else GAIN_TOLERANCE * abs(paper_percent)
    has_its_sign = paper_percent == 0 or paper_percent * ours_percent > 0
    holds = has_its_sign and abs(paper_percent - ours_percent) <= tolerance
    texts = f"{paper_percent:.1f} %", f"{ours_percent:.1f} %"
    return make_claim(table, case, says, "gain", texts, holds, why, kind)


def count_claim(
    table: str,
    case: str,
    says: str,
    paper: Sequence[int],
    ours: Sequence[int],
    why: str = "",
    kind: Kind = "independent",
) -> Claim:
    """A claim on counts; it holds if all are equal."""
    texts = "/".join(map(str, paper)), "/".join(map(str, ours))
    return make_claim(table, case, says, "exact", texts, list(paper) == list(ours), why, kind)


def order_claim(
    table: str,
    case: str,
    says: str,
    ours: Mapping[str, float],
    why: str = "",
    kind: Kind = "independent",
    paper: Mapping[str, float] | None = None,
) -> Claim:
    """A claim on the order of methods, least value first. ours: by method, in the paper's order.
    paper: its values, if it prints them.

    It holds if each value is above the one before: by any amount, or by a tenth at least of the
    paper's difference. Where the paper's two values are equal, ours may not differ at all.
    """
    holds = True
    for (before, low), (after, high) in pairwise(ours.items()):
        least = _TIE_SHARE * (paper[after] - paper[before]) if paper else 0.0
        is_tie_in_paper = paper is not None and paper[after] == paper[before]
        holds &= high == low if is_tie_in_paper else high > low and high - low >= least
    texts = " < ".join(ours), " < ".join(sorted(ours, key=ours.__getitem__))
    return make_claim(table, case, says, "order", texts, holds, why, kind)


def tally(claims: Sequence[Claim]) -> Mapping[Kind, tuple[int, int]]:
    """(claims that hold, claims) of each kind, for those kinds that occur."""
    return {
        kind: (sum(claim.holds for claim in of_kind), len(of_kind))
        for kind in KINDS
        if (of_kind := [claim for claim in claims if claim.kind == kind])
    }
