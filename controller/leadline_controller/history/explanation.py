"""Explains a decision without its view, as JSON of a few hundred bytes.

A view of thousands of nodes takes megabytes, and users ask about a decision long after it. An
explanation has the best scores, the refused nodes that fail the fewest filters, and counts of all
others. Decoding is bounded, because a few bytes can unpack to gigabytes.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
import numpy as np

from leadline_controller.framework.cycle import Better, Decision, FilterResult, Scores
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.peers import main_peer, round_trips_ms
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.parsing.fields import replace_surrogates

REPORT, BANDWIDTH, RTT = "report", "bandwidth", "rtt"
RECENTLY_PLACED, RATES_UNKNOWN = "recently_placed", "rates_unknown"
_BANDWIDTH_COLUMN, _RTT_COLUMN = "bandwidth_mbps", "rtt_ms"
# Of an unpacked explanation; 64 scored nodes and 64 refused ones take a tenth.
MAX_BYTES = 2**19
_DIGITS = 6

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Columns = dict[str, Floats]


class Explanation(msgspec.Struct, frozen=True, eq=False, omit_defaults=True):
    """The scores and refusals of a decision. Numbers have six digits; NaN is unknown."""

    # The scored nodes that are included, the chosen one among them.
    nodes: tuple[str, ...] = ()
    # Columns over `nodes`, as all that follow.
    total: Floats = np.zeros(0)
    parts: Columns = {}
    # REPORT, BANDWIDTH or RTT -> seconds since the oldest such measurement of the node that the
    # strategy could use.
    ages_s: Columns = {}
    # Of Pull: what the pod's images meant for the nodes; empty if no layers of them were known.
    pull: Columns = {}
    # What the strategy reads, by names with units; "rtt_ms" is that to the pod's user node.
    measured: Columns = {}
    # How many nodes in all.
    scored: Count = 0
    rejected: Count = 0
    # Filter -> how many nodes it refused.
    failing: dict[str, Count] = {}
    # Refused node -> "Filter: reason" of each filter that refused it.
    reasons: dict[str, tuple[str, ...]] = {}
    # What was assumed beside `measured`, without what is 0 on all nodes.
    assumed: Columns = {}
    # RECENTLY_PLACED: of how many pods. RATES_UNKNOWN: of these, those whose packets or disk
    # nothing told, so that nothing was assumed of them. Empty if there were none.
    pods: Columns = {}

    def __post_init__(self) -> None:
        groups = (self.parts, self.ages_s, self.pull, self.measured, self.assumed, self.pods)
        columns = [self.total, *(column for each in groups for column in each.values())]
        if any(column.shape != (len(self.nodes),) for column in columns):
            raise ValueError("a column has not a number for each node")


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
    groups: tuple[Mapping[str, Floats], ...] = (
        {name: column[kept] for name, column in scores.parts.items()},
        _ages_s(view, decision.needs, at_s, nodes),
        _pull(view, decision.pod, nodes),
        measured(*(view, decision.pod, decision.needs, nodes), peer_is_user=decision.peer_is_user),
        _without_zeros(assumed(view, decision.needs, nodes)),
        _without_zeros(_recent_pods(view, decision.needs, nodes)),
    )
    # All at once: many small columns take three times as long.
    flat = [scores.total[kept], *(column for each in groups for column in each.values())]
    total, *columns = rounded(np.array(flat))
    made = iter(columns)
    parts, ages_s, pull, read, more, pods = ({name: next(made) for name in each} for each in groups)
    return msgspec.structs.replace(
        refusals,
        nodes=tuple(view.table.names[i] for i in nodes),
        total=total,
        parts=parts,
        ages_s=ages_s,
        pull=pull,
        measured=read,
        assumed=more,
        pods=pods,
        scored=scores.total.size,
    )


def rounded(numbers: Floats) -> Floats:
    """In six digits; of infinity nothing is known."""
    known = np.isfinite(numbers) & (numbers != 0)
    exponents = np.log10(np.abs(numbers), where=known, out=np.zeros_like(numbers))
    # Of a power of ten and a whole number the quotient and the product are exact to the last bit,
    # so 0.1 stays 0.1.
    places = np.clip(_DIGITS - 1 - np.floor(exponents), -300, 300)
    scale = 10.0 ** np.abs(places)
    with np.errstate(over="ignore", invalid="ignore"):
        small, large = np.rint(numbers * scale) / scale, np.rint(numbers / scale) * scale
    found = np.where(places >= 0, small, large)
    return np.where(np.isfinite(found), found, np.nan)


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
        replace_surrogates(f"{name}: {result.reason(node)}")
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
        elif view.measured.measured_at_s.size:
            kind = BANDWIDTH if need == _BANDWIDTH_COLUMN else REPORT
            age_s = at_s - view.measured.measured_at_s[nodes, METRICS.index(need)]
            age_s = np.where(np.isnan(getattr(view.measured, need)[nodes]), np.nan, age_s)
            ages_s[kind] = np.fmax(ages_s[kind], age_s) if kind in ages_s else age_s
    return ages_s


def measured(
    view: ClusterView, pod: Pod, needs: Iterable[str], nodes: Ints, *, peer_is_user: bool = False
) -> dict[str, Floats]:
    """What was measured of these nodes (indexes) of what a strategy needs, columns, NaN where
    unknown. rtt_ms: to the pod's user node; unknown on that node itself. peer_is_user: of a pod
    without one, to its main peer; 0 where that is on the node."""
    columns: dict[str, Floats] = {}
    for need in needs:
        if need in METRICS:
            columns[need] = getattr(view.measured, need)[nodes]
        elif need == _RTT_COLUMN:
            user = view.table.index.get(pod.annotations.user_node or "")
            rtt_ms = np.full(len(view), np.nan)
            if user is not None:
                rtt_ms = view.links.rtt_ms_from(user).copy()
                rtt_ms[user] = np.nan
            elif peer_is_user and (peer := main_peer(view, pod)) is not None:
                rtt_ms = round_trips_ms(view, [peer])[0]
            columns[need] = rtt_ms[nodes]
    return columns


def assumed(view: ClusterView, needs: Iterable[str], nodes: Ints) -> dict[str, Floats]:
    """What is assumed on these nodes beside what was measured of what a strategy needs, columns of
    six digits, NaN where that is unknown."""
    return {
        need: rounded((getattr(view.metrics, need) - getattr(view.measured, need))[nodes])
        for need in needs
        if need in METRICS
    }


def load_document(
    measured: Mapping[str, float], assumed: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """What a strategy read of a node as plain data: each metric's measured and assumed part, and
    their sum. Nothing is assumed of round trips."""
    more = {name: assumed.get(name, 0.0) for name in sorted(measured) if name in METRICS}
    return {
        "measured": dict(sorted(measured.items())),
        "assumed": more,
        "sum": {name: measured[name] + each for name, each in more.items()},
    }


def _recent_pods(view: ClusterView, needs: Iterable[str], nodes: Ints) -> dict[str, Floats]:
    if view.assumed is None or not any(need in METRICS for need in needs):
        return {}
    counts = {
        RECENTLY_PLACED: view.recently_placed_pods(),
        RATES_UNKNOWN: view.assumed.rates_unknown,
    }
    return {name: count[nodes].astype(np.float64) for name, count in counts.items()}


def _without_zeros(columns: Mapping[str, Floats]) -> dict[str, Floats]:
    return {name: column for name, column in columns.items() if np.nan_to_num(column).any()}


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
    for smaller in (explanation, msgspec.structs.replace(explanation, reasons={}), counts):
        data = msgspec.json.encode(smaller, enc_hook=np.ndarray.tolist)
        if len(data) <= MAX_BYTES:
            break
    return zlib.compress(data)


def decode(data: bytes) -> Explanation:
    """Decode an explanation. Raises ValueError for any other data."""
    try:
        return msgspec.json.decode(unpacked(data), type=Explanation, dec_hook=_column)
    except (zlib.error, ValueError, RecursionError) as error:
        raise ValueError(f"no explanation of a decision: {error}") from None


def unpacked(data: bytes) -> bytes:
    """What was compressed. Raises ValueError if that is too long or cut off, and zlib.error."""
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(data, MAX_BYTES + 1)
    if len(found) > MAX_BYTES or not unpacking.eof:
        raise ValueError("it is too long, or has no end")
    return found


def _column(_: type, numbers: list[float | None]) -> Floats:
    return np.array(numbers, dtype=np.float64)  # None becomes NaN
