"""Which pairs of boards the map draws: a few of each board, so that their number grows with that of
the boards. And all pairs of some boards, for the heat map."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from leadline_controller.framework.view import Floats, Ints
from leadline_controller.map.layout import round_trips
from leadline_controller.telemetry.link_status import PairTable
from leadline_controller.telemetry.nearest import nearest

SOURCES = (
    *("unknown", "measured", "stale", "triangulated", "estimated", "unreachable"),
    "bounded",
)
_NEAREST, _LOST, _TESTED = 4, 2, 2  # pairs of each board
_MOST_ESTIMATED = 1000  # more boards are drawn with measured pairs alone


def chosen(pairs: PairTable, anchors: Collection[str]) -> frozenset[tuple[str, str]]:
    """Of each board the pairs with its nearest measured peers and with anchors, those that were
    tested last, those without a reply, and estimated ones where too few are measured."""
    found = set[tuple[str, str]]()
    for rows, count in ((np.isfinite(pairs.rtt_ms), _NEAREST), (np.isinf(pairs.rtt_ms), _LOST)):
        ends = pairs.ends[rows]
        _, _, kept = nearest(pairs.names, ends, pairs.rtt_ms[rows], count)
        found.update(_named(pairs, ends[kept]))
    is_anchor = np.array([name in anchors for name in pairs.names], dtype=np.bool_)
    if is_anchor.any():
        found.update(_named(pairs, pairs.ends[is_anchor[pairs.ends].any(axis=1)]))
    tests = Counter[str]()
    for a, b in pairs.tested:
        if tests[a] < _TESTED or tests[b] < _TESTED:
            found.add((a, b))
            tests.update((a, b))
    found.update(list(_estimated(pairs, found)))
    return frozenset(found)


def _named(pairs: PairTable, ends: Ints) -> Iterator[tuple[str, str]]:
    for one, other in ends.tolist():
        a, b = pairs.names[one], pairs.names[other]
        yield (a, b) if a < b else (b, a)


def _estimated(pairs: PairTable, found: Collection[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Pairs with the nearest peers by the coordinates, of the boards with fewer than _NEAREST."""
    estimates = pairs.estimates
    if estimates is None or len(estimates.names) > _MOST_ESTIMATED:
        return
    degree = Counter(name for pair in found for name in pair)
    lonely = [name for name in estimates.names if degree[name] < _NEAREST]
    if not lonely:
        return
    at = np.array([estimates.index[name] for name in lonely], dtype=np.int64)
    modelled: Floats = estimates.coordinates.to_each(at).T.copy()
    modelled[np.arange(len(at)), at] = np.inf
    modelled[np.isnan(modelled)] = np.inf
    nearest = np.argsort(modelled, axis=1, kind="stable")[:, : 2 * _NEAREST]
    for row, name in enumerate(lonely):
        peers = [
            estimates.names[peer]
            for peer in nearest[row].tolist()
            if np.isfinite(modelled[row, peer])
        ]
        pairs_of = [(name, peer) if name < peer else (peer, name) for peer in peers]
        new = [pair for pair in pairs_of if pair not in found]
        yield from new[: _NEAREST - degree[name]]


def matrix(names: Sequence[str], pairs: PairTable) -> tuple[Floats, Ints]:
    """The round trips of these boards, ms, NaN if unknown, and indexes into SOURCES, shapes (n, n).
    Estimated ones have the correction by near boards, as everywhere else."""
    known, rtt_ms = round_trips(names, pairs)
    source = np.zeros(rtt_ms.shape, dtype=np.int64)
    estimates = pairs.estimates
    if estimates is not None:
        places = np.array([estimates.index.get(name, -1) for name in known], dtype=np.int64)
        here = np.flatnonzero(places >= 0)
        for row in here.tolist():
            values, near = estimates.rtt_ms_from(int(places[row]))
            rtt_ms[row, here] = values[places[here]]
            source[row, here] = np.where(near[places[here]], 3, 4)
        # Each end has its own correction.
        lower = np.tril_indices(len(known), -1)
        rtt_ms[lower], source[lower] = rtt_ms.T[lower], source.T[lower]
        source[np.isnan(rtt_ms)] = 0
    index = {name: at for at, name in enumerate(known)}
    at = np.array([index.get(name, -1) for name in pairs.names], dtype=np.int64)
    ends = at[pairs.ends].reshape(-1, 2)
    there = (ends >= 0).all(axis=1)
    a, b = ends[there].T
    lost = np.isinf(pairs.rtt_ms[there])
    values = np.where(lost, np.nan, pairs.rtt_ms[there])
    is_bound = (np.arange(len(pairs.ends)) >= len(pairs.ends) - pairs.bounds)[there]
    kind = np.where(lost, 5, np.where(pairs.is_stale[there], 2, np.where(is_bound, 6, 1)))
    rtt_ms[a, b] = rtt_ms[b, a] = values
    source[a, b] = source[b, a] = kind
    np.fill_diagonal(rtt_ms, np.nan)
    np.fill_diagonal(source, 0)
    return rtt_ms, source
