"""An autoscaler that scales as KEDA and Kubernetes' HorizontalPodAutoscaler (HPA) do.

KEDA provides the metric, and the HPA divides it by the target of one replica. KEDA's own cool-down
applies only to a scale-down to zero, which is not simulated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import simpy
from simpy.events import ProcessGenerator


@dataclass(frozen=True, slots=True)
class Scaling:
    """The settings of an autoscaler; the defaults are those of Kubernetes and KEDA.

    target: the load of one replica, in the metric's unit. poll_s: the interval between two
    readings. stabilisation_s: a scale-down goes no lower than the highest recommendation within
    this window. tolerance: a load this close to the target, as a share of it, changes nothing.
    Raises ValueError.
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
    """Recommends a number of replicas, and keeps the recommendations of the window."""

    def __init__(self, scaling: Scaling) -> None:
        self._scaling = scaling
        self._recommendations: list[tuple[float, int]] = []

    def desired(self, now_s: float, metric: float, replicas: int) -> int:
        """The desired replicas. metric: of the whole service. replicas: the current number."""
        scaling = self._scaling
        desired = ceil(metric / scaling.target)
        if abs(metric / (scaling.target * replicas) - 1) <= scaling.tolerance:
            desired = replicas
        desired = min(max(desired, scaling.minimum), scaling.maximum)
        start_s = now_s - scaling.stabilisation_s
        self._recommendations = [each for each in self._recommendations if each[0] > start_s]
        self._recommendations.append((now_s, desired))
        if desired >= replicas:
            return desired
        return min(replicas, max(count for _, count in self._recommendations))


def autoscale(
    env: simpy.Environment,
    scaling: Scaling,
    metric: Callable[[], float],
    replicas: Callable[[], int],
    scale: Callable[[int], None],
) -> ProcessGenerator:
    """An endless process: read the metric every `poll_s` and call `scale` with the desired number
    of replicas if it differs from the current one."""
    autoscaler = Autoscaler(scaling)
    while True:
        yield env.timeout(scaling.poll_s)
        current = replicas()
        desired = autoscaler.desired(float(env.now), metric(), current)
        if desired != current:
            scale(desired)
