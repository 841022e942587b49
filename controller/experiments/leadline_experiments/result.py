"""The result of an experiment: rows beside the paper's values, claims that hold or miss, figures.

Pure data: the command line, the plots and the docs read the same result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

Compare = Literal["exact", "order", "gain"]
GAIN_TOLERANCE = 10.0


@dataclass(frozen=True, slots=True)
class Row:
    """One value of one figure or table. paper: the printed value, None if there is none.
    optimum: the best value of any placement, None if it was not computed."""

    table: str
    case: str
    strategy: str
    option: str
    metric: str
    paper: float | None
    ours: float
    optimum: float | None = None

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
    """A statement of the paper, and whether the experiment confirms it.

    says: one sentence. paper, ours: the compared values, as text. compare: "exact" for counts,
    "order" for the order of the methods, "gain" for a gain in percent, which may differ by
    GAIN_TOLERANCE percentage points. why: the reason if the claim does not hold.
    """

    table: str
    case: str
    says: str
    compare: Compare
    paper: str
    ours: str
    holds: bool
    why: str = ""

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
    """The data of a plot. name: of its file, without suffix."""

    name: str
    title: str
    x_label: str
    y_label: str
    kind: Literal["bars", "lines", "steps"]
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one experiment. calibration: the values chosen for what the paper leaves
    open, the same for every method."""

    experiment: str
    paper: str
    calibration: Mapping[str, str]
    rows: Sequence[Row]
    claims: Sequence[Claim]
    figures: Sequence[Figure] = ()

    @property
    def misses(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if not claim.holds)


Progress = Callable[[float], None]  # the share that is done, 0 to 1
# Runs a paper's experiment again, all of it. The same seed gives the same Result, to the last bit.
Experiment = Callable[[int, Progress], Result]


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
) -> Claim:
    """A claim from texts that are formatted already. texts: the paper's value and ours. why: the
    reason of a miss; dropped if the claim holds."""
    return Claim(table, case, says, compare, *texts, holds, "" if holds else why)


def gain_claim(
    table: str, case: str, says: str, paper_percent: float, ours_percent: float, why: str = ""
) -> Claim:
    """A claim on a gain; it holds within GAIN_TOLERANCE percentage points."""
    holds = abs(paper_percent - ours_percent) <= GAIN_TOLERANCE
    texts = f"{paper_percent:.1f} %", f"{ours_percent:.1f} %"
    return make_claim(table, case, says, "gain", texts, holds, why)


def count_claim(
    table: str, case: str, says: str, paper: Sequence[int], ours: Sequence[int], why: str = ""
) -> Claim:
    """A claim on counts; it holds if all are equal."""
    texts = "/".join(map(str, paper)), "/".join(map(str, ours))
    return make_claim(table, case, says, "exact", texts, list(paper) == list(ours), why)


def order_claim(
    table: str, case: str, says: str, ours: Mapping[str, float], why: str = ""
) -> Claim:
    """A claim on the order of methods, least value first. ours: by method, in the paper's order.
    It holds if it never falls from one to the next."""
    holds = all(a <= b for a, b in pairwise(ours.values()))
    texts = " < ".join(ours), " < ".join(sorted(ours, key=ours.__getitem__))
    return make_claim(table, case, says, "order", texts, holds, why)
