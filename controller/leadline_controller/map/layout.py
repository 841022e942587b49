"""Where boards are drawn: near to each other if their round trips are short.

The picture's distance of two boards grows with the logarithm of their round trip, because a
cluster has boards 0.3 ms and 50 ms apart. Positions minimise the stress by majorisation (SMACOF:
Borg and Groenen, "Modern Multidimensional Scaling", 2nd ed., section 8.6). Each layout starts at
the one before it and is then rotated, mirrored and moved onto it (Procrustes: the same, section
20.2), so that boards stay where a person last saw them. Everything is deterministic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.telemetry.link_status import PairTable

# Majorisation takes O(n²) for each step; further boards are put beside those nearest to them.
_MOST_FITTED = 400
_COLD_STEPS, _WARM_STEPS = 200, 40
_MARGIN = 0.04
_LOWEST = 0.9  # below it are the boards without any round trip
_ROOM = 0.55  # the least distance of two boards, as a share of 1 / sqrt(n)
_STAYS = 0.01  # a board that would move less stays
_LEAST_RTT_MS = 0.01


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the boards are."""

    # Name -> (x, y), 0 to 1, y downwards.
    positions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unplaced: frozenset[str] = frozenset()  # the names among them without any round trip


def layout(names: Sequence[str], pairs: PairTable, before: Layout) -> Layout:
    """Lay these boards out. before: the last layout of them or of others."""
    known, rtt_ms = round_trips(names, pairs)
    has_any: Bools = np.isfinite(rtt_ms).sum(axis=1) > 0
    placed = [name for name, is_known in zip(known, has_any.tolist(), strict=True) if is_known]
    positions = {}
    is_placed = set(placed)
    unplaced = [name for name in names if name not in is_placed]
    if placed:
        lowest = _LOWEST if unplaced else 1.0
        found = _fitted(placed, _distances(rtt_ms[np.ix_(has_any, has_any)]), before)
        found = _in_the_box(found, lowest)
        positions = {
            name: _stay(before.positions.get(name), (float(x), float(y)))
            for name, (x, y) in zip(placed, found.tolist(), strict=True)
        }
    for at, name in enumerate(unplaced):
        positions[name] = (round((at + 0.5) / len(unplaced), 3), 0.97 if placed else 0.5)
    return Layout(positions, frozenset(unplaced))


def round_trips(names: Sequence[str], pairs: PairTable) -> tuple[list[str], Floats]:
    """`names`, and their round trips, ms: measured, else by their coordinates, NaN if unknown,
    shape (n, n)."""
    index = {name: at for at, name in enumerate(names)}
    rtt_ms = np.full((len(index), len(index)), np.nan)
    estimates = pairs.estimates
    if estimates is not None:
        places = np.array([estimates.index.get(name, -1) for name in index], dtype=np.int64)
        here = np.flatnonzero(places >= 0)
        rtt_ms[np.ix_(here, here)] = estimates.coordinates.to_each(places[here])[places[here]]
    at = np.array([index.get(name, -1) for name in pairs.names], dtype=np.int64)
    ends = at[pairs.ends].reshape(-1, 2)
    there = (ends >= 0).all(axis=1) & np.isfinite(pairs.rtt_ms)
    a, b = ends[there].T
    rtt_ms[a, b] = rtt_ms[b, a] = pairs.rtt_ms[there]
    np.fill_diagonal(rtt_ms, np.nan)
    return list(index), rtt_ms


def order(positions: Floats) -> Ints:
    """An order in which boards that are near to each other are beside each other: along the
    shortest path that a greedy walk from the outermost one finds. positions: shape (n, 2)."""
    left = np.ones(len(positions), dtype=np.bool_)
    found = np.zeros(len(positions), dtype=np.int64)
    if not len(positions):
        return found
    at = int(np.argmax(((positions - positions.mean(axis=0)) ** 2).sum(axis=1)))
    for step in range(len(positions)):
        found[step], left[at] = at, False
        distance = ((positions - positions[at]) ** 2).sum(axis=1)
        distance[~left] = np.inf
        at = int(np.argmin(distance))
    return found


def _distances(rtt_ms: Floats) -> Floats:
    """The distances to draw, 1 on average; unknown ones are those of the shortest way over other
    boards."""
    known = np.isfinite(rtt_ms)
    if not known.any():  # one board
        return np.zeros_like(rtt_ms)
    rtt_ms = np.maximum(rtt_ms, _LEAST_RTT_MS)
    near_ms = float(np.quantile(rtt_ms[known], 0.1))
    drawn = np.where(known, np.log1p(rtt_ms / near_ms), np.inf)
    np.fill_diagonal(drawn, 0.0)
    # Coordinates know every pair of five boards or more, so this is for few boards.
    if not known[~np.eye(len(drawn), dtype=np.bool_)].all() and len(drawn) <= _MOST_FITTED:
        for over in range(len(drawn)):
            drawn = np.minimum(drawn, drawn[:, over, np.newaxis] + drawn[over])
    farthest = float(drawn[np.isfinite(drawn)].max())
    drawn = np.where(np.isfinite(drawn), drawn, 1.5 * farthest)
    drawn /= drawn[~np.eye(len(drawn), dtype=np.bool_)].mean() if len(drawn) > 1 else 1.0
    return drawn


def _fitted(names: Sequence[str], distances: Floats, before: Layout) -> Floats:
    """Positions of these boards, shape (n, 2), as far as they go on the layout `before`."""
    count = len(names)
    old = np.array([before.positions.get(name, (np.nan, np.nan)) for name in names])
    old[[name in before.unplaced for name in names]] = np.nan
    is_old = ~np.isnan(old[:, 0])
    # Evenly spread over the names, those that were fitted before first.
    rows = np.arange(count)
    fitted = rows if count <= _MOST_FITTED else rows[:: -(-count // _MOST_FITTED)]
    start = _scaled(distances[np.ix_(fitted, fitted)])
    steps = _COLD_STEPS
    if is_old[fitted].sum() > len(fitted) / 2:
        steps, here = _WARM_STEPS, is_old[fitted]
        start = _onto(start, old[fitted], here)
        start[here] = old[fitted][here]
        # The old picture has another scale.
        spans = distances[np.ix_(fitted, fitted)].mean() / max(_spread(start), 1e-9)
        start = (start - start.mean(axis=0)) * spans
    found = np.zeros((count, 2))
    found[fitted] = _majorised(start, distances[np.ix_(fitted, fitted)], steps)
    others = np.setdiff1d(rows, fitted)
    if len(others):
        to_fitted = distances[np.ix_(others, fitted)]
        nearest = np.argsort(to_fitted, axis=1, kind="stable")[:, :3]
        weight = 1.0 / (np.take_along_axis(to_fitted, nearest, axis=1) + 1e-6) ** 2
        weight /= weight.sum(axis=1, keepdims=True)
        found[others] = (weight[:, :, np.newaxis] * found[fitted][nearest]).sum(axis=1)
    return _onto(found, old, is_old) if is_old.any() else found


def _scaled(distances: Floats) -> Floats:
    """Classical scaling of the distances to two dimensions, shape (n, 2)."""
    count = len(distances)
    square = distances**2
    mean = square.mean(axis=0)
    centred = -0.5 * (square - mean - mean[:, np.newaxis] + square.mean())
    values, vectors = np.linalg.eigh(centred)
    found: Floats = np.zeros((count, 2))
    most = min(2, count)
    found[:, :most] = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :most]
    # Boards at the same place part in a fixed direction each.
    angle = np.arange(count) * 2.399963
    return found + 1e-3 * np.stack((np.cos(angle), np.sin(angle)), axis=1)


def _majorised(x: Floats, distances: Floats, steps: int) -> Floats:
    """Positions with less stress, shape (n, 2)."""
    for _ in range(steps):
        drawn = _between(x)
        ratio = np.divide(distances, drawn, out=np.zeros_like(drawn), where=drawn > 1e-9)
        x = (ratio.sum(axis=1)[:, np.newaxis] * x - ratio @ x) / len(x)
    return x


def _onto(x: Floats, old: Floats, here: Bools) -> Floats:
    """x, rotated, mirrored and moved onto the rows of `old` that are `here`, in its scale."""
    if here.sum() < 2:
        shift: Floats = (old[here] - x[here]).mean(axis=0) if here.any() else np.zeros(2)
        return x + shift
    from_mean, to_mean = x[here].mean(axis=0), old[here].mean(axis=0)
    mine, theirs = x[here] - from_mean, old[here] - to_mean
    u, _, v = np.linalg.svd(mine.T @ theirs)
    size = np.sqrt((theirs**2).sum() / max((mine**2).sum(), 1e-12))
    moved: Floats = size * (x - from_mean) @ (u @ v) + to_mean
    return moved


def _in_the_box(x: Floats, lowest: float) -> Floats:
    """x in the unit square, with room between boards. One scale for both axes."""
    x = _parted(_into(x, lowest))
    return np.round(_into(x, lowest), 4)


def _into(x: Floats, lowest: float) -> Floats:
    """x scaled down or up into the square, and centred."""
    room = np.array((1.0 - 2 * _MARGIN, lowest - 2 * _MARGIN))
    least, most = x.min(axis=0), x.max(axis=0)
    span = np.maximum(most - least, 1e-9)
    size = float((room / span).min()) if len(x) > 1 else 1.0
    centre = np.array((0.5, lowest / 2))
    into: Floats = (x - (least + most) / 2) * size + centre
    return into


def _parted(x: Floats) -> Floats:
    """Boards that would cover each other are moved apart."""
    count = len(x)
    if not 1 < count <= 2 * _MOST_FITTED:
        return x
    least = _ROOM / np.sqrt(count)
    for _ in range(30):
        difference = x[:, np.newaxis] - x
        distance = np.sqrt((difference**2).sum(axis=2))
        np.fill_diagonal(distance, np.inf)
        lacking = np.maximum(least - distance, 0.0)
        if not lacking.any():
            break
        push = 0.4 * lacking / np.maximum(distance, 1e-9)
        x = x + (push[:, :, np.newaxis] * difference).sum(axis=1)
    return x


def _between(x: Floats) -> Floats:
    square = (x**2).sum(axis=1)
    between: Floats = np.sqrt(np.maximum(square[:, np.newaxis] + square - 2 * x @ x.T, 0.0))
    return between


def _spread(x: Floats) -> float:
    return float(_between(x).mean())


def _stay(old: tuple[float, float] | None, new: tuple[float, float]) -> tuple[float, float]:
    if old is not None and abs(old[0] - new[0]) < _STAYS and abs(old[1] - new[1]) < _STAYS:
        return old
    return new
