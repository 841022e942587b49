"""What all boards have counted, joined: each byte once, under the names of its real ends. Pure.

Where both ends report, the lower of their counts is used. The end that is reached sees a board
where the other end's addresses are translated, so what boards say of their own ends is compared by
what the other end sees, and then shared out among the real ends as their own board has it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.model import NODE_PEER
from leadline_controller.framework.services import Service
from leadline_controller.framework.view import Floats
from leadline_controller.traffic.counts import (
    BYTES,
    CONNECTIONS,
    PACKETS,
    QUANTITIES,
    RARER,
    BoardCounts,
)
from leadline_controller.traffic.edges import MINUTE_S, WINDOWS_S, End, Rates, TrafficEdge
from leadline_controller.traffic.join import Key, Place

_HOUR = 1  # the place among WINDOWS_S
MANY_PORTS = 0  # the port of an edge between two ends with more ports than these
_MOST_PORTS = 16
_SHAPE = (len(WINDOWS_S), QUANTITIES)
_MBIT_OF_BYTES = 8 / 1e6

EdgeKey = tuple[Service | str, Service | str, int]


class _Row(NamedTuple):
    """One board's count."""

    node: str
    key: Key
    row_s: float
    is_fresh: bool  # the board says what is now


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """All that is known. edges: those with the most bytes of the hour first."""

    edges: tuple[TrafficEdge, ...] = ()
    keys: tuple[EdgeKey, ...] = ()  # of the edges, and then of those beyond the limit
    entries: Mapping[str, str] = field(default_factory=dict)  # see framework's Traffic
    flowing_mbps: Mapping[str, float] = field(default_factory=dict)


def join(
    boards: Mapping[str, BoardCounts],
    is_over: Callable[[str, Key], bool],
    names: Mapping[Service, str],
    now_s: float,
    most: int,
) -> Joined:
    """Join the counts of the boards, by name. is_over: whether nothing is left of the board's own
    end. Then its last word, of a board that is silent, holds no longer than the other end confirms
    it. names: of workloads. most: edges, those with the most bytes of the last hour."""
    rows: list[_Row] = []
    parts: list[Floats] = []
    reporting = {name for name, board in boards.items() if board.reports(now_s)}
    for node, board in boards.items():
        kept, is_fresh = list(board.keys.items()), board.is_fresh(now_s)
        if not is_fresh:
            kept = [
                (key, at)
                for key, at in kept
                if not is_over(node, key) or _other_board(key) in reporting
            ]
        row_s = board.row_s.tolist()
        rows += [_Row(node, key, row_s[at], is_fresh) for key, at in kept]
        parts.append(board.rates(now_s)[[at for _, at in kept]])
    if not rows:
        return Joined()
    rates = np.concatenate(parts)
    shared, named = _shared_out(boards, rows, rates, now_s)
    return _edges(rows, named, shared, names, most)


class _Named(NamedTuple):
    """What counts of a row, under the names of its real ends."""

    source: Place
    destination: Place
    is_one_sided: bool  # one end alone said it


def _other_board(key: Key) -> str:
    """The board that knows the other end of what a board counts; "" if none does."""
    if key.has_source and key.has_destination:
        return ""
    return key.destination.node if key.has_source else key.seen.node


def _shared_out(
    boards: Mapping[str, BoardCounts], rows: list[_Row], rates: Floats, now_s: float
) -> tuple[Floats, list[_Named]]:
    """What counts of each row, and under which names."""
    groups: dict[tuple[Place, Place, int], int] = {}
    at = np.zeros(len(rows), dtype=np.int64)
    sides = np.full(len(rows), -1)  # 0: the source's board alone, 1: the destination's
    for number, (_, key, *_) in enumerate(rows):
        if not (key.has_source and key.has_destination):
            at[number] = groups.setdefault((key.seen, key.destination, key.port), len(groups))
            sides[number] = int(key.has_destination)
    sums = np.zeros((2, len(groups), *_SHAPE))
    counts = np.zeros((2, len(groups)), dtype=np.int64)
    for side in (0, 1):
        np.add.at(sums[side], at[sides == side], rates[sides == side])
        np.add.at(counts[side], at[sides == side], 1)
    total = np.maximum(sums[0], sums[1])
    # A board that reports bounds what others say of it, to what it says itself.
    reporting = {name: board for name, board in boards.items() if board.reports(now_s)}
    places = {name: place for place, name in enumerate(reporting)}
    allowed = [board.allowed(now_s) for board in reporting.values()]
    bounds = np.array([*allowed, np.full(_SHAPE, np.inf)])
    boards_of = (
        [places.get(seen.node, -1) for seen, _, _ in groups],
        [places.get(destination.node, -1) for _, destination, _ in groups],
    )
    for side, places_of in enumerate(boards_of):
        bound = bounds[np.array(places_of, dtype=np.int64)]
        total = np.minimum(total, np.maximum(sums[side], bound))
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.nan_to_num(total / sums[0], nan=0.0, posinf=0.0)
    shared = rates.copy()
    shared[sides == 0] *= factor[at[sides == 0]]
    # What the source's board names is counted there already.
    is_named = counts[0][at[sides == 1]] > 0
    shared[sides == 1] = np.where(is_named[:, None, None], 0.0, total[at[sides == 1]])
    is_agreed = (counts[0] > 0) & (counts[1] > 0)
    named = [
        _Named(key.source, key.destination, not is_agreed[group])
        if side >= 0
        else _Named(key.source, key.destination, key.source.node != key.destination.node)
        for (_, key, *_), group, side in zip(rows, at.tolist(), sides.tolist(), strict=True)
    ]
    return shared, named


def _edges(
    rows: list[_Row], named: list[_Named], shared: Floats, names: Mapping[Service, str], most: int
) -> Joined:
    """Add up what is between the same workloads, nodes and addresses, where one is a workload."""
    hour_mbps = (shared[:, _HOUR, BYTES] * _MBIT_OF_BYTES).tolist()
    chosen = [
        number
        for number in np.flatnonzero(shared.reshape(len(rows), -1).any(axis=1)).tolist()
        if named[number].source.workload or named[number].destination.workload
    ]
    ports: defaultdict[tuple[Service | str, Service | str], set[int]] = defaultdict(set)
    for number in chosen:
        each = named[number]
        ports[each.source.who, each.destination.who].add(rows[number].key.port)
    numbers: dict[EdgeKey, int] = {}
    at: list[int] = []
    for number in chosen:
        ends = named[number].source.who, named[number].destination.who
        port = rows[number].key.port if len(ports[ends]) <= _MOST_PORTS else MANY_PORTS
        at.append(numbers.setdefault((*ends, port), len(numbers)))
    sums = np.zeros((len(numbers), *_SHAPE))
    np.add.at(sums, at, shared[chosen])
    counted_s, alone_mbps = np.full(len(numbers), -np.inf), np.zeros(len(numbers))
    np.maximum.at(counted_s, at, [rows[number].row_s for number in chosen])
    is_fresh = np.zeros(len(numbers), dtype=np.bool_)
    np.logical_or.at(is_fresh, at, [rows[number].is_fresh for number in chosen])
    np.add.at(alone_mbps, at, [hour_mbps[x] * named[x].is_one_sided for x in chosen])
    is_one_sided = alone_mbps > sums[:, _HOUR, BYTES] * _MBIT_OF_BYTES / 2
    entries, flowing_mbps = _outside([(rows[x], named[x], hour_mbps[x]) for x in chosen])
    keys = list(numbers)
    order = np.argsort(-sums[:, _HOUR, BYTES], kind="stable").tolist()
    edges = (
        _edge(
            *(keys[each], names, entries, sums[each]),
            is_fresh=bool(is_fresh[each]),
            counted_s=float(counted_s[each]),
            one_sided=bool(is_one_sided[each]),
        )
        for each in order[:most]
    )
    return Joined(tuple(edges), tuple(keys[each] for each in order), entries, flowing_mbps)


def _outside(
    parts: list[tuple[_Row, _Named, float]],
) -> tuple[dict[str, str], dict[str, float]]:
    """Where each outside address enters: the board that lets most of its traffic in, else the one
    whose pods exchange the most with it; and what leaves or reaches each node for its pods, Mbit/s.
    """
    entering: defaultdict[str, defaultdict[tuple[bool, str], float]] = defaultdict(
        lambda: defaultdict(float)
    )
    flowing_mbps: defaultdict[str, float] = defaultdict(float)
    for row, (source, destination, _), mbps in parts:
        for end, other in ((source, destination), (destination, source)):
            if isinstance(end.who, str):
                if end.is_outside:
                    entering[end.who][row.key.enters, row.node] += mbps
            elif end.node != other.node:
                flowing_mbps[end.node] += mbps
    entries = {
        address: max(found, key=lambda by: (by[0], found[by], by[1]))[1]
        for address, found in entering.items()
    }
    return entries, dict(flowing_mbps)


def _edge(
    key: EdgeKey,
    names: Mapping[Service, str],
    entries: Mapping[str, str],
    sums: Floats,
    *,
    is_fresh: bool,
    counted_s: float,
    one_sided: bool,
) -> TrafficEdge:
    source, destination, port = key
    rates = {
        window_s: Rates(row[BYTES] * _MBIT_OF_BYTES, row[PACKETS], row[CONNECTIONS])
        for window_s, row in zip(WINDOWS_S, sums.tolist(), strict=True)
        if is_fresh or window_s != MINUTE_S
    }
    hour = sums[_HOUR]
    least, most = float(hour[CONNECTIONS]), float(hour[RARER])
    return TrafficEdge(
        _end(source, names, entries),
        _end(destination, names, entries),
        port,
        rates,
        (least, max(least, most)),
        counted_s,
        one_sided,
    )


def _end(who: Service | str, names: Mapping[Service, str], entries: Mapping[str, str]) -> End:
    if isinstance(who, str):
        is_node = who.startswith(NODE_PEER)
        return End(who, None, who.removeprefix(NODE_PEER) if is_node else entries.get(who, ""))
    return End(names.get(who, who[0]), who)
