"""How much a strategy that decides without effect differs from the one in force, and what was
measured of both boards later. Pure.

Of decisions made close together the same minutes of the same boards are measured, so those of an
hour count as one observation (batch means; Law, "Simulation Modeling and Analysis", 9.5.3), and a
95 % interval is Student's over the hours. That does not make a strategy's own future known: each
of its decisions is about the cluster as the strategy in force has left it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from leadline_controller.framework.cycle import Better
from leadline_controller.history.shadowed import BANDWIDTH, CPU, LATER, ShadowDecision
from leadline_controller.history.times import Moment
from leadline_controller.telemetry.series import RTT

_HOUR_S = 3600.0
_LEAST_HOURS = 10
_SHOWN = 5
# Metric -> which way is better, the unit of a difference, and what it is of.
_WORDS: Mapping[str, tuple[Better, str, str]] = {
    CPU: ("lower", "percentage points", "CPU in use"),
    BANDWIDTH: ("higher", "Mbit/s", "bandwidth"),
    RTT: ("lower", "ms", "round trip to the pods' users"),
}


class Later(NamedTuple):
    """What was measured of both boards after the decisions that differ, means."""

    name: str  # of the metric, with its unit
    decisions: int  # for which both boards were measured
    hours: int  # in which these were made
    node: float  # where the pods went
    choice: float  # where the shadow would have put them
    # What the pods themselves are expected to use of `node`; it is not in `difference`.
    pods: float
    difference: float  # of `choice` less that of `node`, mean over the hours
    # Of the difference, 95 %; None with too few hours.
    low: float | None
    high: float | None


class Differing(NamedTuple):
    """A workload, or two boards, with decisions that differ."""

    name: str
    other: str  # the board that the shadow would have chosen; "" for a workload
    different: int
    decisions: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A shadow beside the strategy in force. The decisions are the seen ones."""

    strategy: str
    decided_by: str
    better: Better
    decisions: int
    missed: int  # that were not looked at
    same: int
    tied: int  # another node, and by the shadow's totals the real one is as good
    pending: int  # the shadow finds no node good enough
    # By the shadow's own totals, of those that differ and have both: how much better its choice is
    # in its unit, and which place the node has.
    scored: int
    gain: float | None
    rank: float | None
    later: tuple[Later, ...]
    workloads: tuple[Differing, ...]
    boards: tuple[Differing, ...]
    verdicts: tuple[str, ...]

    @property
    def different(self) -> int:
        """The decisions for another node that is better by the shadow's totals, or for none."""
        return self.decisions - self.same - self.tied


def comparisons(decisions: Iterable[ShadowDecision], now: Moment) -> list[Comparison]:
    """One of each shadow beside each strategy in force, by their names."""
    by_pair: dict[tuple[str, str], list[ShadowDecision]] = defaultdict(list)
    for each in decisions:
        by_pair[each.strategy, each.decided_by].append(each)
    return [_comparison(by_pair[pair], now) for pair in sorted(by_pair)]


def _comparison(decisions: Sequence[ShadowDecision], now: Moment) -> Comparison:
    strategy, decided_by = decisions[0].strategy, decisions[0].decided_by
    better = decisions[0].better
    others = [each for each in decisions if each.differs]
    same = sum(each.choice == each.node for each in decisions)
    scored = [each for each in others if each.total is not None and each.total_of_node is not None]
    sign = -1.0 if better == "lower" else 1.0
    gains = [sign * ((each.total or 0.0) - (each.total_of_node or 0.0)) for each in scored]
    ranks = [each.rank for each in scored if each.rank is not None]
    later = tuple(found for name in LATER if (found := _later(name, others, now)))
    every = Counter(each.workload for each in decisions)
    workloads = Counter(each.workload for each in others).most_common(_SHOWN)
    boards = Counter((each.node, each.choice or "") for each in others).most_common(_SHOWN)
    nodes = Counter(each.node for each in decisions)
    return Comparison(
        strategy=strategy,
        decided_by=decided_by,
        better=better,
        decisions=len(decisions),
        missed=sum(each.missed for each in decisions),
        same=same,
        tied=len(decisions) - len(others) - same,
        pending=sum(each.choice is None for each in others),
        scored=len(scored),
        gain=fmean(gains) if gains else None,
        rank=fmean(ranks) if ranks else None,
        later=later,
        workloads=tuple(Differing(name, "", n, every[name]) for name, n in workloads),
        boards=tuple(Differing(a, b, n, nodes[a]) for (a, b), n in boards),
        verdicts=tuple(
            sentence for each in later if (sentence := _verdict(strategy, decided_by, each))
        ),
    )


def _later(name: str, decisions: Iterable[ShadowDecision], now: Moment) -> Later | None:
    """One metric; None if it was not measured after any of these."""
    nodes, choices, pods = list[float](), list[float](), list[float]()
    by_hour: dict[int, list[float]] = defaultdict(list)
    for each in decisions:
        both = (each.later or {}).get(name)
        unix_s = each.at.unix_s(now)
        if both is None or unix_s is None:
            continue
        # A pod that runs on its node takes from it, which is not what made the node worse.
        own = min(each.pod_cpu_percent, both[0]) if name == CPU else 0.0
        nodes.append(both[0])
        choices.append(both[1])
        pods.append(own)
        by_hour[int(unix_s // _HOUR_S)].append(both[1] - (both[0] - own))
    if not nodes:
        return None
    hours = [fmean(each) for each in by_hour.values()]
    low, high = interval(hours)
    means = (fmean(nodes), fmean(choices), fmean(pods))
    return Later(name, len(nodes), len(hours), *means, fmean(hours), low, high)


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The 95 % interval of their mean; None of fewer than ten, of which nothing is claimed."""
    if len(values) < _LEAST_HOURS:
        return None, None
    mean, half = fmean(values), t_quantile(len(values) - 1) * stdev(values) / sqrt(len(values))
    return mean - half, mean + half


def t_quantile(freedom: int) -> float:
    """Student's t at 0.975, to three digits from 5 degrees of freedom on (Abramowitz and Stegun,
    26.7.5)."""
    x, n = 1.959964, float(freedom)
    first = (x**3 + x) / 4
    second = (5 * x**5 + 16 * x**3 + 3 * x) / 96
    third = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
    return x + first / n + second / n**2 + third / n**3


def _verdict(strategy: str, decided_by: str, later: Later) -> str:
    """One sentence, only if the interval excludes zero."""
    if later.low is None or later.high is None or later.low <= 0 <= later.high:
        return ""
    better, unit, what = _WORDS[later.name]
    is_better = (later.difference < 0) == (better == "lower")
    least, most = sorted((abs(later.low), abs(later.high)))
    way = "less" if later.difference < 0 else "more"
    apart = ", the pods' own use apart" if later.pods else ""
    much = f"{abs(later.difference):.3g} {unit} {way} {what}"
    sure = f"({least:.3g} to {most:.3g}){apart}"
    if is_better:
        return (
            f"{strategy} would have chosen better boards: where it differs, its boards had {much} "
            f"than those that {decided_by} chose {sure}"
        )
    return (
        f"{decided_by} chose better boards: where {strategy} differs, its boards had {much} {sure}"
    )
