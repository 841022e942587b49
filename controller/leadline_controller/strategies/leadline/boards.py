"""How busy boards are, and how full their memory is: by their reports, by boards like them, and by
what their pods request."""

from typing import NamedTuple

import numpy as np

from leadline_controller.framework.assumed_load import PodUse
from leadline_controller.framework.model import CPU, MEMORY
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.leadline.terms import (
    UNKNOWN_WAIT_ERROR,
    Uncertain,
    out_of_memory,
    over_error,
    restarts_ms,
)
from leadline_controller.strategies.shared.unknowns import LIKE_BOARDS, fill, left_unknown

# How much of a board's load is taken from what its pods request, and the rest from what its agent
# reports: one that reports nonsense attracts no more than its share.
REQUESTED_SHARE = 0.25
# The standard deviations of a load that no report tells, and of one whose report is a minute old
# (it grows with the root of the age).
_LOAD_ERROR, _DRIFT = 0.25, 0.05
# A board whose report is wrong is taken to have more memory in use than so many of the others:
# waits are long where it is short, and else do not depend on it.
_FULLER = 0.75
LEAST_CORES = 0.001


class Share(NamedTuple):
    """A share of a board that is in use, columns of shape (m,)."""

    value: Floats
    error: Floats  # its standard deviation
    if_wrong: Floats  # what it is if the report is wrong, NaN where there is none


def cores_of(view: ClusterView, nodes: Ints) -> Floats:
    """Of each node, and not 0, shape (len(nodes),)."""
    return np.maximum(view.table.allocatable(CPU)[nodes] / 1000, LEAST_CORES)


def busy_share(view: ClusterView, nodes: Ints, cores: Floats) -> Share:
    """The share of each node's cores that is in use, 0 to 1: what is measured and assumed, and
    partly what pods request."""
    requested = view.requested_of(CPU)[nodes] / 1000 / cores
    found = _measured_share(view, "cpu_percent", nodes, requested, requested, 0.5)
    partly = REQUESTED_SHARE * requested
    return Share(
        (1 - REQUESTED_SHARE) * found.value + partly,
        found.error,
        (1 - REQUESTED_SHARE) * found.if_wrong + partly,
    )


def memory_ms(view: ClusterView, nodes: Ints, expected: PodUse) -> Uncertain:
    """What restarts cost each request where memory runs out."""
    size = memory_size(view, nodes)
    used, own = memory_used(view, nodes), expected.memory_bytes / size
    return over_error(lambda share: restarts_ms(out_of_memory(share + own)), *used)


def throttling(view: ClusterView, nodes: Ints) -> tuple[Floats, Floats]:
    """How many times as long work takes on each node because it is throttled, and the standard
    deviation; 1 and 0 where nothing tells."""
    found = view.metrics
    if not found.throttling.size:
        return np.ones(nodes.size), np.zeros(nodes.size)
    return found.throttling[nodes], found.throttling_error[nodes]


def absence_ms(view: ClusterView, nodes: Ints) -> Uncertain | None:
    """What it costs each request that a board goes away again and again; None if none does."""
    if not view.metrics.absence_ms.size:
        return None
    each_ms = view.metrics.absence_ms[nodes]
    return Uncertain(each_ms, each_ms, UNKNOWN_WAIT_ERROR * each_ms)


def memory_size(view: ClusterView, nodes: Ints) -> Floats:
    """Bytes, inf for an unknown size."""
    size = view.table.allocatable(MEMORY)[nodes].astype(np.float64)
    size[size == 0] = np.inf
    return size


def memory_used(view: ClusterView, nodes: Ints) -> Share:
    """The share of each node's memory that is in use. Where nothing tells it, it is none: pods
    whose requests fit lack no memory by their own word."""
    requested = view.requested_of(MEMORY)[nodes] / memory_size(view, nodes)
    return _measured_share(view, "memory_percent", nodes, requested, -np.inf, _FULLER)


def _measured_share(
    view: ClusterView,
    metric: str,
    nodes: Ints,
    requested: Floats,
    unknown: Floats | float,
    others: float,
) -> Share:
    """A percentage as a share: as measured, else as boards like it have it, else `unknown`.
    requested: what pods request, as a share. A report that is wrong stands for what the board's
    pods request, and what this share of the boards does not exceed beside that."""
    column, at = getattr(view.metrics, metric), METRICS.index(metric)
    filled = fill(view, column, nodes, LIKE_BOARDS, left_unknown, metric, "%")
    own_error = view.metrics.errors[nodes, at] / 100 if view.metrics.errors.size else 0.0
    error = np.where(filled.is_known, own_error, _LOAD_ERROR)
    if view.metrics.measured_at_s.size:
        at_s = view.metrics.measured_at_s[:, at]
        dated = np.isfinite(at_s)
        if dated.any():
            age_s = np.where(dated, at_s[dated].max() - at_s, 0.0)[nodes]
            drift = _DRIFT * np.sqrt(age_s / 60)
            error = np.minimum(np.hypot(error, drift), _LOAD_ERROR)
    share = filled.values / 100
    measured = filled.is_known & ~np.isnan(share)
    if_wrong = np.full(nodes.size, np.nan)
    if measured.any():  # what stands for a report that is missing may be as wrong
        beside = _quantile((share - requested)[measured], others)
        if_wrong = np.maximum(requested + beside, 0.0)
    return Share(np.where(np.isnan(share), unknown, share), error, if_wrong)


def _quantile(values: Floats, share: float) -> float:
    """As numpy's, which takes ten times as long for a few values."""
    ordered = np.sort(values)
    at = share * (ordered.size - 1)
    below = int(at)
    above = min(below + 1, ordered.size - 1)
    return float(ordered[below] + (at - below) * (ordered[above] - ordered[below]))
