"""Explains a decision without its view, and encodes that in a few hundred bytes.

A view of thousands of nodes takes megabytes, and users ask about a decision long after it. An
explanation has the best scores, the refused nodes that fail the fewest filters, and counts of all
others. It is stored as JSON for names and counts, then columns of 32-bit floats (seven digits),
because formatting floats as text takes longer than deciding. Decoding bounds and checks everything,
because a damaged or hostile file can hold anything, and a few bytes can unpack to gigabytes.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from leadline_controller.framework.cycle import Better, Decision, FilterResult, Scores
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import METRICS, ClusterView, Floats, Ints
from leadline_controller.parsing.fields import replace_surrogates

Kind = TypeVar("Kind")
REPORT, BANDWIDTH, RTT = "report", "bandwidth", "rtt"
# Little-endian on every machine.
_KEPT = np.dtype("<f4")
_BANDWIDTH_COLUMN, _RTT_COLUMN = "bandwidth_mbps", "rtt_ms"
# Of an unpacked explanation; 64 scored nodes and 64 refused ones take a tenth.
MAX_BYTES = 2**19
_MAX_COUNT = 2**32 - 1
_LEVEL = 1  # higher levels take longer and save little


class Explanation(NamedTuple):
    """The scores and refusals of a decision.

    nodes: the scored nodes that are included, the chosen one among them. total, parts, ages_s:
    columns over `nodes`, NaN where unknown. ages_s: REPORT, BANDWIDTH or RTT -> seconds since the
    oldest such measurement of the node that the strategy could use. scored, rejected: how many
    nodes in all. failing: filter -> how many nodes it refused. reasons: refused node -> "Filter:
    reason" of each filter that refused it. pull: columns of Pull, what the pod's images meant for
    the nodes; empty if no layers of them were known. measured: columns of the measured values that
    the strategy reads, by their names with units; "rtt_ms" is that to the pod's user node.
    """

    nodes: tuple[str, ...] = ()
    total: Floats = np.zeros(0)
    parts: Mapping[str, Floats] = MappingProxyType({})
    ages_s: Mapping[str, Floats] = MappingProxyType({})
    scored: int = 0
    rejected: int = 0
    failing: Mapping[str, int] = MappingProxyType({})
    reasons: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    pull: Mapping[str, Floats] = MappingProxyType({})
    measured: Mapping[str, Floats] = MappingProxyType({})

    def rounded(self) -> "Explanation":
        """With columns as precise as the stored ones, so that it is the same before and after."""
        return self._replace(
            total=_rounded(self.total),
            parts={name: _rounded(column) for name, column in self.parts.items()},
            ages_s={name: _rounded(column) for name, column in self.ages_s.items()},
            pull={name: _rounded(column) for name, column in self.pull.items()},
            measured={name: _rounded(column) for name, column in self.measured.items()},
        )


def _rounded(column: Floats | npt.NDArray[np.float32]) -> Floats:
    """The column in the seven digits of _KEPT. Converts through text, so that 0.1 stays 0.1 and
    does not become 0.10000000149."""
    with np.errstate(over="ignore"):
        return column.astype(_KEPT).astype(str).astype(np.float64)


def explanation(decision: Decision, at_s: float, limit: int | None = None) -> Explanation:
    """Explain a decision made at `at_s` on the clock of its view. limit: how many of the best
    scores to include; of the refused nodes with the fewest failed filters as many, or a quarter
    of that if a node was chosen."""
    view, results, scores = decision.basis()
    if view is None:
        return Explanation()
    refusals = Explanation()
    if scores is None or scores.candidates.size < len(view):
        most = limit if limit is None or scores is None else limit // 4
        refusals = _refusals(view, results, most)
    if scores is None:
        return refusals
    chosen = np.searchsorted(scores.candidates, view.table.index[decision.node or ""])
    kept = _best(scores, decision.better, int(chosen), limit)
    nodes = scores.candidates[kept]
    return refusals._replace(
        nodes=tuple(view.table.names[i] for i in nodes),
        total=scores.total[kept],
        parts={name: column[kept] for name, column in scores.parts.items()},
        ages_s=_ages_s(view, decision.needs, at_s, nodes),
        scored=scores.total.size,
        pull=_pull(view, decision.pod, nodes),
        measured=measured(view, decision.pod, decision.needs, nodes),
    )


def _refusals(
    view: ClusterView, results: Mapping[str, FilterResult], limit: int | None
) -> Explanation:
    """The explanation of the refused nodes alone, with the reasons of at most `limit`."""
    failures = np.zeros(len(view), dtype=np.int64)
    for result in results.values():
        failures += ~result.passes
    rejected = np.flatnonzero(failures)
    shown = rejected[np.argsort(failures[rejected], kind="stable")[:limit]]
    counts = {name: int(np.count_nonzero(~result.passes)) for name, result in results.items()}
    return Explanation(
        rejected=rejected.size,
        failing={name: count for name, count in counts.items() if count},
        reasons={view.table.names[i]: _reasons(results, int(i)) for i in shown},
    )


def _reasons(results: Mapping[str, FilterResult], node: int) -> tuple[str, ...]:
    return tuple(
        f"{name}: {result.reason(node)}"
        for name, result in results.items()
        if not result.passes[node]
    )


def _best(scores: Scores, better: Better, chosen: int, limit: int | None) -> Ints:
    """Positions of the `limit` best totals, the chosen one included."""
    count = scores.total.size
    if limit is None or count <= limit:
        return np.arange(count)
    merit = scores.total if better == "lower" else -scores.total
    # A partition takes up to forty times as long where most totals are equal, as in a burst.
    kept = np.argsort(np.where(np.isnan(merit), np.inf, merit), kind="stable")[:limit]
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


def measured(view: ClusterView, pod: Pod, needs: Iterable[str], nodes: Ints) -> dict[str, Floats]:
    """What was measured of these nodes (indexes) of what a strategy needs, columns, NaN where
    unknown. rtt_ms: to the pod's user node; unknown on that node itself."""
    columns: dict[str, Floats] = {}
    for need in needs:
        if need in METRICS:
            columns[need] = getattr(view.metrics, need)[nodes]
        elif need == _RTT_COLUMN:
            user = view.table.index.get(pod.annotations.user_node or "")
            rtt_ms = np.full(len(view), np.nan)
            if user is not None:
                rtt_ms = view.links.rtt_ms_from(user).copy()
                rtt_ms[user] = np.nan
            columns[need] = rtt_ms[nodes]
    return columns


def _pull(view: ClusterView, pod: Pod, nodes: Ints) -> dict[str, Floats]:
    if not view.images.knows(view.table, pod):
        return {}
    pull = view.pull(pod)
    if np.isnan(pull.missing_mb).all():
        return {}
    return {name: column[nodes] for name, column in pull._asdict().items()}


def encode(explanation: Explanation) -> bytes:
    """Encode in a format that later versions can read. An explanation over MAX_BYTES loses its
    reasons, and if it is still too long, all but its counts."""
    counts = Explanation(scored=explanation.scored, rejected=explanation.rejected)
    for smaller in (explanation, explanation._replace(reasons={}), counts):
        data = _unpacked(smaller)
        if len(data) <= MAX_BYTES:
            break
    return zlib.compress(data, _LEVEL)


def _unpacked(explanation: Explanation) -> bytes:
    by_reasons: dict[tuple[str, ...], list[str]] = {}
    for node, why in explanation.reasons.items():
        by_reasons.setdefault(why, []).append(node)
    head = {
        "nodes": explanation.nodes,
        "parts": list(explanation.parts),
        "ages": list(explanation.ages_s),
        "pull": list(explanation.pull),
        "measured": list(explanation.measured),
        "scored": explanation.scored,
        "rejected": explanation.rejected,
        "failing": dict(explanation.failing),
        "reasons": list(by_reasons.items()),
    }
    text = json.dumps(head, separators=(",", ":"))
    named = (explanation.parts, explanation.ages_s, explanation.pull, explanation.measured)
    columns = [explanation.total, *(column for each in named for column in each.values())]
    with np.errstate(over="ignore"):
        return text.encode() + b"\n" + np.array(columns).astype(_KEPT).tobytes()


def decode(data: bytes) -> Explanation:
    """Decode an explanation. Raises ValueError for any other data."""
    try:
        unpacking = zlib.decompressobj()
        flat = unpacking.decompress(data, MAX_BYTES + 1)
        if len(flat) > MAX_BYTES or not unpacking.eof:
            raise ValueError("it is too long, or has no end")
        text, _, floats = flat.partition(b"\n")
        head = json.loads(text)
        nodes, parts, ages = _texts(head["nodes"]), _texts(head["parts"]), _texts(head["ages"])
        # Missing in what earlier versions wrote.
        pull, measured = _texts(head.get("pull", [])), _texts(head.get("measured", []))
        shape = (1 + sum(map(len, (parts, ages, pull, measured))), len(nodes))
        columns = iter(_rounded(np.frombuffer(floats, dtype=_KEPT)).reshape(shape))
        total = next(columns)
        reasons: dict[str, tuple[str, ...]] = {}
        for entry in _expected(list, head["reasons"]):
            why, refused = _expected(list, entry)
            reasons |= dict.fromkeys(_texts(refused), _texts(why))
        return Explanation(
            nodes=nodes,
            total=total,
            parts={name: next(columns) for name in parts},
            ages_s={name: next(columns) for name in ages},
            pull={name: next(columns) for name in pull},
            measured={name: next(columns) for name in measured},
            scored=_count(head["scored"]),
            rejected=_count(head["rejected"]),
            failing={
                replace_surrogates(name): _count(count)
                for name, count in _expected(dict, head["failing"]).items()
            },
            reasons=reasons,
        )
    except (zlib.error, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"no explanation of a decision: {error}") from None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(replace_surrogates(_expected(str, each)) for each in _expected(list, value))


def _expected(kind: type[Kind], value: object) -> Kind:
    if not isinstance(value, kind):
        raise TypeError(f"expected a {kind.__name__}")
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not 0 <= _expected(int, value) <= _MAX_COUNT:
        raise ValueError("expected a count")
    return _expected(int, value)
