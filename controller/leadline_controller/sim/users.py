"""People at the nodes who want something of a service, as the load tester Locust plays them."""

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
    """A request: the node whose user sent it, and when it was sent and answered."""

    node: str
    sent_s: float
    done_s: float

    @property
    def response_s(self) -> float:
        """What the user waited."""
        return self.done_s - self.sent_s


@dataclass(frozen=True, slots=True)
class Habit:
    """What a user does: keeps `parallel` requests going, with a pause before each next one.

    pause_s: the shortest and the longest pause; chance decides between them, as with Locust's
    `between`. In a closed loop the pause begins with the answer, else with the request, answered
    or not. Raises ValueError.
    """

    parallel: int = 1
    pause_s: tuple[float, float] = (0.0, 0.0)
    closed: bool = True

    def __post_init__(self) -> None:
        shortest_s, longest_s = self.pause_s
        if self.parallel < 1 or not 0 <= shortest_s <= longest_s:
            raise ValueError("parallel: expected 1 or more; pause_s: 0 or more, shortest first")
        if not self.closed and shortest_s == 0:
            raise ValueError("pause_s: expected more than 0 where nobody waits for the answer")


Serve = Callable[[str], ProcessGenerator]


class Users:
    """Users who come and go by steps; the last to come is the first to go, after its answer.

    serve(node): a process that ends when a request of a user at this node is answered. nodes:
    where users log in, one after the other and round again. random: decides how long pauses
    are, and when within the longest one each request begins, so that they do not march in step.
    """

    def __init__(
        self,
        env: simpy.Environment,
        serve: Serve,
        habit: Habit,
        nodes: Sequence[str],
        random: Random,
    ) -> None:
        self.answered: list[Answered] = []
        self._env = env
        self._serve = serve
        self._habit = habit
        self._nodes = nodes
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
        habit, env = self._habit, self._env
        node = self._nodes[stream // habit.parallel % len(self._nodes)]
        yield env.timeout(self._random.uniform(0, habit.pause_s[1]))
        while stream < self.asking:
            if habit.closed:
                yield from self._request(node)
            else:
                env.process(self._request(node))
            yield env.timeout(self._random.uniform(*habit.pause_s))
        self._busy.discard(stream)

    def _request(self, node: str) -> ProcessGenerator:
        sent_s = float(self._env.now)
        yield from self._serve(node)
        self.answered.append(Answered(node, sent_s, float(self._env.now)))
