"""People who want something of a service, as the load tester Locust plays them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import simpy
from simpy.events import ProcessGenerator


class Step(NamedTuple):
    """So many users, for so long."""

    users: int
    length_s: float


class Answered(NamedTuple):
    """A request: when it was sent and when answered."""

    sent_s: float
    done_s: float

    @property
    def response_s(self) -> float:
        """What the user waited."""
        return self.done_s - self.sent_s


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """What a user does: keeps `parallel` requests going, with a pause before each next one.

    pause_s: the shortest and the longest pause; chance decides between them, as with Locust's
    `between`. It begins with the answer. Raises ValueError.
    """

    parallel: int = 1
    pause_s: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        shortest_s, longest_s = self.pause_s
        if self.parallel < 1 or not 0 <= shortest_s <= longest_s:
            raise ValueError("parallel: expected 1 or more; pause_s: 0 or more, shortest first")


Serve = Callable[[], ProcessGenerator]


class Users:
    """Users who come and go by steps; the last to come is the first to go, after its answer.

    serve: makes a process that ends when a request is answered. random: decides how long pauses
    are, and when within the longest one each request begins, so that they do not march in step.
    """

    def __init__(
        self,
        env: simpy.Environment,
        serve: Serve,
        load_profile: LoadProfile,
        random: Random,
    ) -> None:
        self.answered: list[Answered] = []
        self._env = env
        self._serve = serve
        self._habit = load_profile
        self._random = random
        self._users = 0
        self._busy: set[int] = set()

    @property
    def asking(self) -> int:
        """How many requests all users together keep going."""
        return self._users * self._habit.parallel

    def follow(self, steps: Sequence[Step]) -> ProcessGenerator:
        """A process that takes the steps; after the last one all users are gone."""
        for step in steps:
            self._users = step.users
            for stream in range(self.asking):
                if stream not in self._busy:
                    self._busy.add(stream)
                    self._env.process(self._stream(stream))
            yield self._env.timeout(step.length_s)
        self._users = 0

    def _stream(self, stream: int) -> ProcessGenerator:
        env, random = self._env, self._random
        shortest_s, longest_s = self._habit.pause_s
        yield env.timeout(random.uniform(0, longest_s))
        while stream < self.asking:
            sent_s = float(env.now)
            yield from self._serve()
            self.answered.append(Answered(sent_s, float(env.now)))
            yield env.timeout(random.uniform(shortest_s, longest_s))
        self._busy.discard(stream)
