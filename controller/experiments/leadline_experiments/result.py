"""What an experiment brings home: rows beside the paper's, claims that hold or miss, and figures.

Pure data, so that the command line, the plots and the docs all read the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

Compare = Literal["exact", "order", "gain"]
GAIN_TOLERANCE = 10.0


@dataclass(frozen=True, slots=True)
class Row:
    """One value of one figure or table. paper: what the paper prints, None where it gives no
    number. optimum: the best that any placement could reach, None where none was computed."""

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


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that the paper says, and whether it came out.

    says: one sentence. paper, ours: what is compared, as text. compare: "exact" for counts,
    "order" for the order of the methods, "gain" for a gain in percent, which may differ by
    GAIN_TOLERANCE percentage points. why: the reason found, where it does not hold.
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
        """Table and case, to be read by people."""
        return f"{self.table}, {self.case}" if self.case else self.table


class Series(NamedTuple):
    """A line, or a group of bars."""

    label: str
    x: Sequence[float | str]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Figure:
    """What a plot shows. name: of its file, without an ending. kind: how it is drawn."""

    name: str
    title: str
    x_label: str
    y_label: str
    kind: Literal["bars", "lines", "steps"]
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that one experiment found. calibration: the numbers that the paper leaves
    open and what they were set to, the same for every method."""

    experiment: str
    paper: str
    calibration: Mapping[str, str]
    rows: Sequence[Row]
    claims: Sequence[Claim]
    figures: Sequence[Figure] = ()

    @property
    def misses(self) -> tuple[Claim, ...]:
        """The claims that did not come out."""
        return tuple(claim for claim in self.claims if not claim.holds)


Progress = Callable[[float], None]  # the share that is done, 0 to 1


class Experiment(Protocol):
    """Runs a paper's experiment again. The same seed gives the same Result, to the last bit."""

    def __call__(self, seed: int, progress: Progress) -> Result:
        """Run all of it."""
        ...


def gain_percent(ours: float, baseline: float) -> float:
    """How much less `ours` is than `baseline`, in percent of the baseline."""
    return (baseline - ours) / baseline * 100


def gain_claim(
    table: str, case: str, says: str, paper_percent: float, ours_percent: float, why: str = ""
) -> Claim:
    """A claim on a gain; it holds within GAIN_TOLERANCE percentage points. `why` is kept only
    where it misses."""
    holds = abs(paper_percent - ours_percent) <= GAIN_TOLERANCE
    told = f"{paper_percent:.1f} %", f"{ours_percent:.1f} %"
    return _claim((table, case, says), "gain", told, holds, why)


def count_claim(
    table: str, case: str, says: str, paper: Sequence[int], ours: Sequence[int], why: str = ""
) -> Claim:
    """A claim on counts, which must come out exactly."""
    told = "/".join(map(str, paper)), "/".join(map(str, ours))
    return _claim((table, case, says), "exact", told, list(paper) == list(ours), why)


def order_claim(
    table: str, case: str, says: str, paper: Sequence[str], ours: Mapping[str, float], why: str = ""
) -> Claim:
    """A claim on the order of methods, least value first: `paper` names them in its order,
    and `ours` must not fall from one to the next."""
    holds = all(ours[a] <= ours[b] for a, b in pairwise(paper))
    told = " < ".join(paper), " < ".join(sorted(paper, key=lambda name: ours[name]))
    return _claim((table, case, says), "order", told, holds, why)


def _claim(
    said: tuple[str, str, str], compare: Compare, told: tuple[str, str], holds: bool, why: str
) -> Claim:
    return Claim(*said, compare, *told, holds, "" if holds else why)
