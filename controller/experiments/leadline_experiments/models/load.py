"""Simulated load of a service: its users, as in the load tester Locust, and an autoscaler that
scales as KEDA and Kubernetes' HorizontalPodAutoscaler (HPA) do.

KEDA provides the metric, and the HPA divides it by the target of one replica. KEDA's own cool-down
applies only to a scale-down to zero, which is not simulated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import NamedTuple

import simpy
from simpy.events import ProcessGenerator


class Step(NamedTuple):
    """A number of users for a length of time."""

    users: int
    length_s: float


class AnsweredRequest(NamedTuple):
    """A request, with the times when it was sent and answered."""

    sent_s: float
    done_s: float

    @property
    def response_s(self) -> float:
        """The response time."""
        return self.done_s - self.sent_s


@dataclass(frozen=True, slots=True)
class UserBehaviour:
    """The behaviour of a user: `parallel` requests at a time, with a pause after each answer."""

    parallel: int = 1
    # The shortest and the longest pause, drawn uniformly like Locust's `between`.
    pause_s: tuple[float, float] = (0.0, 0.0)


class Users:
    """Users whose number changes in steps; the last user to come is the first to go, after its
    answer.

    serve: makes a process that ends when a request is answered. random: draws the pauses, and each
    stream's start within the longest pause, so that the streams are not synchronous.
    """

    def __init__(
        self,
        env: simpy.Environment,
        serve: Callable[[], ProcessGenerator],
        behaviour: UserBehaviour,
        random: Random,
    ) -> None:
        self.answered: list[AnsweredRequest] = []
        self._env, self._serve, self._random = env, serve, random
        self._behaviour = behaviour
        self._users = 0
        self._active: set[int] = set()

    @property
    def concurrent_requests(self) -> int:
        """The number of requests that all users keep in flight, pauses included."""
        return self._users * self._behaviour.parallel

    def follow(self, steps: Sequence[Step]) -> ProcessGenerator:
        """A process that follows the steps; there are no users after the last one."""
        for step in steps:
            self._users = step.users
            for stream in range(self.concurrent_requests):
                if stream not in self._active:
                    self._active.add(stream)
                    self._env.process(self._stream(stream))
            yield self._env.timeout(step.length_s)
        self._users = 0

    def _stream(self, stream: int) -> ProcessGenerator:
        env, random = self._env, self._random
        shortest_s, longest_s = self._behaviour.pause_s
        yield env.timeout(random.uniform(0, longest_s))
        while stream < self.concurrent_requests:
            sent_s = float(env.now)
            yield from self._serve()
            self.answered.append(AnsweredRequest(sent_s, float(env.now)))
            yield env.timeout(random.uniform(shortest_s, longest_s))
        self._active.discard(stream)


@dataclass(slots=True)
class Autoscaler:
    """Recommends a number of replicas; the defaults are those of Kubernetes and KEDA."""

    target: float  # the load of one replica, in the metric's unit
    # minimum, maximum: replicas.
    minimum: int = 1
    maximum: int = 10
    poll_s: float = 30.0  # the interval between two readings
    # A scale-down goes no lower than the highest recommendation within this window.
    stabilisation_s: float = 300.0
    tolerance: float = 0.1  # a load this close to the target, as a share of it, changes nothing
    _recommendations: list[tuple[float, int]] = field(default_factory=list, init=False)

    def desired(self, now_s: float, metric: float, replicas: int) -> int:
        """The desired replicas. metric: of the whole service. replicas: the current number."""
        desired = ceil(metric / self.target)
        if abs(metric / (self.target * replicas) - 1) <= self.tolerance:
            desired = replicas
        desired = min(max(desired, self.minimum), self.maximum)
        start_s = now_s - self.stabilisation_s
        self._recommendations = [each for each in self._recommendations if each[0] > start_s]
        self._recommendations.append((now_s, desired))
        if desired >= replicas:
            return desired
        return min(replicas, max(count for _, count in self._recommendations))

    def follow(
        self,
        env: simpy.Environment,
        metric: Callable[[], float],
        replicas: Callable[[], int],
        scale: Callable[[int], None],
    ) -> ProcessGenerator:
        """An endless process: read the metric every `poll_s` and call `scale` with the desired
        number of replicas if it differs from the current one."""
        while True:
            yield env.timeout(self.poll_s)
            current = replicas()
            desired = self.desired(float(env.now), metric(), current)
            if desired != current:
                scale(desired)
