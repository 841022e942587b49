"""Estimates the round trips of pairs that are not measured from those that are.

Model: rtt(a, b) = |x_a - x_b| + h_a + h_b. The position x stands for the place in the core of the
network, and the height h for the access link (Dabek et al., "Vivaldi", SIGCOMM 2004, section 5.4).
In Vivaldi, and in serf, each node sees only its own samples and moves a little at each. The
controller sees all measurements at once, so it fits all nodes together: it minimises the Huber loss
of the logarithm of (modelled / measured) with Adam. The logarithm makes errors relative: a
millisecond matters between two boards of one site, and not between two continents. Huber's loss
keeps a few pairs that violate the triangle inequality from bending all the others.

What the model misses is corrected by near nodes: where it is 20 % too low between b and a node near
a, it is probably too low between b and a as well (Nadaraya-Watson kernel regression).

tests/controller/telemetry/test_coordinates.py compares it with serf's algorithm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import dist, isnan, log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Source = Literal["triangulated", "estimated"]
SOURCES: tuple[Source, Source] = ("triangulated", "estimated")

DIMENSIONS = 3  # of positions; with 10 measurements of a node, more dimensions fit their noise
_HUBER = 0.15  # relative errors beyond it count linearly
_COLD_STEPS, _WARM_STEPS = 300, 60
_COLD_RATE, _WARM_RATE = 0.15, 0.06
# The coordinates are fitted again when the loss is so much larger than after the last fit, as a
# share of it, or that of a single node, as an amount: as if its pairs became a quarter longer.
_WORSE_SHARE, _WORSE_NODE = 0.1, 0.03
_LEAST_LOSS = 1e-5  # relative errors of half a percent; less is rounding
# Until a fit brings less than this share, the next one goes on.
_SETTLED_SHARE = 0.02
# More measurements of a node hardly move its coordinates, and each costs time.
_MAX_FITTED_PER_NODE = 32
# A node corrects another one when their distance is small beside the round trip to the third.
_NEAR_SHARE = 0.3
# The weight of no correction: a single near node moves the estimate half of the way.
_PRIOR_WEIGHT = 1.0
_MAX_CORRECTORS = 128  # bounds the work of a row
_NEIGHBOURS = 16
_NEAREST = 5  # measured nodes whose own nearest ones are tried next
_MAX_ROWS_CACHED = 64
# The share of estimates whose true value is to be within the reported error.
_COVERAGE = 0.9
_MIN_TRIALS, _MAX_TRIALS, _TRIALS_PER_FIT = 20, 512, 48
_UNTRIED_ERROR = 1.0
_AGREEING_DEVIATIONS = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """Where n nodes are in a space of round trips."""

    positions: Floats  # ms, shape (n, DIMENSIONS)
    heights: Floats  # ms, shape (n,); NaN without a measurement

    def rtt_ms_from(self, node: int) -> Floats:
        """The modelled round trips from `node`, ms, shape (n,)."""
        return self.between(np.full(len(self.heights), node), np.arange(len(self.heights)))

    def between(self, a: Ints, b: Ints) -> Floats:
        """The modelled round trips of m pairs, ms, shape (m,)."""
        difference = self.positions[a] - self.positions[b]
        distance = np.sqrt(np.einsum("ij,ij->i", difference, difference))
        rtt_ms: Floats = distance + self.heights[a] + self.heights[b]
        return rtt_ms

    def rtt_ms(self, a: int, b: int) -> float:
        """The modelled round trip of one pair, ms; ten times as fast as `between`."""
        distance = dist(self.positions[a].tolist(), self.positions[b].tolist())
        return distance + float(self.heights[a]) + float(self.heights[b])

    def to_each(self, nodes: Ints) -> Floats:
        """The modelled round trips between all nodes and m of them, ms, shape (n, m)."""
        x, y = self.positions, self.positions[nodes]
        square = (
            (x**2).sum(axis=1)[:, np.newaxis]
            + (y**2).sum(axis=1)
            - 2 * np.einsum("id,jd->ij", x, y)
        )
        distance = np.sqrt(np.maximum(square, 0.0))
        rtt_ms: Floats = distance + self.heights[:, np.newaxis] + self.heights[nodes]
        return rtt_ms


def fit(
    count: int, ends: Ints, rtt_ms: Floats, start: Coordinates | None = None, seed: int = 0
) -> Coordinates:
    """The coordinates of `count` nodes that agree best with m measured pairs.

    ends: indexes of each pair's nodes, shape (m, 2). rtt_ms: their round trips, ms, above zero,
    shape (m,). start: where to start, by default at random; a NaN height is a new node. O(m).
    """
    if not len(rtt_ms):
        return Coordinates(np.zeros((count, DIMENSIONS)), np.full(count, np.nan))
    random = np.random.default_rng(seed)
    if len(rtt_ms) > (most := count * _MAX_FITTED_PER_NODE // 2):
        fitted = random.choice(len(rtt_ms), most, replace=False)
        ends, rtt_ms = ends[fitted], rtt_ms[fitted]
    a, b = ends[:, 0].copy(), ends[:, 1].copy()  # in one piece each, as they index most
    degree = np.bincount(ends.ravel(), minlength=count)
    scale_ms, log_rtt = float(np.median(rtt_ms)), np.log(rtt_ms)
    x = random.normal(size=(count, DIMENSIONS)) * scale_ms * 0.3
    log_h = np.full(count, np.log(scale_ms * 0.15))
    steps, rate = _COLD_STEPS, _COLD_RATE
    if start is not None:
        known = ~np.isnan(start.heights)
        x[known], log_h[known] = start.positions[known], np.log(start.heights[known])
        _place_new_nodes(x, log_h, known, ends, rtt_ms)
        steps, rate = _WARM_STEPS, _WARM_RATE
    # One row for each dimension, and one for the logarithms of the heights.
    place = np.concatenate((x.T, log_h[np.newaxis]))
    unit_ms = np.array([*[0.3 * scale_ms] * DIMENSIONS, 1.0])[:, np.newaxis]
    mean = np.zeros_like(place)  # Adam's first and second moments
    square = np.zeros_like(mean)
    gradient = np.zeros_like(mean)
    weight = 1.0 / np.maximum(degree, 1)
    for step in range(1, steps + 1):
        x, h = place[:-1], np.exp(place[-1])
        difference = x.take(a, axis=1) - x.take(b, axis=1)
        h_a, h_b = h.take(a), h.take(b)
        distance = np.sqrt((difference * difference).sum(axis=0) + 1e-12)
        modelled = distance + h_a + h_b
        slope = np.log(modelled)
        slope -= log_rtt
        np.minimum(np.maximum(slope, -_HUBER, out=slope), _HUBER, out=slope)
        slope /= modelled
        difference *= slope / distance
        for at, pull in enumerate(difference):
            gradient[at] = np.bincount(a, pull, count) - np.bincount(b, pull, count)
        gradient[-1] = np.bincount(a, slope * h_a, count) + np.bincount(b, slope * h_b, count)
        gradient *= weight
        mean += 0.1 * (gradient - mean)
        square += 0.01 * (gradient * gradient - square)
        move = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-12)
        place -= (rate * (1 - step / steps) + 0.005) * unit_ms * move
    heights_ms = np.where(degree > 0, np.exp(place[-1]), np.nan)
    return Coordinates(np.ascontiguousarray(place[:-1].T), heights_ms)


def _place_new_nodes(
    x: Floats, log_h: Floats, known: NDArray[np.bool_], ends: Ints, rtt_ms: Floats
) -> None:
    """Start each new node beside its nearest measured node."""
    order = np.argsort(-rtt_ms, kind="stable")  # the nearest is written last
    for new, old in ((0, 1), (1, 0)):
        rows = order[~known[ends[order, new]] & known[ends[order, old]]]
        x[ends[rows, new]] = x[ends[rows, old]]
        log_h[ends[rows, new]] = np.log(rtt_ms[rows] / 2)


@dataclass(frozen=True, slots=True)
class Trials:
    """The relative errors, as |log(measured / estimated)|, of estimates whose pair was measured
    afterwards, by source, the newest last. They say how far other estimates can be trusted."""

    errors: dict[Source, tuple[float, ...]] = field(default_factory=dict)

    def with_errors(self, source: Source, errors: Sequence[float]) -> "Trials":
        """These and newer ones."""
        kept = (*self.errors.get(source, ()), *errors)[-_MAX_TRIALS:]
        return Trials({**self.errors, source: kept})

    def error(self, source: Source) -> float:
        """The relative error that holds for 90 % of the estimates of this source."""
        errors = sorted(self.errors.get(source, ()))
        if len(errors) < _MIN_TRIALS:
            return _UNTRIED_ERROR
        at = min(int(np.ceil(_COVERAGE * (len(errors) + 1))), len(errors)) - 1
        return float(np.expm1(errors[at]))


@dataclass(frozen=True, eq=False)
class RttEstimates:
    """Estimates of the round trips between `names`, from m measured pairs."""

    names: tuple[str, ...]
    ends: Ints  # shape (m, 2), indexes into names
    rtt_ms: Floats  # shape (m,)
    coordinates: Coordinates
    trials: Trials
    # Each node's loss after the last fit, shape (n,), NaN without a measurement; None while fitting
    # again helps in any case.
    settled: Floats | None = None
    _rows: dict[int, tuple[Floats, NDArray[np.bool_]]] = field(default_factory=dict)

    def without_pairs(self) -> "RttEstimates":
        """What the next estimates start from, in a hundredth of the memory."""
        return replace(self, ends=self.ends[:0], rtt_ms=self.rtt_ms[:0], _rows={})

    def with_pairs(self, ends: Ints, rtt_ms: Floats) -> "RttEstimates":
        """The same of these pairs, which are those from which they were made."""
        return replace(self, ends=ends, rtt_ms=rtt_ms, _rows={})

    @cached_property
    def index(self) -> dict[str, int]:
        """Name -> position in `names`."""
        return {name: at for at, name in enumerate(self.names)}

    @cached_property
    def _measured(self) -> tuple[Ints, Ints, Floats]:
        """Where each node's measured pairs start, the other ends, and log(measured / modelled)."""
        a, b = self.ends[:, 0], self.ends[:, 1]
        residuals = np.log(self.rtt_ms / self.coordinates.between(a, b))
        near, far = np.concatenate((a, b)), np.concatenate((b, a))
        order = np.argsort(near, kind="stable")
        starts = np.searchsorted(near[order], np.arange(len(self.names) + 1))
        return starts, far[order], np.concatenate((residuals, residuals))[order]

    @cached_property
    def _by_distance(self) -> tuple[Ints, Ints, Floats]:
        """Where each node's measured pairs start, the other ends, and the round trips, ms, nearest
        first."""
        near = np.concatenate((self.ends[:, 0], self.ends[:, 1]))
        far = np.concatenate((self.ends[:, 1], self.ends[:, 0]))
        rtt_ms = np.concatenate((self.rtt_ms, self.rtt_ms))
        order = np.lexsort((rtt_ms, near))
        starts = np.searchsorted(near[order], np.arange(len(self.names) + 1))
        return starts, far[order], rtt_ms[order]

    @cached_property
    def nearest_measured(self) -> tuple[Ints, Floats]:
        """The nodes that were measured nearest to each node, nearest first, and their round trips,
        ms, shapes (n, _NEAREST); -1 and infinity where fewer were measured."""
        starts, far, rtt_ms = self._by_distance
        places = starts[:-1, np.newaxis] + np.arange(_NEAREST)
        places = np.where(places < starts[1:, np.newaxis], places, len(far))
        return np.append(far, -1)[places], np.append(rtt_ms, np.inf)[places]

    def bounds_ms(self, node: int) -> tuple[Floats, Floats]:
        """Between which values each round trip from `node` probably is, ms, shapes (n,).

        A measured one is known. Others follow from triangles with a measured node and the nodes
        nearest to that one: what is 1 ms from a node that is 6 ms away is 5 to 7 ms away. So a
        pair of nodes on two sites tells both sites apart. Without a triangle the upper bound is
        infinite. The coordinates' lower bound is that of two nodes that share the shorter access
        link: nodes behind one uplink are far nearer to each other than the sum of their heights.
        """
        starts, far, rtt_ms = self._by_distance
        rows = slice(starts[node], starts[node + 1])
        nearest, legs_ms = self.nearest_measured
        nearest, legs_ms = nearest[far[rows]], legs_ms[far[rows]]
        is_there = nearest >= 0
        first_ms = np.broadcast_to(rtt_ms[rows, np.newaxis], nearest.shape)[is_there]
        nodes, legs_ms = nearest[is_there], legs_ms[is_there]
        x, h = self.coordinates.positions, self.coordinates.heights
        difference = x - x[node]
        low_ms = np.sqrt(np.einsum("ij,ij->i", difference, difference)) + abs(h - h[node])
        high_ms = np.full(len(self.names), np.inf)
        np.maximum.at(low_ms, nodes, abs(first_ms - legs_ms))
        np.minimum.at(high_ms, nodes, first_ms + legs_ms)
        low_ms[far[rows]] = high_ms[far[rows]] = rtt_ms[rows]
        return low_ms, high_ms

    @cached_property
    def _fit_deviation(self) -> float:
        """The deviation of the measurements from the coordinates, as a logarithm, of which 68 % are
        smaller: one standard deviation, without the outliers."""
        modelled_ms = self.coordinates.between(self.ends[:, 0], self.ends[:, 1])
        return float(np.quantile(abs(np.log(self.rtt_ms / modelled_ms)), 0.68))

    def smoothed(self, ends: Ints, rtt_ms: Floats, noise: float) -> Floats:
        """Measured round trips, drawn towards the coordinates by as much as these are more precise,
        ms, shape (m,). A pair on which they disagree stays as it is measured.

        ends: indexes, shape (m, 2), -1 if unknown. noise: standard deviation of log(rtt_ms).
        """
        modelled_ms = self.coordinates.between(ends[:, 0], ends[:, 1])
        gap = np.log(rtt_ms / modelled_ms)
        fitted, measured = max(self._fit_deviation**2 - noise**2, 1e-6), noise**2
        agree = abs(gap) <= _AGREEING_DEVIATIONS * np.sqrt(fitted + measured)
        agree &= (ends >= 0).all(axis=1)
        drawn: Floats = np.where(
            agree, rtt_ms * np.exp(-gap * measured / (measured + fitted)), rtt_ms
        )
        return drawn

    def rtt_ms_from(self, node: int) -> tuple[Floats, NDArray[np.bool_]]:
        """The estimated round trips from `node`, ms, NaN if unknown, and whether near nodes
        corrected them (source "triangulated"), shapes (n,)."""
        row = self._rows.get(node)
        if row is None:
            row = self._row(node)
            # The event loop and the next fit's thread share the cache: either may clear it.
            if len(self._rows) >= _MAX_ROWS_CACHED:
                self._rows.clear()
            self._rows[node] = row
        return row

    def rtt_ms_between(self, a: int, b: int) -> tuple[float, bool]:
        """What rtt_ms_from(a) says of b: one pair costs a hundredth of its row."""
        if a in self._rows:
            rtt_ms, is_triangulated = self._rows[a]
            return float(rtt_ms[b]), bool(is_triangulated[b])
        modelled = self.coordinates.rtt_ms_from(a)
        starts, others, residuals = self._measured
        rows = slice(starts[a], min(starts[a + 1], starts[a] + _MAX_CORRECTORS))
        by = others[rows]
        share = _nearness(self.coordinates.between(np.full(len(by), b), by), modelled[by])
        total, weight = float(share @ residuals[rows]), float(share.sum())
        nearest = _nearest(modelled, a)
        rows = slice(starts[b], starts[b + 1])
        is_near = np.isin(others[rows], nearest)
        share = _nearness(modelled[others[rows][is_near]], modelled[b])
        total += float(share @ residuals[rows][is_near])
        weight += float(share.sum())
        return float(modelled[b] * np.exp(total / (weight + _PRIOR_WEIGHT))), weight >= 1.0

    def _row(self, node: int) -> tuple[Floats, NDArray[np.bool_]]:
        modelled = self.coordinates.rtt_ms_from(node)
        starts, others, residuals = self._measured
        total, weight = np.zeros(len(self.names)), np.zeros(len(self.names))
        # Nodes near `other` that measured `node`.
        rows = slice(starts[node], starts[node + 1])
        by = others[rows][:_MAX_CORRECTORS]
        share = _nearness(self.coordinates.to_each(by), modelled[by])
        total += share @ residuals[rows][:_MAX_CORRECTORS]
        weight += share.sum(axis=1)
        # Nodes near `node` that measured `other`.
        for by_node in _nearest(modelled, node):
            rows = slice(starts[by_node], starts[by_node + 1])
            far = others[rows]
            share = _nearness(modelled[by_node], modelled[far])
            total[far] += share * residuals[rows]
            weight[far] += share
        rtt_ms = modelled * np.exp(total / (weight + _PRIOR_WEIGHT))
        rtt_ms[node] = 0.0
        return rtt_ms, weight >= 1.0


class EstimatesOf:
    """Estimates of the round trips between nodes of a table, by their names; framework/view.py has
    the port. Nodes that are new since the fit have none."""

    def __init__(self, estimates: RttEstimates, names: Sequence[str]) -> None:
        self.estimates = estimates
        places = [estimates.index.get(name, -1) for name in names]
        self._places = np.array(places, dtype=np.int64)
        self._is_new = self._places < 0

    def rtt_ms_from(self, node: int) -> Floats:
        """See the port."""
        if self._is_new[node]:
            return np.full(len(self._places), np.nan)
        rtt_ms, _ = self.estimates.rtt_ms_from(int(self._places[node]))
        return np.where(self._is_new, np.nan, rtt_ms[self._places])

    def modelled_ms(self, a: Ints, b: Ints) -> Floats:
        """See the port."""
        rtt_ms = self.estimates.coordinates.between(self._places[a], self._places[b])
        return np.where(self._is_new[a] | self._is_new[b], np.nan, rtt_ms)

    def modelled_ms_to(self, nodes: Ints) -> Floats:
        """See the port."""
        rtt_ms = self.estimates.coordinates.to_each(self._places[nodes])[self._places]
        rtt_ms[self._is_new] = np.nan
        rtt_ms[:, self._is_new[nodes]] = np.nan
        return rtt_ms


def _nearest(modelled: Floats, node: int) -> Ints:
    """The nodes that correct what `node` measured. modelled: round trips from it, shape (n,)."""
    nearest: Ints = np.argsort(modelled)[:_NEIGHBOURS]
    others: Ints = nearest[nearest != node]
    return others


def _nearness(distance_ms: Floats, rtt_ms: Floats | np.float64) -> Floats:
    """How near a node is to another one, as seen from a third: 1 at the same place, to 0."""
    near: Floats = np.exp(-((distance_ms / (_NEAR_SHARE * rtt_ms)) ** 2))
    return near


def estimate(
    names: Sequence[str], ends: Ints, rtt_ms: Floats, previous: RttEstimates | None = None
) -> RttEstimates:
    """Estimates from all pairs that are measured now. ends: indexes into names, shape (m, 2), each
    pair once. rtt_ms: ms, above zero, shape (m,). previous: the last result: pairs that are
    measured since then try its estimates, and its coordinates stay as long as the measurements
    agree with them as well as they did."""
    if previous is None:
        return RttEstimates(tuple(names), ends, rtt_ms, fit(len(names), ends, rtt_ms), Trials())
    is_alike = previous.names == tuple(names)
    places = np.array([previous.index.get(name, -1) for name in names], dtype=np.int64)
    start = previous.coordinates
    if not is_alike:
        start = Coordinates(
            start.positions[places], np.where(places >= 0, start.heights[places], np.nan)
        )
    trials = _tried(previous, places[ends], rtt_ms)
    before = _losses(start, ends, rtt_ms)
    settled = previous.settled if is_alike else None
    if settled is not None and not _is_worse(before, settled):
        if not np.array_equal(np.isnan(before), np.isnan(start.heights)):  # some are silent now
            start = Coordinates(start.positions, np.where(np.isnan(before), np.nan, start.heights))
        return RttEstimates(tuple(names), ends, rtt_ms, start, trials, settled)
    coordinates = fit(len(names), ends, rtt_ms, start, seed=len(rtt_ms))
    after = _losses(coordinates, ends, rtt_ms)
    is_settled = np.nanmean(after) >= (1 - _SETTLED_SHARE) * np.nanmean(before) - _LEAST_LOSS
    return RttEstimates(
        tuple(names), ends, rtt_ms, coordinates, trials, after if is_settled else None
    )


def _losses(coordinates: Coordinates, ends: Ints, rtt_ms: Floats) -> Floats:
    """The mean of Huber's loss over the pairs of each node, shape (n,), NaN for a node without any;
    infinite for a node that has no coordinates yet, and its peers."""
    a, b, count = ends[:, 0], ends[:, 1], len(coordinates.heights)
    gap = abs(np.log(coordinates.between(a, b) / rtt_ms))
    gap[np.isnan(gap)] = np.inf
    loss = np.where(gap <= _HUBER, gap**2 / 2, _HUBER * (gap - _HUBER / 2))
    total = np.bincount(a, loss, count) + np.bincount(b, loss, count)
    degree = np.bincount(a, minlength=count) + np.bincount(b, minlength=count)
    return np.where(degree > 0, total / np.maximum(degree, 1), np.nan)


def _is_worse(losses: Floats, settled: Floats) -> bool:
    """Whether the measurements agree less with the coordinates than after the fit."""
    both = ~np.isnan(losses) & ~np.isnan(settled)
    if not both.any() or np.isinf(losses).any():
        return True
    before, now = settled[both], losses[both]
    most = (1 + _WORSE_SHARE) * before.mean() + _LEAST_LOSS
    return bool(now.mean() > most or (now - before).max() > _WORSE_NODE)


def _tried(previous: RttEstimates, ends: Ints, rtt_ms: Floats) -> Trials:
    """The trials of `previous`, and those by some of the pairs that it estimated and that are
    measured now. ends: indexes into its names, -1 for a new node."""
    count = len(previous.names)
    known = np.sort(previous.ends, axis=1) @ (count, 1)
    is_new = (ends >= 0).all(axis=1) & ~np.isin(np.sort(ends, axis=1) @ (count, 1), known)
    tried = np.flatnonzero(is_new)
    tried = tried[:: max(1, len(tried) // _TRIALS_PER_FIT)]
    errors: dict[Source, list[float]] = {source: [] for source in SOURCES}
    for (a, b), measured_ms in zip(ends[tried].tolist(), rtt_ms[tried].tolist(), strict=True):
        estimated_ms, is_triangulated = previous.rtt_ms_between(a, b)
        if not isnan(estimated_ms):
            error = abs(log(measured_ms / estimated_ms))
            errors["triangulated" if is_triangulated else "estimated"].append(error)
    trials = previous.trials
    for source, found in errors.items():
        trials = trials.with_errors(source, found)
    return trials
