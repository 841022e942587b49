"""The arithmetic of the flagship's rule: how long work takes on a board that does other work too,
what a lack of memory costs, and what an error costs. Pure; columns have shape (n,)."""

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import RESTART_S, Floats, Ints

# A board is never taken to be busier: beyond it the queue's length says more about the formula than
# about the board.
MOST_BUSY = 0.95
# Three points of a Gaussian error and their weights (Gauss-Hermite): exact for polynomials up to
# the fifth degree.
_POINTS = (-sqrt(3.0), sqrt(3.0))  # beside the value itself
_WEIGHTS = (2 / 3, 1 / 6, 1 / 6)
# The chance that a report has nothing to do with the board. Reports are wrong less often; but a
# board that reports to be idle is where all pods would go.
WRONG = 0.2
# The standard deviations of a wait that is measured, and of one that is taken from other boards, as
# shares of it.
WAIT_ERROR, UNKNOWN_WAIT_ERROR = 0.1, 0.5
# The kubelet evicts when 100 MiB are left, which is about this share of a board of 1 GB.
_EVICTS_AT, _MEMORY_ERROR = 0.92, 0.04
BETWEEN_KILLS_S = 300.0  # a pod that was killed is killed again after so long


class Demand(NamedTuple):
    """What a pod is expected to do."""

    requests_per_s: float
    requests: float  # in its life, N
    megabits: float  # that one request exchanges with its user
    is_counted: bool  # whether the requests are, and not assumed
    assumed: str  # what of it is assumed, a part of a sentence, "" for nothing


class Uncertain(NamedTuple):
    """A wait whose input has an error: at the input itself, and mean and standard deviation over
    the error; ms."""

    value: Floats
    mean: Floats
    deviation: Floats

    @classmethod
    def exact(cls, value: Floats) -> "Uncertain":
        """A wait without an error."""
        return cls(value, value, np.zeros(value.shape))


def over_error(
    wait_ms: Callable[[Floats], Floats],
    value: Floats,
    error: Floats,
    if_wrong: Floats | None = None,
) -> Uncertain:
    """The wait at a value with a Gaussian error of this standard deviation, in the value's unit,
    NaN or 0 where it has none. An error makes no wait shorter, also where the wait is limited.
    if_wrong: what it may be with the chance of WRONG, where it is more; NaN where nothing tells."""
    spread = np.where(np.isnan(error), 0.0, error)  # many times as quick as nan_to_num
    more = np.zeros(value.shape, np.bool_) if if_wrong is None else if_wrong > value
    if not (spread.any() or more.any()):
        return Uncertain.exact(wait_ms(value))
    points = [value, *(value + at * spread for at in _POINTS)]
    weights = [np.where(more, (1 - WRONG) * each, each) for each in _WEIGHTS]
    if if_wrong is not None and more.any():
        points.append(np.where(more, if_wrong, value))
        weights.append(np.where(more, WRONG, 0.0))
    found = wait_ms(np.array(points))  # at once, which is quicker for few nodes
    at_value, weighted = found[0], np.array(weights)
    mean = np.maximum((weighted * found).sum(axis=0), at_value)
    deviation = np.sqrt((weighted * (found - mean) ** 2).sum(axis=0))
    return Uncertain(at_value, mean, deviation)


def slowdown(busy: Floats, cores: Floats) -> Floats:
    """How many times as long work takes if this share of the board's cores is busy: 1 plus the
    queueing time of M/M/c over the service time, by Sakasegawa's approximation, "An approximation
    formula L_q = a rho^b / (1 - rho)", Annals of the Institute of Statistical Mathematics 29
    (1977): rho^(sqrt(2 (c + 1)) - 1) / (c (1 - rho))."""
    rho = np.minimum(np.maximum(busy, 0.0), MOST_BUSY)  # many times as quick as clip
    factor: Floats = 1.0 + rho ** (np.sqrt(2.0 * (cores + 1.0)) - 1.0) / (cores * (1.0 - rho))
    return factor


def crowded(busy: Floats, cores: Floats) -> Floats:
    """As `slowdown`, where the work that keeps the board busy is of the same kind, and may be more
    than it can do: beyond MOST_BUSY it goes on as steep as it is there, so that each further
    replica is worse than the one before."""
    at_most = slowdown(busy, cores)
    power = np.sqrt(2.0 * (cores + 1.0)) - 1.0
    left = 1.0 - MOST_BUSY
    slope = MOST_BUSY ** (power - 1.0) * (power * left + MOST_BUSY) / (cores * left**2)
    factor: Floats = at_most + slope * np.maximum(busy - MOST_BUSY, 0.0)
    return factor


class Work(NamedTuple):
    """What decides how long one request's work takes on nodes; columns of one shape, or what
    broadcasts to it."""

    cores: Floats
    alone_ms: Floats  # of a thread that has its core to itself
    alone_error_ms: Floats  # or of its data, if it gets all cores that can handle it
    own_cores: Floats  # that the pod keeps busy
    replicas: Floats  # of its own kind there
    replica_cores: Floats  # that each of these keeps busy
    most_slow: Floats  # times as long, as its CPU request allows
    data_ms: Floats  # of a request's data on one core; NaN for a pod whose work is `alone_ms`
    data_cores: Floats  # that can handle data at once
    request_cores: Floats

    def at(self, *index: Ints) -> "Work":
        """The entries at an index."""
        return Work(*(each[index] for each in self))

    def nothing(self) -> "Work":
        """That takes no time."""
        return self._replace(
            alone_ms=0.0 * self.alone_ms,
            alone_error_ms=0.0 * self.alone_error_ms,
            data_ms=0.0 * self.data_ms,
        )

    def of(self, busy: Floats, error: Floats, if_wrong: Floats) -> Uncertain:
        """The wait if this share of each board's cores is busy without the pod, with its standard
        deviation, and what it is if the report is wrong; ms."""
        is_data = ~np.isnan(self.data_ms)
        if is_data.all():
            found = over_error(self._data_ms, busy, error, if_wrong)
        else:
            own = self.own_cores / self.cores
            found = over_error(self._slowed_ms, busy + own, error, if_wrong + own)
            if is_data.any():
                data = over_error(self._data_ms, busy, error, if_wrong)
                pairs = zip(data, found, strict=True)
                found = Uncertain(*(np.where(is_data, *each) for each in pairs))
        return found._replace(deviation=np.hypot(found.deviation, self.alone_error_ms))

    def _data_ms(self, busy: Floats) -> Floats:
        # Replicas have as much to do, and share evenly.
        most = np.minimum(self.cores / (1.0 + self.replicas), self.data_cores)
        free = np.minimum(self.cores * (1.0 - np.minimum(np.maximum(busy, 0.0), 1.0)), most)
        found: Floats = self.data_ms / np.maximum(free, self.request_cores)
        return found

    def _slowed_ms(self, busy: Floats) -> Floats:
        cores = np.maximum(self.cores, 1.0)
        among_others = np.minimum(slowdown(busy, cores), self.most_slow)
        crowd = self.replicas * self.replica_cores / self.cores
        among_replicas = crowded(crowd + self.own_cores / self.cores * (crowd > 0), cores)
        found: Floats = self.alone_ms * np.maximum(among_others, among_replicas)
        return found


def out_of_memory(used_share: Floats) -> Floats:
    """The chance that the kubelet evicts the pod, 0 to 1, if this share of the board's memory is in
    use with it: the normal distribution, as the logistic function has it within 0.01."""
    away = np.minimum(np.maximum((used_share - _EVICTS_AT) / _MEMORY_ERROR, -20.0), 20.0)
    chance: Floats = 1.0 / (1.0 + np.exp(-1.702 * away))
    return chance


def restarts_ms(chance: Floats) -> Floats:
    """What a request waits on average for a pod that is killed with this chance in each
    `BETWEEN_KILLS_S`: those that come while it is away wait for half of that."""
    away_ms = 1000 * RESTART_S
    wait_ms: Floats = chance * (RESTART_S / BETWEEN_KILLS_S) * (away_ms / 2)
    return wait_ms


def shown(ms: float) -> str:
    """A wait in three digits, and never as a power of ten: 0.0123, 212, 102,000."""
    rounded = float(f"{ms:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"
