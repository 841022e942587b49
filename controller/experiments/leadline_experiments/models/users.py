"""Simulated users of a service, as in the load tester Locust."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
class LoadProfile:
    """The behaviour of a user: `parallel` requests at a time, with a pause after each answer.

    pause_s: the shortest and the longest pause, drawn uniformly like Locust's `between`. Raises
    ValueError.
    """

    parallel: int = 1
    pause_s: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        shortest_s, longest_s = self.pause_s
        if self.parallel < 1 or not 0 <= shortest_s <= longest_s:
            raise ValueError("parallel: expected 1 or more; pause_s: 0 or more, shortest first")


Serve = Callable[[], ProcessGenerator]


class Users:
    """Users whose number changes in steps; the last user to come is the first to go, after its
    answer.

    serve: makes a process that ends when a request is answered. random: draws the pauses, and each
    stream's start within the longest pause, so that the streams are not synchronous.
    """

    def __init__(
        self,
        env: simpy.Environment,
        serve: Serve,
        load_profile: LoadProfile,
        random: Random,
    ) -> None:
        self.answered: list[AnsweredRequest] = []
        self._env = env
        self._serve = serve
        self._load_profile = load_profile
        self._random = random
        self._users = 0
        self._active: set[int] = set()

    @property
    def concurrent_requests(self) -> int:
        """The number of requests that all users keep in flight, pauses included."""
        return self._users * self._load_profile.parallel

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
        shortest_s, longest_s = self._load_profile.pause_s
        yield env.timeout(random.uniform(0, longest_s))
        while stream < self.concurrent_requests:
            sent_s = float(env.now)
            yield from self._serve()
            self.answered.append(AnsweredRequest(sent_s, float(env.now)))
            yield env.timeout(random.uniform(shortest_s, longest_s))
        self._active.discard(stream)
