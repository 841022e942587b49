"""Replicas that follow the load, as KEDA and Kubernetes' HorizontalPodAutoscaler have it.

KEDA turns what it counts into a metric, and the HorizontalPodAutoscaler divides that by the
target of one replica. KEDA's own cool-down only matters on the way to no replicas at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import simpy
from simpy.events import ProcessGenerator


@dataclass(frozen=True, slots=True)
class Scaling:
    """How replicas follow the load.

    target: what one replica is meant to take, in the metric's unit. poll_s: how often the
    metric is looked at. stabilisation_s: a scale-down goes no lower than the most that was
    wanted in this time. tolerance: a load this close to the target, as a share of it, changes
    nothing. The defaults are Kubernetes' and KEDA's. Raises ValueError.
    """

    target: float
    minimum: int = 1
    maximum: int = 10
    poll_s: float = 30.0
    stabilisation_s: float = 300.0
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        if not (self.target > 0 and self.poll_s > 0):
            raise ValueError("target and poll_s: expected numbers more than 0")
        if not 1 <= self.minimum <= self.maximum:
            raise ValueError("minimum: expected from 1 to the maximum")


class Autoscaler:
    """Says how many replicas there should be, and remembers what it said."""

    def __init__(self, scaling: Scaling) -> None:
        self._scaling = scaling
        self._said: list[tuple[float, int]] = []

    def desired(self, now_s: float, metric: float, replicas: int) -> int:
        """The replicas wanted now, where there are `replicas`. metric: of the whole service."""
        how = self._scaling
        wanted = ceil(metric / how.target)
        if abs(metric / (how.target * replicas) - 1) <= how.tolerance:
            wanted = replicas
        wanted = min(max(wanted, how.minimum), how.maximum)
        self._said = [
            (at_s, said) for at_s, said in self._said if at_s > now_s - how.stabilisation_s
        ]
        self._said.append((now_s, wanted))
        if wanted >= replicas:
            return wanted
        return min(replicas, max(said for _, said in self._said))


def autoscale(
    env: simpy.Environment,
    scaling: Scaling,
    metric: Callable[[], float],
    replicas: Callable[[], int],
    scale: Callable[[int], None],
) -> ProcessGenerator:
    """A process that never ends: looks at the metric every `poll_s` and calls `scale` with the
    number of replicas where it should be another one."""
    autoscaler = Autoscaler(scaling)
    while True:
        yield env.timeout(scaling.poll_s)
        now = replicas()
        wanted = autoscaler.desired(float(env.now), metric(), now)
        if wanted != now:
            scale(wanted)
