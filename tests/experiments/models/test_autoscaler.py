"""Replicas that follow the load, with numbers worked by hand."""

import pytest
import simpy
from leadline_experiments.models.autoscaler import Autoscaler, Scaling, autoscale


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
    scaling = Scaling(50, maximum=4, stabilisation_s=0)
    assert Autoscaler(scaling).desired(0.0, metric, replicas) == expected


def test_a_scale_down_waits_until_less_was_wanted_for_long_enough() -> None:
    autoscaler = Autoscaler(Scaling(10, stabilisation_s=60))
    said = [autoscaler.desired(s, load, 3) for s, load in [(0, 30), (30, 10), (59, 10)]]
    assert said == [3, 3, 3]
    assert autoscaler.desired(60.0, 10, 3) == 1


def test_a_scale_up_does_not_wait() -> None:
    autoscaler = Autoscaler(Scaling(10, stabilisation_s=60))
    assert autoscaler.desired(0.0, 10, 1) == 1
    assert autoscaler.desired(1.0, 40, 1) == 4


def test_a_falling_load_never_adds_replicas() -> None:
    autoscaler = Autoscaler(Scaling(10, stabilisation_s=60))
    autoscaler.desired(0.0, 50, 5)
    assert autoscaler.desired(1.0, 20, 3) == 3, "five were wanted a second ago"


def test_the_process_looks_every_poll_and_acts_on_a_difference() -> None:
    env = simpy.Environment()
    replicas, scaled = [1], []

    def scale(to: int) -> None:
        scaled.append((env.now, to))
        replicas[0] = to

    load = {5: 10.0, 10: 30.0, 15: 30.0, 20: 30.0}
    scaling = Scaling(10, poll_s=5, stabilisation_s=0)
    env.process(autoscale(env, scaling, lambda: load[int(env.now)], lambda: replicas[0], scale))
    env.run(until=21)
    assert scaled == [(10, 3)]


@pytest.mark.parametrize(
    "bad", [{"target": 0}, {"poll_s": 0}, {"minimum": 0}, {"minimum": 3, "maximum": 2}]
)
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Scaling(**{"target": 1, **bad})  # type: ignore[arg-type]  # that is the test
