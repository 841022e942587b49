"""Explains a decision without its view.

A view of thousands of nodes takes megabytes, and users ask about a decision long after it. An
explanation has the best scores, the refused nodes that fail the fewest filters, and counts of all
others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from leadline_controller.framework.cycle import Better, Decision, FilterResult, Scores
from leadline_controller.framework.view import METRICS, ClusterView, Floats, Ints

REPORT, BANDWIDTH, RTT = "report", "bandwidth", "rtt"
# Little-endian on every machine.
KEPT = np.dtype("<f4")
_BANDWIDTH_COLUMN, _RTT_COLUMN = "bandwidth_mbps", "rtt_ms"


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The scores and refusals of a decision.

    nodes: the scored nodes that are included, the chosen one among them. total, parts, ages_s:
    columns over `nodes`, NaN where unknown. ages_s: REPORT, BANDWIDTH or RTT -> seconds since the
    oldest such measurement of the node that the strategy could use. scored, rejected: how many
    nodes in all. failing: filter -> how many nodes it refused. reasons: refused node -> "Filter:
    reason" of each filter that refused it.
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
        """With columns as precise as the stored ones, so that it is the same before and after."""
        return replace(
            self,
            total=in_kept_digits(self.total),
            parts={name: in_kept_digits(column) for name, column in self.parts.items()},
            ages_s={name: in_kept_digits(column) for name, column in self.ages_s.items()},
        )


def in_kept_digits(column: Floats | npt.NDArray[np.float32]) -> Floats:
    """Round to the precision of KEPT, about seven digits. Converts through text, so that 0.1 stays
    0.1 and does not become 0.10000000149."""
    with np.errstate(over="ignore"):
        return column.astype(KEPT).astype(str).astype(np.float64)


def explanation(decision: Decision, at_s: float, limit: int | None = None) -> Explanation:
    """Explain a decision made at `at_s` on the clock of its view. limit: how many of the best
    scores to include; of the refused nodes with the fewest failed filters as many, or a quarter
    of that if a node was chosen."""
    view, results, scores = decision.basis()
    if view is None:
        return Explanation()
    failures = _failures(len(view), results, scores)
    rejected = np.flatnonzero(failures)
    most = limit if limit is None or scores is None else limit // 4
    shown = rejected[np.argsort(failures[rejected], kind="stable")[:most]]
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
        failing=_failing(results) if rejected.size else {},
        reasons={view.table.names[i]: _reasons(results, int(i)) for i in shown},
    )


def _failing(results: Mapping[str, FilterResult]) -> dict[str, int]:
    counts = {name: int(np.count_nonzero(~result.passes)) for name, result in results.items()}
    return {name: count for name, count in counts.items() if count}


def _failures(count: int, results: Mapping[str, FilterResult], scores: Scores | None) -> Ints:
    """How many filters refuse each node."""
    failures = np.zeros(count, dtype=np.int64)
    if scores is not None and scores.candidates.size == count:
        return failures
    for result in results.values():
        failures += ~result.passes
    return failures


def _reasons(results: Mapping[str, FilterResult], node: int) -> tuple[str, ...]:
    return tuple(
        f"{name}: {result.reason(node)}"
        for name, result in results.items()
        if not result.passes[node]
    )


def _nodes(scores: Scores | None, kept: Ints) -> Ints:
    return kept if scores is None else scores.candidates[kept]


def _position(decision: Decision, view: ClusterView, scores: Scores) -> int:
    """The position of the chosen node among the candidates."""
    node = view.table.index[decision.node or ""]
    return int(np.searchsorted(scores.candidates, node))


def _best(scores: Scores, better: Better, chosen: int, limit: int | None) -> Ints:
    """Positions of the `limit` best totals, the chosen one included."""
    count = scores.total.size
    if limit is None or count <= limit:
        return np.arange(count)
    merit = scores.total if better == "lower" else -scores.total
    kept = np.argpartition(np.where(np.isnan(merit), np.inf, merit), limit - 1)[:limit]
    if chosen not in kept:
        kept[-1] = chosen  # instead of another
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
