"""How long pods of a workload are expected to live."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.cluster.pod_lives import PodLives
from leadline_controller.framework.assumed_load import Expectations, Lives, workload_of
from leadline_controller.framework.model import Pod

HOUR_S = 3600.0


def pod(
    uid: str, app: str = "web", runs_s: float | None = 0.0, ended_s: float | None = None
) -> Pod:
    return Pod("default", uid, uid, labels={"app": app}, runs_s=runs_s, ended_s=ended_s)


def expected_s(lives: PodLives, now_s: float) -> float:
    known = Expectations(lives=lives.lives(now_s, {}))
    return known.life_s(pod("new"), HOUR_S)


def test_a_workload_without_pods_lives_as_long_as_is_taken_for_granted() -> None:
    assert expected_s(PodLives(), 0.0) == HOUR_S


def test_pods_that_still_run_make_it_longer_and_ends_make_it_shorter() -> None:
    lives = PodLives()
    lives.run(pod("a"))
    lives.run(pod("b"))
    assert expected_s(lives, 10 * HOUR_S) == 21 * HOUR_S
    lives.end(pod("a"), 10 * HOUR_S)
    assert expected_s(lives, 10 * HOUR_S) == 21 * HOUR_S / 2


def test_a_pod_that_says_when_it_ended_ended_then() -> None:
    lives = PodLives()
    lives.run(pod("a"))
    lives.end(pod("a", ended_s=60.0), 10 * HOUR_S)
    assert lives.lives(10 * HOUR_S, {}) == {workload_of(pod("a")): Lives(60.0, 1)}


def test_a_pod_that_never_ran_has_not_lived() -> None:
    lives = PodLives()
    lives.run(pod("a", runs_s=None))
    lives.end(pod("a", runs_s=None), HOUR_S)
    assert lives.lives(HOUR_S, {}) == {}


def test_a_pod_is_counted_once_however_often_it_is_seen() -> None:
    lives = PodLives()
    for _ in range(3):
        lives.run(pod("a"))
    for _ in range(2):
        lives.end(pod("a"), HOUR_S)
    assert lives.lives(2 * HOUR_S, {}) == {workload_of(pod("a")): Lives(HOUR_S, 1)}


def test_what_is_known_stays_the_same_object_until_it_has_changed_by_a_tenth() -> None:
    lives = PodLives()
    lives.run(pod("a"))
    before = lives.lives(1000.0, {})
    assert lives.lives(1050.0, before) is before
    assert lives.lives(1200.0, before)[workload_of(pod("a"))].ran_s == 1200.0


def test_of_too_many_workloads_those_without_running_pods_are_forgotten() -> None:
    lives = PodLives()
    lives.run(pod("kept", app="kept"))
    for number in range(2000):
        made = pod(str(number), app=str(number))
        lives.run(made)
        lives.end(made, 1.0)
    known = lives.lives(1.0, {})
    assert len(known) == 1024
    assert workload_of(pod("kept", app="kept")) in known


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=20))
def test_counts_are_those_of_the_pods(spans: list[tuple[float, float]]) -> None:
    lives, now_s = PodLives(), 2e6
    ran_s = ended = 0.0
    for number, (began_s, took_s) in enumerate(spans):
        made = pod(str(number), runs_s=began_s)
        lives.run(made)
        if number % 2:
            lives.end(made, began_s + took_s)
            ran_s, ended = ran_s + took_s, ended + 1
        else:
            ran_s += now_s - began_s
    known = lives.lives(now_s, {}).get(workload_of(pod("x")), Lives(0.0, 0))
    assert known.ended == ended
    assert known.ran_s == pytest.approx(ran_s, abs=1e-3)
