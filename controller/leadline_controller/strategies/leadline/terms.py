"""The arithmetic of the flagship's rule: how long work takes on a board that does other work too,
what a lack of memory costs, and what an error costs. Pure; columns have shape (n,)."""

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import Floats

# A board is never taken to be busier: beyond it the queue's length says more about the formula than
# about the board.
MOST_BUSY = 0.95
# Three points of a Gaussian error and their weights (Gauss-Hermite): exact for polynomials up to
# the fifth degree.
_POINTS = (-sqrt(3.0), 0.0, sqrt(3.0))
_WEIGHTS = (1 / 6, 2 / 3, 1 / 6)
# The kubelet evicts when 100 MiB are left, which is about this share of a board of 1 GB.
_EVICTS_AT, _MEMORY_ERROR = 0.92, 0.04
# A pod that is killed comes back after so long, and is killed again after so long.
RESTART_S, BETWEEN_KILLS_S = 20.0, 300.0


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


def over_error(wait_ms: Callable[[Floats], Floats], value: Floats, error: Floats) -> Uncertain:
    """The wait at a value with a Gaussian error of this standard deviation, in the value's unit,
    NaN or 0 where it has none. An error makes no wait shorter, also where the wait is limited."""
    spread = np.nan_to_num(error)
    at_value = wait_ms(value)
    if not spread.any():
        return Uncertain.exact(at_value)
    found = np.array([wait_ms(value + point * spread) if point else at_value for point in _POINTS])
    weights = np.array(_WEIGHTS)[:, np.newaxis]
    mean = np.maximum((weights * found).sum(axis=0), at_value)
    deviation = np.sqrt((weights * (found - mean) ** 2).sum(axis=0))
    return Uncertain(at_value, mean, deviation)


def slowdown(busy: Floats, cores: Floats) -> Floats:
    """How many times as long work takes if this share of the board's cores is busy: 1 plus the
    queueing time of M/M/c over the service time, by Sakasegawa's approximation, "An approximation
    formula L_q = a rho^b / (1 - rho)", Annals of the Institute of Statistical Mathematics 29
    (1977): rho^(sqrt(2 (c + 1)) - 1) / (c (1 - rho))."""
    rho = np.clip(busy, 0.0, MOST_BUSY)
    factor: Floats = 1.0 + rho ** (np.sqrt(2.0 * (cores + 1.0)) - 1.0) / (cores * (1.0 - rho))
    return factor


def out_of_memory(used_share: Floats) -> Floats:
    """The chance that the kubelet evicts the pod, 0 to 1, if this share of the board's memory is in
    use with it: the normal distribution, as the logistic function has it within 0.01."""
    away = np.clip((used_share - _EVICTS_AT) / _MEMORY_ERROR, -20.0, 20.0)
    chance: Floats = 1.0 / (1.0 + np.exp(-1.702 * away))
    return chance


def restarts_ms(chance: Floats) -> Floats:
    """What a request waits on average for a pod that is killed with this chance in each
    `BETWEEN_KILLS_S`: those that come while it is away wait for half of that."""
    away_ms = 1000 * RESTART_S
    wait_ms: Floats = chance * (RESTART_S / BETWEEN_KILLS_S) * (away_ms / 2)
    return wait_ms
