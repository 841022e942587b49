"""What `leadline` has to hold beside the papers' methods and kube-scheduler, and the reasons where
it does not."""

from collections.abc import Iterator, Mapping, Sequence
from math import expm1, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from leadline_controller.framework.view import Floats

from leadline_experiments.leadline.papers import Comparison
from leadline_experiments.leadline.simulation import DISTURBANCES
from leadline_experiments.result import Claim, Kind, make_claim

OURS, KUBE = "leadline", "kube-default"
# As good is within 2 %, or within the 95 % interval of the difference over the draws.
AS_GOOD_PERCENT = 2.0
MOST_WORSE_PERCENT = 5.0  # than kube-scheduler, whatever the readings are like
LEAST_GAIN_PERCENT = 1.0  # by which a term of the rule must help somewhere
_NORMAL = 1.96

# The rule was mended by what came out in these.
_LYING = {each.name for each in DISTURBANCES if each.has_liar}
_MENDED: Mapping[str, Kind] = {"DACS": "fitted", "KubeDSM": "fitted", "Response time": "fitted"}
_WHY_PAPER: Mapping[str, str] = {
    "KubeDSM": (
        "The edge ratio is the mean over services of their pods' shares. leadline plans for the "
        "shortest waits of all pods: more of them on the edge, and fewer of those that take as "
        "much as two others. It also moves the only pod of a service only if that pays for the "
        "time for which it is away; in the paper's experiment moves take no time."
    ),
    "Infrastructure Aware": (
        "Here a pod is taken to serve a request a second for an hour, so that a second of its "
        "start counts as little as 0.3 ms of each request."
    ),
    "NetSched": "Waits that differ by less than 1 % count as equal, and chance breaks ties.",
    "DACS": "A pod is placed by what it waits itself, and not by what others wait for it.",
    "Response time": (
        "Two replicas on the second worker keep both of its cores busy, and share its answers "
        "among users by chance; the paper's method takes the third worker, 50 ms farther away. It "
        "is a tie but for a few ms, and one more replica later leadline is the quicker one."
    ),
}
WHY_TERM = (
    "What it is about does not differ enough between these boards to change where the pods go."
)
WHY_ROBUST = (
    "The readings lead pods to boards that are worse than those that their requests choose."
)


class Change(NamedTuple):
    """By how many percent a mean wait is longer than another one: the geometric mean over clusters
    of the ratio, as a wait that is twice as long on one and half as long on another is as long."""

    mean: float
    # The 95 % interval.
    low: float
    high: float

    @classmethod
    def of(cls, waits_ms: Floats, than_ms: Floats) -> "Change":
        """Of waits on the same clusters, shapes (clusters,)."""
        ratios = np.log(waits_ms / than_ms).tolist()
        spread = stdev(ratios) if len(ratios) > 1 else 0.0
        mean, half_width = fmean(ratios), _NORMAL * spread / sqrt(len(ratios))
        return cls(*(100 * expm1(each) for each in (mean, mean - half_width, mean + half_width)))

    def __str__(self) -> str:
        """Percent and the interval."""
        return f"{self.mean:+.1f} % ({self.low:+.1f} to {self.high:+.1f})"


def paper_claim(comparison: Comparison, ours: str) -> Claim:
    """That leadline is at least as good as the paper's method, in the paper's metric."""
    method, values = comparison.method, comparison.values
    both = [fmean(values[name]) for name in (method, ours)]
    sign = 1 if comparison.better == "lower" else -1
    worse = [sign * (b - a) for a, b in zip(values[method], values[ours], strict=True)]
    interval = _NORMAL * stdev(worse) / sqrt(len(worse)) if len(worse) > 1 else 0.0
    margin = max(AS_GOOD_PERCENT / 100 * abs(both[0]), interval)
    return make_claim(
        comparison.paper,
        f"{comparison.case}, {comparison.metric}",
        f"leadline is at least as good as {method}",
        "order",
        (f"{method} {both[0]:.4g}", f"{both[1]:.4g}"),
        fmean(worse) <= margin,
        _WHY_PAPER[comparison.paper],
        _MENDED.get(comparison.paper, "independent"),
    )


def term_claims(changes: Mapping[tuple[str, str], Change], terms: Sequence[str]) -> Iterator[Claim]:
    """That each term helps somewhere. changes: by scenario and term, without the term."""
    for term in terms:
        found = {
            scenario: each for (scenario, left_out), each in changes.items() if left_out == term
        }
        best = max(found, key=lambda scenario: found[scenario].mean)
        change = found[best]
        holds = change.mean > LEAST_GAIN_PERCENT and change.low > 0
        says = f"without {term}, pods wait longer by more than {LEAST_GAIN_PERCENT:g} %"
        texts = f"> {LEAST_GAIN_PERCENT:g} %", str(change)
        yield make_claim("Ablations", f"boards: {best}", says, "gain", texts, holds, WHY_TERM)


def robust_claims(changes: Mapping[tuple[str, str], Change]) -> Iterator[Claim]:
    """That kube-scheduler is never much better. changes: by scenario and readings, beside it."""
    for (scenario, readings), change in changes.items():
        says = f"pods wait at most {MOST_WORSE_PERCENT:g} % longer than with {KUBE}"
        texts = f"<= +{MOST_WORSE_PERCENT:g} %", str(change)
        holds = change.mean <= MOST_WORSE_PERCENT
        case = f"boards: {scenario}, readings: {readings}"
        # How often a report is taken to be wrong was chosen by these.
        kind: Kind = "fitted" if readings in _LYING else "independent"
        yield make_claim("Robust", case, says, "gain", texts, holds, WHY_ROBUST, kind)
