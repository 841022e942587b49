"""How long pods take to start beside their pulls, by workload and class of board.

A start is what a workload takes, times what a class of board takes longer than others. The second
is learned from all workloads that ran on several classes, so that it also tells something of those
that never ran on one. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from statistics import fmean, median

from leadline_controller.framework.services import Service

# Kubernetes' times are whole seconds, cut off, so that nothing is known to be quicker.
_LEAST_S = 0.5
# One start of a workload on a class differs from the next by half: on the recordings' boards they
# take between 0.5 and 3 s, and by chance.
_SCATTER = 0.5
_CERTAIN = 2.0  # standard errors: a difference that is smaller is taken for chance
_MOST_CLASSES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """What is known of starts."""

    # By workload: how long it takes on a board of a usual class, s.
    usual_s: Mapping[Service, float] = field(default_factory=dict)
    # By class that differs from a usual one: how many times as long starts take there.
    factors: Mapping[str, float] = field(default_factory=dict)
    others_s: float = 0.0  # of a workload that never started; 0 if none ever did

    def of(self, workload: Service) -> Mapping[str, float]:
        """By class that differs, and under "" of all others, s; empty where no start was seen."""
        if not self.others_s:
            return {}
        usual_s = self.usual_s.get(workload, self.others_s)
        return {"": usual_s, **{name: usual_s * times for name, times in self.factors.items()}}


def learn(samples: Mapping[tuple[Service, str], Sequence[float]]) -> Starts:
    """What starts tell: by workload and class, how long each took, s. Neither the order of the
    starts nor that of the pairs matters."""
    classes_of: dict[Service, dict[str, tuple[float, int]]] = {}
    for (workload, name), seconds in sorted(samples.items(), key=lambda item: item[0][1]):
        seen = log(max(_middle(seconds), _LEAST_S)), len(seconds)
        classes_of.setdefault(workload, {})[name] = seen
    if not classes_of:
        return Starts()
    # By class: of each workload that ran on others, too, how it differs there, and its starts.
    differs: dict[str, list[tuple[float, int]]] = {}
    for classes in classes_of.values():
        mean = fmean(logarithm for logarithm, _ in classes.values())
        for name, (logarithm, count) in classes.items():
            if len(classes) > 1:
                differs.setdefault(name, []).append((logarithm - mean, count))
    known = sorted(differs, key=lambda name: (-sum(count for _, count in differs[name]), name))
    factors = {
        name: mean for name in known[:_MOST_CLASSES] if (mean := _beyond_chance(differs[name]))
    }
    usual = {
        workload: fmean(each - factors.get(name, 0.0) for name, (each, _) in classes.items())
        for workload, classes in classes_of.items()
    }
    return Starts(
        {workload: exp(each) for workload, each in usual.items()},
        {name: exp(each) for name, each in factors.items()},
        exp(median(usual.values())),
    )


def _beyond_chance(differences: Sequence[tuple[float, int]]) -> float:
    """Their mean, or 0 if as many starts may be so far off by chance."""
    values, counts = zip(*sorted(differences), strict=True)
    mean = fmean(values, counts)
    return mean if abs(mean) > _CERTAIN * _SCATTER / sqrt(sum(counts)) else 0.0


def _middle(samples: Sequence[float]) -> float:
    """The mean of the middle half: whole seconds need a mean, and a pod that waited for its
    database must not count."""
    ordered = sorted(samples)
    cut = len(ordered) // 4
    return fmean(ordered[cut : len(ordered) - cut])
