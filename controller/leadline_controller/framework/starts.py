"""How long pods take to start beside their pulls, by workload and class of board.

A start is what a workload takes, times what a class of board takes longer than the others. The
second is learned from all workloads that ran on several classes, so that it also tells something of
those that never ran on one. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leadline_controller.framework.services import Service

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Kubernetes' times are whole seconds, cut off, so that nothing is known to be quicker.
_LEAST_S = 0.5
# One start of a workload on a class differs from the next by half: on the recordings' boards they
# take between 0.5 and 3 s, and by chance.
_SCATTER = 0.5
_CERTAIN = 2.0  # standard errors: a difference that is smaller is taken for chance
_GUESSED = 8  # starts: as good is the guess from other workloads, or other classes
_ROUNDS = 20
_MOST_CLASSES = 32


class Start(NamedTuple):
    """From when a kubelet takes a pod up until it is ready, without its pulls."""

    seconds: float
    error_s: float  # its standard deviation


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """What is known of starts."""

    # By workload: how long it takes on a board of a usual class, s, and where it was seen to start.
    usual_s: Mapping[Service, float] = field(default_factory=dict)
    seen: Mapping[Service, Mapping[str, Start]] = field(default_factory=dict)
    # By class: how many times as long starts take there as on a usual one.
    factors: Mapping[str, float] = field(default_factory=dict)
    others_s: float = 0.0  # of a workload that never started

    def of(self, workload: Service) -> Mapping[str, Start]:
        """By class, and under "" of a class of which nothing is known; empty where no start was
        seen at all."""
        if not self.others_s:
            return {}
        usual_s = self.usual_s.get(workload, self.others_s)
        seconds = {"": usual_s, **{name: usual_s * times for name, times in self.factors.items()}}
        found = {name: _start(each, 0.0) for name, each in seconds.items()}
        found.update(self.seen.get(workload, {}))
        return found


def learn(samples: Mapping[tuple[Service, str], Sequence[float]]) -> Starts:
    """What starts tell: by workload and class, how long each took, s. Neither the order of the
    starts nor that of the pairs matters."""
    pairs = sorted(samples, key=lambda pair: (pair[1], pair[0][0], sorted(pair[0][1])))
    if not pairs:
        return Starts()
    workloads = {workload: at for at, workload in enumerate(dict.fromkeys(w for w, _ in pairs))}
    classes = {name: at for at, name in enumerate(dict.fromkeys(name for _, name in pairs))}
    row = np.array([workloads[workload] for workload, _ in pairs])
    column = np.array([classes[name] for _, name in pairs])
    weight = np.array([float(len(samples[pair])) for pair in pairs])
    seen = np.log([max(_middle(samples[pair]), _LEAST_S) for pair in pairs])
    # Least squares by turns, with one start on each class that is as on all.
    of_row, of_column = np.zeros(len(workloads)), np.zeros(len(classes))
    row_weight, column_weight = _sums(row, weight), _sums(column, weight)
    for _ in range(_ROUNDS):
        of_row = _sums(row, weight * (seen - of_column[column])) / row_weight
        of_column = _sums(column, weight * (seen - of_row[row])) / (column_weight + 1.0)
    # Of a class only those workloads tell something that ran on others, too.
    tells = _sums(column, weight * (1.0 - weight / row_weight[row]))
    of_column = _beyond_chance(of_column, tells)
    of_row = _sums(row, weight * (seen - of_column[column])) / row_weight
    expected = of_row[row] + of_column[column]
    own = np.exp(expected + _beyond_chance(seen - expected, weight))
    known = set(sorted(classes, key=lambda name: -column_weight[classes[name]])[:_MOST_CLASSES])
    found: dict[Service, dict[str, Start]] = {}
    for (workload, name), seconds, count in zip(pairs, own.tolist(), weight.tolist(), strict=True):
        if name in known:
            start = _start(seconds, count)
            found.setdefault(workload, {})[name] = start
    return Starts(
        {workload: float(np.exp(of_row[at])) for workload, at in workloads.items()},
        found,
        {name: float(np.exp(of_column[at])) for name, at in classes.items() if name in known},
        float(np.exp(np.median(of_row))),
    )


def _sums(at: Ints, values: Floats) -> Floats:
    return np.bincount(at, values).astype(np.float64)


def _start(seconds: float, count: float) -> Start:
    """That was seen so often."""
    return Start(seconds, seconds * _SCATTER / sqrt(count + _GUESSED))


def _beyond_chance(differences: Floats, starts: Floats) -> Floats:
    """Differences of logarithms that so many starts show, without what may be chance: nothing of
    those within two standard errors, nearly all of the large ones (Breiman's garrote, 1995)."""
    chance = (_CERTAIN * _SCATTER) ** 2
    squares = starts * differences**2
    share = np.divide(chance, squares, out=np.ones(squares.shape), where=squares > chance)
    found: Floats = differences * (1.0 - share)
    return found


def _middle(samples: Sequence[float]) -> float:
    """The mean of the middle half: whole seconds need a mean, and a pod that waited for its
    database must not count."""
    ordered = sorted(samples)
    cut = len(ordered) // 4
    middle = ordered[cut : len(ordered) - cut]
    return sum(middle) / len(middle)
