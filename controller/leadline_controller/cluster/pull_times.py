"""How fast the pulls of a node are, by those that it made. No I/O."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEAST_S = 0.001
MOST_MBPS = 1e6  # the wire's, 1 Tbit/s
_SAMPLES = 16
_KEPT_WEIGHT = 0.8  # of a pull after each later one
# A pull's time varies by both; that of a small one hardly with the link.
_RELATIVE_ERROR, _ERROR_S = 0.05, 0.1
_OVERHEAD_S, _OVERHEAD_ERROR_S = 0.2, 0.2
# Two pulls in sequence that differ this much from what was expected show a change.
_CHANGED = 1.5


class PullSpeed(NamedTuple):
    """How fast a node's pulls are."""

    mbps: float  # unpacking included
    overhead_s: float  # what each takes besides
    pulls: int  # of how many this is known

    def seconds(self, size_mb: float) -> float:
        """How long a pull of so many MB should take, s."""
        return size_mb * 8 / self.mbps + self.overhead_s


def pull_speed(samples: Sequence[tuple[float, float]]) -> PullSpeed:
    """The speed of one or more pulls of (MB, seconds), the oldest first: the line of weighted least
    squares. Errors are 5 % and 0.1 s, later pulls count more, and before any the overhead is
    expected to be 0.2 +- 0.2 s, so that one pull already has both."""
    size_mb, seconds = np.array(samples).T
    variances = (_RELATIVE_ERROR * seconds) ** 2 + _ERROR_S**2
    weights = _KEPT_WEIGHT ** np.arange(len(samples))[::-1] / variances
    prior = 1 / _OVERHEAD_ERROR_S**2
    by_size = weights @ (size_mb * size_mb)
    mixed = weights @ size_mb
    # The normal equations, solved for the line's value at 0 MB.
    determinant = (weights.sum() + prior) * by_size - mixed**2
    at_zero_s = (
        (weights @ seconds + prior * _OVERHEAD_S) * by_size - weights @ (size_mb * seconds) * mixed
    ) / determinant
    overhead_s = float(np.clip(at_zero_s, 0.0, 0.9 * seconds.min()))
    s_per_mb = weights @ (size_mb * (seconds - overhead_s)) / by_size
    return PullSpeed(float(8 / s_per_mb), overhead_s, len(samples))


class PullTimes:
    """The last pulls of a node. speed: what they show, None without any."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self.speed: PullSpeed | None = None

    def add(self, size_mb: float, took_s: float) -> None:
        """A pull of so many MB took so long. Two in sequence that contradict those before show that
        the link has changed, so only these two count."""
        took_s = max(took_s, size_mb * 8 / MOST_MBPS, LEAST_S)
        self._samples = [*self._samples, (size_mb, took_s)][-_SAMPLES:]
        if before := self._samples[:-2]:
            expected = pull_speed(before)
            ratios = [took / expected.seconds(mb) for mb, took in self._samples[-2:]]
            if min(ratios) > _CHANGED or max(ratios) < 1 / _CHANGED:
                self._samples = self._samples[-2:]
        self.speed = pull_speed(self._samples)
