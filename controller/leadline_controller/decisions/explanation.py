"""What stays of a decision when the view that it was made from is gone.

A view of thousands of nodes is megabytes, and a decision about one pod is asked for long
after it. An account has the scores that were near to winning, the nodes that were near to
being candidates, and counts of all the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from leadline_controller.framework.cycle import Better, Decision, FilterResult, Scores
from leadline_controller.framework.view import METRICS, ClusterView, Floats, Ints

REPORT, BANDWIDTH, RTT = "report", "bandwidth", "rtt"
# Of whatever machine wrote it.
KEPT = np.dtype("<f4")
_BANDWIDTH_COLUMN, _RTT_COLUMN = "bandwidth_mbps", "rtt_ms"


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Everything that can be told of a decision.

    nodes: the scored nodes that are kept, the chosen one among them. total, parts, ages_s:
    columns over `nodes`, NaN where unknown. ages_s: REPORT, BANDWIDTH or RTT -> how old the
    oldest such measurement was that the strategy could use for the node, seconds.
    scored, rejected: how many nodes there were in all. failing: filter -> how many nodes it
    turned down. reasons: rejected node -> "Filter: reason" of each filter that said no.
    """

    nodes: tuple[str, ...] = ()
    total: Floats = field(default_factory=lambda: np.zeros(0))
    parts: Mapping[str, Floats] = field(default_factory=lambda: MappingProxyType({}))
    ages_s: Mapping[str, Floats] = field(default_factory=lambda: MappingProxyType({}))
    scored: int = 0
    rejected: int = 0
    failing: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def rounded(self) -> "Explanation":
        """Its columns in the digits that are kept, so that it is told alike before and after."""
        return replace(
            self,
            total=in_kept_digits(self.total),
            parts={name: in_kept_digits(column) for name, column in self.parts.items()},
            ages_s={name: in_kept_digits(column) for name, column in self.ages_s.items()},
        )


def in_kept_digits(column: Floats | npt.NDArray[np.float32]) -> Floats:
    """Cut to what KEPT holds, about seven digits. By way of text, so that 0.1 is 0.1 again and
    not 0.10000000149."""
    with np.errstate(over="ignore"):
        return column.astype(KEPT).astype(str).astype(np.float64)


def explanation(decision: Decision, at_s: float, limit: int | None = None) -> Explanation:
    """The account of a decision made at `at_s` on the clock of its view. limit: how many of the
    best scores are kept, and of the rejected nodes, those that fail the fewest filters, as many
    where no node was left, else a quarter of that."""
    view, verdicts, scores = decision.basis()
    if view is None:
        return Explanation()
    failures = _failures(len(view), verdicts, scores)
    rejected = np.flatnonzero(failures)
    most = limit if limit is None or scores is None else limit // 4
    told = rejected[np.argsort(failures[rejected], kind="stable")[:most]]
    kept = np.zeros(0, dtype=np.int64)
    if scores is not None:
        kept = _best(scores, decision.better, _position(decision, view, scores), limit)
    return Explanation(
        nodes=tuple(view.table.names[i] for i in _nodes(scores, kept)),
        total=np.zeros(0) if scores is None else scores.total[kept],
        parts={} if scores is None else {name: x[kept] for name, x in scores.parts.items()},
        ages_s=_ages_s(view, decision.needs, at_s, _nodes(scores, kept)),
        scored=0 if scores is None else scores.total.size,
        rejected=rejected.size,
        failing=_failing(verdicts) if rejected.size else {},
        reasons={view.table.names[i]: _reasons(verdicts, int(i)) for i in told},
    )


def _failing(verdicts: Mapping[str, FilterResult]) -> dict[str, int]:
    counts = {name: int(np.count_nonzero(~verdict.passes)) for name, verdict in verdicts.items()}
    return {name: count for name, count in counts.items() if count}


def _failures(count: int, verdicts: Mapping[str, FilterResult], scores: Scores | None) -> Ints:
    """How many filters turn each node down."""
    failures = np.zeros(count, dtype=np.int64)
    if scores is not None and scores.candidates.size == count:
        return failures
    for verdict in verdicts.values():
        failures += ~verdict.passes
    return failures


def _reasons(verdicts: Mapping[str, FilterResult], node: int) -> tuple[str, ...]:
    return tuple(
        f"{name}: {verdict.reason(node)}"
        for name, verdict in verdicts.items()
        if not verdict.passes[node]
    )


def _nodes(scores: Scores | None, kept: Ints) -> Ints:
    return kept if scores is None else scores.candidates[kept]


def _position(decision: Decision, view: ClusterView, scores: Scores) -> int:
    """Where among the candidates the chosen node is."""
    node = view.table.index[decision.node or ""]
    return int(np.searchsorted(scores.candidates, node))


def _best(scores: Scores, better: Better, chosen: int, limit: int | None) -> Ints:
    """Positions of the `limit` best totals, always with the chosen one."""
    count = scores.total.size
    if limit is None or count <= limit:
        return np.arange(count)
    merit = scores.total if better == "lower" else -scores.total
    kept = np.argpartition(np.where(np.isnan(merit), np.inf, merit), limit - 1)[:limit]
    if chosen not in kept:
        kept[-1] = chosen  # in the place of the worst that is kept
    return np.sort(kept)


def _ages_s(
    view: ClusterView, needs: tuple[str, ...], at_s: float, nodes: Ints
) -> dict[str, Floats]:
    ages_s: dict[str, Floats] = {}
    for need in needs:
        if need == _RTT_COLUMN:
            ages_s[RTT] = at_s - view.links.oldest_at_s[nodes]
        elif view.metrics.measured_at_s.size:
            kind = BANDWIDTH if need == _BANDWIDTH_COLUMN else REPORT
            age_s = at_s - view.metrics.measured_at_s[nodes, METRICS.index(need)]
            age_s = np.where(np.isnan(getattr(view.metrics, need)[nodes]), np.nan, age_s)
            ages_s[kind] = np.fmax(ages_s[kind], age_s) if kind in ages_s else age_s
    return ages_s
