"""Users, with a service that takes exactly two seconds."""

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import simpy
from leadline_experiments.models.users import LoadProfile, Step, Users
from simpy.events import ProcessGenerator


def play(load_profile: LoadProfile, steps: list[Step]) -> Users:
    env = simpy.Environment()

    def serve() -> ProcessGenerator:
        yield env.timeout(2.0)

    users = Users(env, serve, load_profile, Random(1))
    env.process(users.follow(steps))
    env.run()
    return users


def test_a_user_waits_for_the_answer() -> None:
    users = play(LoadProfile(), [Step(1, 9.0)])
    assert [(a.sent_s, a.response_s) for a in users.answered] == [
        (0, 2),
        (2, 2),
        (4, 2),
        (6, 2),
        (8, 2),  # begun in time, and answered after the last step
    ]


def test_parallel_requests_and_pauses() -> None:
    users = play(LoadProfile(parallel=3, pause_s=(2.0, 2.0)), [Step(2, 40.0)])
    # Six streams, each a request every 4 s, which begin within the first pause.
    assert len(users.answered) == 60
    assert len({a.sent_s for a in users.answered if a.sent_s < 2}) == 6


def test_pauses_are_between_the_shortest_and_the_longest() -> None:
    users = play(LoadProfile(pause_s=(1.0, 3.0)), [Step(1, 400.0)])
    sent_s = [a.sent_s for a in users.answered]
    pauses_s = [after - before - 2.0 for before, after in pairwise(sent_s)]
    assert 1.0 <= min(pauses_s) < 1.3
    assert 2.7 < max(pauses_s) <= 3.0


def test_steps_up_and_down() -> None:
    users = play(LoadProfile(), [Step(1, 10.0), Step(3, 10.0), Step(2, 10.0)])
    begun = Counter(int(a.sent_s // 10) for a in users.answered)
    assert begun == {0: 5, 1: 15, 2: 10}
    assert users.concurrent_requests == 0


def test_a_user_who_is_called_back_in_time_goes_on() -> None:
    users = play(LoadProfile(), [Step(2, 3.0), Step(1, 0.5), Step(2, 2.5)])
    assert Counter(a.sent_s for a in users.answered) == {0: 2, 2: 2, 4: 2}


@pytest.mark.parametrize("bad", [{"parallel": 0}, {"pause_s": (-1, 0)}, {"pause_s": (2, 1)}])
def test_impossible_load_profiles_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        LoadProfile(**bad)
