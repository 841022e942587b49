"""Users of a service that takes exactly two seconds, and replicas that follow the load."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
import simpy
from leadline_experiments.models.load import Autoscaler, Step, UserBehaviour, Users
from simpy.events import ProcessGenerator


def play(behaviour: UserBehaviour, steps: list[Step]) -> Users:
    env = simpy.Environment()

    def serve() -> ProcessGenerator:
        yield env.timeout(2.0)

    users = Users(env, serve, behaviour, Random(1))
    env.process(users.follow(steps))
    env.run()
    return users


def test_a_user_waits_for_the_answer() -> None:
    users = play(UserBehaviour(), [Step(1, 9.0)])
    assert [(a.sent_s, a.response_s) for a in users.answered] == [
        (0, 2),
        (2, 2),
        (4, 2),
        (6, 2),
        (8, 2),  # begun in time, and answered after the last step
    ]


def test_parallel_requests_and_pauses() -> None:
    users = play(UserBehaviour(parallel=3, pause_s=(2.0, 2.0)), [Step(2, 40.0)])
    # Six streams, each a request every 4 s, which begin within the first pause.
    assert len(users.answered) == 60
    assert len({a.sent_s for a in users.answered if a.sent_s < 2}) == 6


def test_pauses_are_between_the_shortest_and_the_longest() -> None:
    users = play(UserBehaviour(pause_s=(1.0, 3.0)), [Step(1, 400.0)])
    sent_s = [a.sent_s for a in users.answered]
    pauses_s = [after - before - 2.0 for before, after in pairwise(sent_s)]
    assert 1.0 <= min(pauses_s) < 1.3
    assert 2.7 < max(pauses_s) <= 3.0


def test_steps_up_and_down() -> None:
    users = play(UserBehaviour(), [Step(1, 10.0), Step(3, 10.0), Step(2, 10.0)])
    begun = Counter(int(a.sent_s // 10) for a in users.answered)
    assert begun == {0: 5, 1: 15, 2: 10}
    assert users.concurrent_requests == 0


def test_a_user_who_is_called_back_in_time_goes_on() -> None:
    users = play(UserBehaviour(), [Step(2, 3.0), Step(1, 0.5), Step(2, 2.5)])
    assert Counter(a.sent_s for a in users.answered) == {0: 2, 2: 2, 4: 2}


@pytest.mark.parametrize(
    ("metric", "replicas", "expected"),
    [
        (50, 1, 1),
        (51, 1, 1),  # within a tenth of the target
        (56, 1, 2),
        (100, 1, 2),
        (500, 1, 4),  # never above the maximum
        (0, 1, 1),  # never below the minimum
        (190, 4, 4),
        (150, 4, 3),
    ],
)
def test_the_load_divided_by_the_target(metric: float, replicas: int, expected: int) -> None:
    autoscaler = Autoscaler(50, maximum=4, stabilisation_s=0)
    assert autoscaler.desired(0.0, metric, replicas) == expected


def test_a_scale_down_waits_until_less_was_wanted_for_long_enough() -> None:
    autoscaler = Autoscaler(10, stabilisation_s=60)
    said = [autoscaler.desired(s, load, 3) for s, load in [(0, 30), (30, 10), (59, 10)]]
    assert said == [3, 3, 3]
    assert autoscaler.desired(60.0, 10, 3) == 1


def test_a_scale_up_does_not_wait() -> None:
    autoscaler = Autoscaler(10, stabilisation_s=60)
    assert autoscaler.desired(0.0, 10, 1) == 1
    assert autoscaler.desired(1.0, 40, 1) == 4


def test_a_falling_load_never_adds_replicas() -> None:
    autoscaler = Autoscaler(10, stabilisation_s=60)
    autoscaler.desired(0.0, 50, 5)
    assert autoscaler.desired(1.0, 20, 3) == 3, "five were wanted a second ago"


def test_the_process_looks_every_poll_and_acts_on_a_difference() -> None:
    env = simpy.Environment()
    replicas, scaled = [1], []

    def scale(to: int) -> None:
        scaled.append((env.now, to))
        replicas[0] = to

    load = {5: 10.0, 10: 30.0, 15: 30.0, 20: 30.0}
    autoscaler = Autoscaler(10, poll_s=5, stabilisation_s=0)
    env.process(autoscaler.follow(env, lambda: load[int(env.now)], lambda: replicas[0], scale))
    env.run(until=21)
    assert scaled == [(10, 3)]
