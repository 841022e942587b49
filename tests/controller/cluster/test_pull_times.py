"""How fast a node's pulls are, from those that it made."""

import pytest
from leadline_controller.cluster.pull_times import PullTimes, pull_speed


def test_one_pull_divides_its_time_as_expected_and_more_as_measured() -> None:
    first = pull_speed([(20.0, 1.8)])
    assert first.mbps == pytest.approx(100.0)
    assert first.overhead_s == pytest.approx(0.2)
    exact = [(mb, 1.0 + mb * 8 / 50) for mb in (2.0, 10.0, 40.0, 5.0, 20.0)]
    speed = pull_speed(exact)
    assert speed.mbps == pytest.approx(50.0, rel=0.15)
    assert 0.5 < speed.overhead_s < 1.0


def test_two_pulls_that_contradict_those_before_replace_them() -> None:
    times = PullTimes()
    for mb in (10.0, 20.0, 5.0, 30.0):
        times.add(mb, 0.3 + mb * 8 / 100)
    times.add(20.0, 0.3 + 20 * 8 / 5)
    assert times.speed is not None
    assert times.speed.mbps > 10
    times.add(10.0, 0.3 + 10 * 8 / 5)
    assert times.speed.mbps == pytest.approx(5.0, rel=0.01)
